package history

import (
	"cmp"
	"fmt"
	"slices"
)

// Kinds of ops on a latch.
const (
	// Set begins a run of a latch. Permits of the Op is the count of the run.
	Set Kind = "set"
	// Count counts down. If the call failed, Return is the latest instant at which the count down may have
	// taken effect.
	Count Kind = "count"
	// Wait waits for the end of the current run and returns without error. If there is no run, it returns at
	// once.
	Wait Kind = "wait"
)

// countDowns has the times of the count downs of one latch.
type countDowns struct{ calls, returns []int64 } // both are sorted

// within returns the largest number of count downs that may have taken effect between the instants from and
// to.
func (c countDowns) within(from, to int64) int {
	before, _ := slices.BinarySearch(c.returns, from)
	begun, _ := slices.BinarySearch(c.calls, to+1)
	return max(0, begun-before)
}

// JudgeLatch checks waits and runs. A Wait may not return before its run is counted down to 0. Its run is the
// latest run that began before the call of the Wait. Likewise, a run may not begin before the previous run is
// counted down. So enough count downs must have been possible in between. JudgeLatch accepts every history of
// a correct latch. It also accepts some histories of broken latches, because ops do not show which count
// downs found no run and had no effect.
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
			if s.Call <= before.Return { // the runs may have begun in any order
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
