package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// readWrite is the state of ReadWriteModel.
type readWrite struct {
	inside []inside // sorted by owner
	writer int64    // highest token of a writer
	last   int64    // highest token of all
	went   bool     // whether the writer with the highest token has downgraded to a reader
}

// inside counts the holds of an owner.
type inside struct {
	owner         string
	token         int64
	reads, writes int
}

// with returns the state with an owner's holds replaced by is.
func (st readWrite) with(is inside) readWrite {
	i, found := st.find(is.owner)
	all := slices.Clone(st.inside) // other branches of the search use the old slice
	switch {
	case is.reads+is.writes == 0:
		all = slices.Delete(all, i, i+1)
	case found:
		all[i] = is
	default:
		all = slices.Insert(all, i, is)
	}
	st.inside = all
	return st
}

func (st readWrite) find(owner string) (int, bool) {
	return slices.BinarySearchFunc(st.inside, owner, func(is inside, owner string) int {
		return cmp.Compare(is.owner, owner)
	})
}

// acquire makes an outermost acquisition, and reports whether the model allows it.
func (st readWrite) acquire(op Op) (bool, readWrite) {
	is := inside{owner: op.Owner, token: op.Token}
	free := true
	for _, other := range st.inside {
		free = free && op.Read && other.writes == 0
	}
	fenced := op.Token > st.last
	if op.Read {
		is.reads = 1
		fenced = op.Token > st.writer || op.Token == st.writer && st.went
	} else {
		is.writes = 1
		st.writer, st.went = op.Token, false
	}
	st.last = max(st.last, op.Token)
	return free && fenced, st.with(is)
}

// ReadWriteModel returns the model of a reentrant fenced read-write lock, which only its owners can release.
// All nested holds of an owner have one token. A writer's token is above all earlier tokens. A reader's token
// is above the tokens of earlier writers, but may be the token of a writer that has downgraded to a reader.
// An owner that only reads cannot acquire the lock to write.
func ReadWriteModel() porcupine.Model {
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return readWrite{} },
		Step: func(state, input, _ any) (bool, any) {
			st, op := state.(readWrite), input.(Op)
			i, found := st.find(op.Owner)
			if !found {
				if op.Kind != Acquire {
					return false, st
				}
				return st.acquire(op)
			}
			is := st.inside[i]
			ok := is.token == op.Token
			switch {
			case op.Kind == Lose:
				is.reads, is.writes = 0, 0
			case op.Kind == Acquire && op.Read:
				is.reads++
			case op.Kind == Acquire:
				ok = ok && is.writes > 0
				is.writes++
			case op.Read:
				ok = ok && is.reads > 0
				is.reads--
			default:
				ok = ok && is.writes > 0
				is.writes--
				st.went = st.went || is.writes == 0 && is.reads > 0
			}
			if !ok {
				return false, st
			}
			return true, st.with(is)
		},
		Equal: func(a, b any) bool {
			x, y := a.(readWrite), b.(readWrite)
			return x.writer == y.writer && x.last == y.last && x.went == y.went &&
				slices.Equal(x.inside, y.inside)
		},
		DescribeOperation: describe,
	}
}

// JudgeReadWrite judges the holds of a read-write lock as Judge does, and agrees with ReadWriteModel. The
// tokens give the order of the writers. They also show between which two writers each reader comes.
func JudgeReadWrite(holds []Hold) (v Verdict) {
	byLock := map[string][]Hold{}
	for _, h := range holds {
		byLock[h.Lock] = append(byLock[h.Lock], h)
		v.Strange += h.Strange
	}
	for _, holds := range byLock {
		v.Unfenced += unfencedReadWrite(holds)
		slices.SortStableFunc(holds, func(a, b Hold) int {
			return cmp.Or(cmp.Compare(a.Token, b.Token), compareBool(a.Read, b.Read))
		})
		toRead, toWrite := int64(0), int64(0) // the earliest instants at which a reader or a writer may begin
		var writer, reader Hold               // the holds that ended at toRead and at toWrite
		for i, h := range holds {
			free, until, before := toWrite, h.End, reader
			switch {
			case h.Read:
				free, before = toRead, writer
				if h.Token == writer.Token && writer.Downgrade == 0 {
					v.Unfenced++
				}
			case i > 0 && h.Token == writer.Token:
				v.Unfenced++
			}
			if h.Downgrade != 0 {
				until = h.Downgrade
			}
			begun := max(free, h.Call)
			if begun > min(h.Return, until) {
				v.Overlaps++
				v.Example = cmp.Or(v.Example, fmt.Sprintf("%+v was granted before the end of %+v", h, before))
			}
			if !h.Read {
				toRead, writer = max(begun, until), h
			}
			if end := max(begun, h.End); end >= toWrite {
				toWrite, reader = end, h
			}
		}
	}
	return v
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// unfencedReadWrite counts the holds of one lock whose token is too small. A writer's token is too small if
// its call began after a hold with a larger token was granted. A reader's token is too small if its call
// began after a writer with a larger token was granted the lock.
func unfencedReadWrite(holds []Hold) (n int) {
	granted := slices.Clone(holds)
	slices.SortFunc(granted, func(a, b Hold) int { return cmp.Compare(a.Return, b.Return) })
	asked := slices.Clone(holds)
	slices.SortFunc(asked, func(a, b Hold) int { return cmp.Compare(a.Call, b.Call) })
	writer, last := int64(0), int64(0)
	for _, h := range asked {
		for len(granted) > 0 && granted[0].Return < h.Call {
			last = max(last, granted[0].Token)
			if !granted[0].Read {
				writer = max(writer, granted[0].Token)
			}
			granted = granted[1:]
		}
		if h.Token < writer || !h.Read && h.Token < last {
			n++
		}
	}
	return n
}
