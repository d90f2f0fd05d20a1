package handover

// Gate lets one owner in at a time, first come, first served. T is what a Handoff carries.
type Gate[T any] struct {
	entries int    // more than one only of goroutines of one Owner
	owner   *Owner // of the entries; nil without WithOwner
	Waiters List[T]
}

// Enter admits the caller, or says that the gate is taken. share lets in a goroutine of the owner that is inside.
func (g *Gate[T]) Enter(o *Owner, share bool) bool {
	if g.entries > 0 && !(share && g.Shares(o)) {
		return false
	}
	g.entries++
	g.owner = o
	return true
}

// Shares reports whether o is the owner that is inside.
func (g *Gate[T]) Shares(o *Owner) bool { return o != nil && o == g.owner }

// Entries is how many are inside.
func (g *Gate[T]) Entries() int { return g.entries }

// Owner is that of the entries.
func (g *Gate[T]) Owner() *Owner { return g.owner }

// Leave ends one entry. The last to leave admits the next waiter: true if there is one.
func (g *Gate[T]) Leave() bool {
	if g.entries--; g.entries > 0 {
		return false
	}
	g.owner = nil
	w := g.Waiters.First()
	if w == nil {
		return false
	}
	g.Install(w.Owner)
	w.Answer(Handoff[T]{In: true})
	return true
}

// Install makes o's goroutine the only entry.
func (g *Gate[T]) Install(o *Owner) { g.entries, g.owner = 1, o }

// Clear ends all entries, and admits no waiter.
func (g *Gate[T]) Clear() { g.entries, g.owner = 0, nil }

// Inherit takes over the entries of from, whose hold is over, one of this gate's.
func (g *Gate[T]) Inherit(from *Gate[T]) {
	if from.entries == 0 {
		return
	}
	if g.entries == 1 { // only that hold
		g.owner = from.owner
	}
	g.entries += from.entries
	from.Clear()
	if g.owner != nil {
		g.Waiters.Recheck(g.owner)
	}
}
