package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// counting is the state of SemaphoreModel.
type counting struct {
	used   int
	inside []Op // current acquisitions, sorted by owner
}

// SemaphoreModel returns the model of a semaphore with this number of permits. An owner has at most one hold.
// It acquires all permits of the hold at the same time, and releases or loses all of them. The tokens of
// simultaneous holds differ.
func SemaphoreModel(permits int) porcupine.Model {
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return counting{} },
		Step: func(state, input, _ any) (bool, any) {
			st, op := state.(counting), input.(Op)
			i, found := slices.BinarySearchFunc(st.inside, op.Owner, func(in Op, owner string) int {
				return cmp.Compare(in.Owner, owner)
			})
			if op.Kind != Acquire {
				if !found || st.inside[i].Token != op.Token {
					return false, st
				}
				return true, counting{st.used - st.inside[i].Permits,
					slices.Delete(slices.Clone(st.inside), i, i+1)}
			}
			shared := slices.ContainsFunc(st.inside, func(in Op) bool { return in.Token == op.Token })
			if found || shared || op.Permits < 1 || st.used+op.Permits > permits {
				return false, st
			}
			return true, counting{st.used + op.Permits, slices.Insert(slices.Clone(st.inside), i, op)}
		},
		Equal: func(a, b any) bool {
			x, y := a.(counting), b.(counting)
			return x.used == y.used && slices.Equal(x.inside, y.inside)
		},
		DescribeOperation: describe,
	}
}

// change is an instant at which permits are acquired or released.
type change struct {
	at    int64
	order int // 0: released, 1: acquired and released, 2: acquired; sorts changes of one instant
	Hold
}

// JudgeSemaphore judges the holds of a semaphore with this number of permits, and agrees with SemaphoreModel.
// It assumes the latest possible instant for each grant, because a later grant can only overlap fewer holds.
// The latest possible instant is the return of the acquisition, or the end of the hold if the end is earlier.
func JudgeSemaphore(holds []Hold, permits int) (v Verdict) {
	byLock := map[string][]change{}
	for _, h := range holds {
		v.Strange += h.Strange + h.Nested
		if h.Strange > 0 {
			continue
		}
		from := min(h.Return, h.End)
		if from == h.End {
			byLock[h.Lock] = append(byLock[h.Lock], change{from, 1, h})
			continue
		}
		byLock[h.Lock] = append(byLock[h.Lock], change{from, 2, h}, change{h.End, 0, h})
	}
	for _, changes := range byLock {
		slices.SortStableFunc(changes, func(a, b change) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
		})
		used := 0
		tokens := map[int64]int{} // number of holds with each token
		for _, c := range changes {
			if c.order == 0 {
				used -= c.Permits
				if tokens[c.Token]--; tokens[c.Token] == 0 {
					delete(tokens, c.Token)
				}
				continue
			}
			if used+c.Permits > permits || c.Permits < 1 {
				v.Overlaps++
				v.Example = cmp.Or(v.Example, fmt.Sprintf("%+v was granted while %d of %d permits were held",
					c.Hold, used, permits))
			}
			if tokens[c.Token] > 0 {
				v.Unfenced++
			}
			if c.order == 2 {
				used += c.Permits
				tokens[c.Token]++
			}
		}
	}
	return v
}
