package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lockline/lockline/proof/history"
)

type check struct {
	name string
	ok   bool
	says string
}

type verdict []check

func (v verdict) right() bool { return !slices.ContainsFunc(v, func(c check) bool { return !c.ok }) }

func (v verdict) show(out io.Writer) {
	fmt.Fprintln(out, "\nVerdict")
	for _, c := range v {
		mark := "✓"
		if !c.ok {
			mark = "✗"
		}
		fmt.Fprintf(out, "  %s %-10s %s\n", mark, c.name, c.says)
	}
	if v.right() {
		fmt.Fprintln(out, "All is right.")
	} else {
		fmt.Fprintln(out, "Something is wrong.")
	}
}

// judge checks a record. The check named use fails if one of the kinds was never used.
func judge(r *history.Record, kinds []string) verdict {
	holds := history.Holds(r.Ops)
	judged := history.JudgeAll(r.Ops)
	lost, nested, runs, waits := 0, 0, 0, 0
	uses := map[string]int{} // number of uses, by kind
	for _, h := range holds {
		if h.Lost {
			lost++
		}
		nested += h.Nested
		uses[history.KindOf(h.Lock)]++
	}
	for _, op := range r.Ops {
		switch op.Kind {
		case history.Set:
			runs++
		case history.Wait:
			waits++
			uses[history.KindOf(op.Lock)]++
		}
	}
	var used, faults []string
	unused := 0
	for _, kind := range kinds {
		used = append(used, fmt.Sprintf("%s %d", kind, uses[kind]))
		if uses[kind] == 0 {
			unused++
		}
	}
	for _, f := range history.Faults {
		if n := r.Faults[f]; n > 0 {
			faults = append(faults, fmt.Sprintf("%s %d", f, n))
		}
	}
	example := func(n int) string { // describes the first violation
		if n == 0 || judged.Example == "" {
			return ""
		}
		return ": " + judged.Example
	}
	check := func(name string, wrong int, shown bool, says string) check {
		return check{name, wrong == 0 && shown, says}
	}
	v := verdict{
		check("use", unused, len(kinds) > 0, strings.Join(used, ", ")),
		check("exclusion", judged.Overlaps, len(holds) > 1,
			fmt.Sprintf("%d holds, %d runs of latches, %d overlaps%s",
				len(holds), runs, judged.Overlaps, example(judged.Overlaps))),
		check("fencing", judged.Unfenced, len(holds) > 1,
			fmt.Sprintf("%d tokens that were not above all granted before", judged.Unfenced)),
		check("re-entry", judged.Strange, nested > 0,
			fmt.Sprintf("%d nested holds, %d not as their outer hold", nested, judged.Strange)),
		check("latches", judged.Early, true, fmt.Sprintf("%d waits, %d of them over before the count was 0%s",
			waits, judged.Early, example(judged.Early))),
		check("faults", 0, r.Count() > 0, fmt.Sprintf("%d: %s", r.Count(), strings.Join(faults, ", "))),
		check("losses", 0, true, fmt.Sprintf("%d holds ended with their process or lease; "+
			"%d acquisitions ended without the lock",
			lost, r.Failed)),
	}
	for _, c := range []struct {
		name, what string
		kind       history.Kind
	}{
		{"progress", "that could not be had once nothing failed", history.Stuck},
		{"leaks", "processes that left goroutines behind, servers with keys or subscriptions left",
			history.Left},
		{"processes", "ended by themselves", history.Died},
	} {
		n, first := 0, ""
		for _, e := range r.Wrong {
			if e.Kind == c.kind {
				n++
				first = cmp.Or(first, ": "+e.Error)
			}
		}
		v = append(v, check(c.name, n, true, fmt.Sprintf("%d %s%s", n, c.what, first)))
	}
	return v
}
