package history

import (
	"cmp"
	"slices"
)

// Hold is the time during which an owner holds a lock, from the outermost acquisition to the last release or
// the loss.
type Hold struct {
	Lock, Owner       string
	Read              bool // the outermost hold of a read-write lock was to read
	Permits           int  // number of permits of a semaphore
	Token             int64
	Call, Return, End int64
	Nested            int   // number of nested holds
	Downgrade         int64 // time of a writer's downgrade to reader; 0 means none
	// Strange is the number of nested holds with another token, of nested write holds within a read hold, and
	// of releases or losses without a hold.
	Strange int
	Lost    bool // ended by a Lose, not by a Release
}

// open is a hold that has not ended.
type open struct {
	Hold
	reads, writes int // a mutex and a semaphore count their holds in writes
}

// count returns the counter of the holds of op's kind, to read or to write.
func (h *open) count(op Op) *int {
	if op.Read {
		return &h.reads
	}
	return &h.writes
}

// nest adds a nested acquisition.
func (h *open) nest(op Op) {
	if op.Token != h.Token || !op.Read && h.writes == 0 {
		h.Strange++
	}
	h.Nested++
	*h.count(op)++
}

// release removes a hold, and reports whether it was the last one.
func (h *open) release(op Op) bool {
	if *h.count(op) == 0 {
		h.Strange++
		return false
	}
	*h.count(op)--
	if !op.Read && h.writes == 0 && h.reads > 0 {
		h.Downgrade = op.Call
	}
	return h.reads+h.writes == 0
}

// Holds combines ops to holds, and sorts the holds by Call. The ops of one owner and lock must be in the
// order of their calls. Ops of latches are left out.
func Holds(ops []Op) (holds []Hold) {
	type key struct{ lock, owner string }
	inside := map[key]*open{}
	for _, o := range ops {
		if o.Kind == Set || o.Kind == Count || o.Kind == Wait {
			continue
		}
		k := key{o.Lock, o.Owner}
		h := inside[k]
		switch {
		case o.Kind == Acquire && h == nil:
			h = &open{Hold: Hold{Lock: o.Lock, Owner: o.Owner, Read: o.Read, Permits: o.Permits,
				Token: o.Token, Call: o.Call, Return: o.Return}}
			*h.count(o)++
			inside[k] = h
		case h == nil:
			holds = append(holds, Hold{Lock: o.Lock, Owner: o.Owner, Token: o.Token, Call: o.Call,
				Return: o.Call, End: o.Call, Strange: 1})
		case o.Kind == Acquire:
			h.nest(o)
		case o.Kind == Lose || h.release(o):
			h.End, h.Lost = o.Call, o.Kind == Lose
			holds = append(holds, h.Hold)
			delete(inside, k)
		}
	}
	for _, h := range inside { // a hold without an end was valid at least until its acquisition returned
		h.End = max(h.Return, h.Downgrade)
		holds = append(holds, h.Hold)
	}
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Call, b.Call) })
	return holds
}
