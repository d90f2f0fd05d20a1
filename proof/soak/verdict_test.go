package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockline/lockline/proof/history"
)

// held returns the operations of a hold that begins with acquire and ends at end. If nested is true, the hold
// has a nested hold.
func held(acquire history.Op, nested bool, end int64) (ops []history.Op) {
	acquire.Kind, acquire.Return = history.Acquire, acquire.Call
	release := acquire
	release.Kind, release.Permits, release.Call, release.Return = history.Release, 0, end, end
	if nested {
		return []history.Op{acquire, acquire, release, release}
	}
	return []history.Op{acquire, release}
}

func TestTheVerdictNoticesWhatIsWrong(t *testing.T) {
	hold := func(owner string, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "rlock 0", Owner: owner, Token: token, Call: call}, true, end)
	}
	share := func(owner string, read bool, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "rwlock 0", Owner: owner, Read: read, Token: token, Call: call}, false,
			end)
	}
	permits := func(owner string, n int, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "semaphore 0", Owner: owner, Permits: n, Token: token, Call: call},
			false, end)
	}
	lead := func(owner string, token, call, end int64) []history.Op {
		return held(history.Op{Lock: "election 0", Owner: owner, Token: token, Call: call}, false, end)
	}
	latch := func(kind history.Kind, n int, call, end int64) history.Op {
		return history.Op{Lock: "latch 0", Owner: "a", Kind: kind, Permits: n, Call: call, Return: end}
	}
	wrong := func(kind history.Kind) func(*history.Record) {
		return func(r *history.Record) {
			r.Wrong = append(r.Wrong, history.Event{Op: history.Op{Kind: kind}})
		}
	}
	add := func(ops ...history.Op) func(*history.Record) {
		return func(r *history.Record) { r.Ops = append(r.Ops, ops...) }
	}
	kinds := []string{history.Reentrant, history.ReadWrite, history.Semaphore, history.Latch,
		history.Election}
	for name, c := range map[string]struct {
		spoil func(r *history.Record)
		wrong string
	}{
		"nothing":                         {func(*history.Record) {}, ""},
		"two holders":                     {add(hold("c", 3, 25, 40)...), "exclusion"},
		"a token twice":                   {add(hold("c", 2, 40, 50)...), "fencing"},
		"a nested token":                  {func(r *history.Record) { r.Ops[1].Token = 9 }, "re-entry"},
		"a reader beside a writer":        {add(share("c", true, 10, 25, 40)...), "exclusion"},
		"a writer beside a reader":        {add(share("c", false, 5, 5, 15)...), "exclusion"},
		"a writer's token that goes back": {add(share("c", false, 2, 40, 50)...), "exclusion fencing"},
		"a permit too many":               {add(permits("c", 1, 5, 5, 6)...), "exclusion"},
		"more permits than there are":     {add(permits("c", 4, 5, 40, 50)...), "exclusion"},
		"a permit that comes back twice":  {add(permits("a", 1, 5, 40, 50)[1]), "re-entry"},
		"two leaders":                     {add(lead("c", 3, 25, 40)...), "exclusion"},
		"a leader's token that goes back": {add(lead("c", 1, 40, 50)...), "exclusion fencing"},
		"a wait before the last count":    {add(latch(history.Wait, 0, 3, 5)), "latches"},
		"a wait of a run that is not counted": {add(latch(history.Set, 3, 20, 21),
			latch(history.Count, 0, 22, 23),
			latch(history.Count, 0, 24, 25), latch(history.Wait, 0, 22, 26)), "latches"},
		"a run in a run": {add(latch(history.Set, 3, 4, 5)), "exclusion"},
		"no nested holds": {func(r *history.Record) {
			r.Ops = append(append(r.Ops[:1:1], r.Ops[3:5]...), r.Ops[7:]...)
		}, "re-entry"},
		"no latch": {func(r *history.Record) {
			r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool { return op.Kind == history.Wait })
		}, "use"},
		"no election": {func(r *history.Record) {
			r.Ops = slices.DeleteFunc(r.Ops, func(op history.Op) bool {
				return history.KindOf(op.Lock) == history.Election
			})
		}, "use"},
		"no faults":    {func(r *history.Record) { r.Faults = nil }, "faults"},
		"a stuck lock": {wrong(history.Stuck), "progress"},
		"a leak":       {wrong(history.Left), "leaks"},
		"a crash":      {wrong(history.Died), "processes"},
		"nothing at all": {func(r *history.Record) { *r = history.Record{} },
			"use exclusion fencing re-entry faults"},
	} {
		r := &history.Record{Faults: map[history.Fault]int{history.Kill: 1}}
		for _, ops := range [][]history.Op{
			hold("a", 1, 0, 10), hold("b", 2, 20, 30),
			share("a", true, 1, 0, 10), share("b", true, 2, 1, 11), share("a", false, 9, 20, 30),
			permits("a", 2, 1, 0, 10), permits("b", 1, 2, 1, 11), permits("a", 3, 3, 20, 30),
			lead("a", 1, 0, 10), lead("b", 2, 20, 30),
			{latch(history.Set, 3, 0, 1), latch(history.Count, 0, 2, 3), latch(history.Count, 0, 4, 5),
				latch(history.Count, 0, 6, 7), latch(history.Wait, 0, 2, 8)},
		} {
			r.Ops = append(r.Ops, ops...)
		}
		c.spoil(r)
		var wrong []string
		for _, c := range judge(r, kinds) {
			if !c.ok {
				wrong = append(wrong, c.name)
			}
		}
		if got := strings.Join(wrong, " "); got != c.wrong {
			t.Errorf("%s: found %q, want %q", name, got, c.wrong)
		}
	}
}
