package history

import (
	"cmp"
	"fmt"
	"slices"
)

// What a client saw of a latch.
const (
	// Set: it began a run with the count Permits.
	Set Kind = "set"
	// Count: it counted down. If it does not know whether it did, Return is the latest instant at which it
	// may have.
	Count Kind = "count"
	// Wait: it waited for the run that was under way, or found none, and was told that the count is 0.
	Wait Kind = "wait"
)

// countDowns are those of one latch.
type countDowns struct{ calls, returns []int64 } // in order

// within is how many may have taken effect from one instant to another.
func (c countDowns) within(from, to int64) int {
	before, _ := slices.BinarySearch(c.returns, from)
	begun, _ := slices.BinarySearch(c.calls, to+1)
	return max(0, begun-before)
}

// JudgeLatch looks at waits and runs. A wait may not end before the latest run that had begun before it was
// counted down to 0, and a run may not begin before the one before it was. So there must have been time for
// as many count downs in between. It accepts whatever a latch can show, and more: a count down that does
// nothing, as no run is under way, looks like any other.
func JudgeLatch(ops []Op) (v Verdict) {
	byLock := map[string][]Op{}
	for _, o := range ops {
		byLock[o.Lock] = append(byLock[o.Lock], o)
	}
	for _, ops := range byLock {
		var sets, waits []Op
		var c countDowns
		for _, o := range ops {
			switch o.Kind {
			case Set:
				sets = append(sets, o)
			case Wait:
				waits = append(waits, o)
			case Count:
				c.calls, c.returns = append(c.calls, o.Call), append(c.returns, o.Return)
			default:
				v.Strange++
			}
		}
		slices.Sort(c.calls)
		slices.Sort(c.returns)
		slices.SortFunc(sets, func(a, b Op) int { return cmp.Compare(a.Return, b.Return) })
		for i, s := range sets {
			if i == 0 {
				continue
			}
			before := sets[i-1]
			n := before.Permits
			if s.Call <= before.Return { // either may have been the first
				n = min(n, s.Permits)
			}
			if c.within(min(s.Call, before.Call), s.Return) < n {
				v.Overlaps++
				v.Example = cmp.Or(v.Example, fmt.Sprintf("%+v was set before the end of %+v", s, before))
			}
		}
		for _, w := range waits {
			n, _ := slices.BinarySearchFunc(sets, w.Call, func(s Op, at int64) int {
				return cmp.Compare(s.Return, at)
			})
			if n == 0 {
				continue // no run is known to have begun
			}
			if run := sets[n-1]; c.within(run.Call, w.Return) < run.Permits {
				v.Early++
				v.Example = cmp.Or(v.Example, fmt.Sprintf("%+v has ended before the end of %+v", w, run))
			}
		}
	}
	return v
}
