package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// told returns the account of a demo without mistakes. First, processes 4 and 1 have a hold each. Then
// process 2 is stopped in its hold, process 1 has a second hold, and the write of process 2 is refused. At
// last, process 3 is killed in its hold, and process 1 has a third hold.
func told() account {
	start := time.Unix(1_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	return account{
		events: []event{
			{Process: 4, at: at(0), Kind: reading, Token: 99},
			{Process: 4, at: at(5), Kind: writing, Token: 99, Count: 1},
			{Process: 1, at: at(10), Kind: reading, Token: 100},
			{Process: 1, at: at(20), Kind: writing, Token: 100, Count: 2},
			{Process: 2, at: at(30), Kind: reading, Token: 101},
			{Process: 1, at: at(40), Kind: waiting},
			{Process: 1, at: at(2030), Kind: reading, Token: 110}, // event 6
			{Process: 2, at: at(2040), Kind: writing, Token: 101, Count: 3, Lost: "lock lost", Refused: true},
			{Process: 3, at: at(2050), Kind: waiting},
			{Process: 1, at: at(2060), Kind: writing, Token: 110, Count: 3}, // event 9
			{Process: 3, at: at(2070), Kind: reading, Token: 120},
			{Process: 1, at: at(2080), Kind: waiting},
			{Process: 1, at: at(4070), Kind: reading, Token: 130}, // event 12
			{Process: 1, at: at(4080), Kind: writing, Token: 130, Count: 4},
		},
		stall: moment{2, at(30)},
		kill:  moment{3, at(2070)},
		ends: []end{{3, true, "signal: killed"}, {4, true, "exit status 0"},
			{2, true, "exit status 0"}, {1, true, "exit status 0"}},
	}
}

func TestVerdictOfWhatWentRight(t *testing.T) {
	for _, c := range judge(told()) {
		if !c.ok {
			t.Errorf("%s: %s", c.name, c.says)
		}
	}
}

func TestVerdictNoticesWhatWentWrong(t *testing.T) {
	for _, f := range []struct {
		what  string
		forge func(h *account)
		fails string // names of the checks that must fail
	}{
		{"a lost increment", func(h *account) { h.events[9].Count = 2; h.events[13].Count = 3 }, "counter"},
		{"an increment too many", func(h *account) { h.events[13].Count = 5 }, "counter"},
		{"a hold within another one's hold", func(h *account) {
			h.events = slices.Insert(h.events, 3,
				event{Process: 3, at: h.events[2].at, Kind: reading, Token: 100})
			h.events[4].at = h.events[2].at
		}, "exclusion tokens"},
		{"a late process that thought it still had the lock",
			func(h *account) { h.events[7].Lost = "" }, "exclusion fencing"},
		{"a write without a hold",
			func(h *account) { h.events = slices.Delete(h.events, 2, 3) }, "exclusion"},
		{"the late write was accepted", func(h *account) { h.events[7].Refused = false }, "counter fencing"},
		{"no late write", func(h *account) { h.events = slices.Delete(h.events, 7, 8) }, "fencing"},
		{"a token going back", func(h *account) { h.events[6].Token = 98 }, "tokens"},
		{"a token given twice", func(h *account) { h.events[6].Token = 101 }, "tokens"},
		{"recovery from the stall too late", func(h *account) {
			h.stall.at = h.stall.at.Add(-4 * time.Second)
			for i := range 5 {
				h.events[i].at = h.stall.at
			}
		}, "stall"},
		{"recovery from the kill too late",
			func(h *account) { h.events[12].at = h.events[12].at.Add(4 * time.Second) }, "kill"},
		{"no recovery from the kill", func(h *account) { h.events = h.events[:12] }, "kill"},
		{"nobody stood still", func(h *account) { h.stall = moment{} }, "fencing stall"},
		{"nobody was killed", func(h *account) { h.kill = moment{} }, "kill"},
		{"a process that crashed",
			func(h *account) { h.ends[1] = end{2, false, "exit status 2"} }, "processes"},
		{"a process that vanished", func(h *account) { h.ends = h.ends[:3] }, "processes"},
		{"a process that never held",
			func(h *account) { h.events[0].Process, h.events[1].Process = 1, 1 }, "processes"},
		{"nothing happened", func(h *account) { *h = account{} },
			"exclusion counter tokens fencing stall kill processes"},
	} {
		t.Run(f.what, func(t *testing.T) {
			h := told()
			f.forge(&h)
			v := judge(h)
			var fails []string
			for _, c := range v {
				if !c.ok {
					fails = append(fails, c.name)
				}
			}
			if got := strings.Join(fails, " "); got != f.fails {
				t.Errorf("checks that fail: %q, want %q\n%+v", got, f.fails, v)
			}
			if v.right() {
				t.Error("the verdict is that all is right")
			}
		})
	}
}

func TestTheStoreRefusesOldTokens(t *testing.T) {
	var s store
	for _, test := range []struct {
		token   int64
		refused bool
	}{{5, false}, {5, false}, {7, false}, {5, true}, {6, true}, {7, false}} {
		if got := s.refuses(test.token); got != test.refused {
			t.Errorf("token %d after %d: refused is %v", test.token, s.token, got)
		}
	}
}
