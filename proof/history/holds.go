package history

import (
	"cmp"
	"slices"
)

// Hold is an owner's time in a lock, from its outermost acquisition to the end of its last hold.
type Hold struct {
	Lock, Owner       string
	Read              bool // the outermost hold of a read-write lock was to read
	Permits           int  // of a semaphore
	Token             int64
	Call, Return, End int64
	Nested            int   // nested holds
	Downgrade         int64 // when its last hold to write ended while it went on as a reader; 0: it did not
	// Nested holds with another token or to write in one that is to read, and releases of what was not held.
	Strange int
	Lost    bool // it did not end by itself
}

// open is a hold that has not ended.
type open struct {
	Hold
	reads, writes int // a mutex and a semaphore have only the latter
}

// count is how many holds there are of the kind that op is of.
func (h *open) count(op Op) *int {
	if op.Read {
		return &h.reads
	}
	return &h.writes
}

// nest takes in an acquisition in the hold.
func (h *open) nest(op Op) {
	if op.Token != h.Token || !op.Read && h.writes == 0 {
		h.Strange++
	}
	h.Nested++
	*h.count(op)++
}

// release takes in a release, and reports whether it was the last one.
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

// Holds puts the ops together. Those of one owner and lock are in their order; the holds
// come in the order of their Call. Those of latches are no holds.
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
	for _, h := range inside { // considered valid until its grant at least
		h.End = max(h.Return, h.Downgrade)
		holds = append(holds, h.Hold)
	}
	slices.SortFunc(holds, func(a, b Hold) int { return cmp.Compare(a.Call, b.Call) })
	return holds
}
