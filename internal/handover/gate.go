package handover

// Gate lets one in at a time, first come, first served. T is what a Handoff carries.
type Gate[T any] struct {
	entries int // more than one only of those that were nested in a hold that has ended
	Waiters List[T]
}

// Enter admits the caller, or says that the gate is taken.
func (g *Gate[T]) Enter() bool {
	if g.entries > 0 {
		return false
	}
	g.entries++
	return true
}

// Entries is how many are inside.
func (g *Gate[T]) Entries() int { return g.entries }

// Leave ends one entry. The last to leave admits the next waiter: true if there is one.
func (g *Gate[T]) Leave() bool {
	if g.entries--; g.entries > 0 {
		return false
	}
	w := g.Waiters.First()
	if w == nil {
		return false
	}
	g.Install()
	w.Answer(Handoff[T]{In: true})
	return true
}

// Install makes one the only entry.
func (g *Gate[T]) Install() { g.entries = 1 }

// Clear ends all entries, and admits no waiter.
func (g *Gate[T]) Clear() { g.entries = 0 }

// Inherit takes over the entries of from, whose hold is over, one of this gate's.
func (g *Gate[T]) Inherit(from *Gate[T]) {
	g.entries += from.entries
	from.Clear()
}
