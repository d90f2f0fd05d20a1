package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// told is a history of three holds, as a demo of two processes leaves it:
// process 1 holds and re-enters, process 2 is killed holding, process 1 holds again.
func told() history {
	start := time.Unix(1_000_000, 0)
	at := func(ms int) int64 { return start.Add(time.Duration(ms) * time.Millisecond).UnixNano() }
	return history{
		processes: 2, lease: 2 * time.Second, slack: 3 * time.Second,
		events: []event{
			{Process: 1, At: at(0), Kind: waiting},
			{Process: 2, At: at(5), Kind: waiting},
			{Process: 1, At: at(10), Kind: entered, Token: 100},
			{Process: 1, At: at(20), Kind: nested, Token: 100},
			{Process: 1, At: at(30), Kind: wrote, Count: 1},
			{Process: 1, At: at(40), Kind: unnested},
			{Process: 1, At: at(50), Kind: left},
			{Process: 2, At: at(60), Kind: entered, Token: 101},
			{Process: 1, At: at(70), Kind: waiting},
			{Process: 2, At: at(80), Kind: stalled, Count: 1},
			{Process: 1, At: at(1900), Kind: entered, Token: 105},
			{Process: 1, At: at(1910), Kind: wrote, Count: 2},
			{Process: 1, At: at(1920), Kind: left},
		},
		kill:    &kill{process: 2, at: start.Add(100 * time.Millisecond)},
		ends:    []end{{2, true, "signal: killed"}, {1, true, "exit status 0"}},
		counter: 2,
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
	const ms = int64(time.Millisecond)
	for _, test := range []struct {
		what  string
		forge func(h *history)
		fails string // names of the checks that must fail
	}{
		{"a lost increment", func(h *history) { h.counter-- }, "counter"},
		{"an increment too many: the killed process had written after all", func(h *history) { h.counter++ }, "counter"},
		{"no file", func(h *history) { h.fileErr = errors.New("gone") }, "counter"},
		{"an overlap by a millisecond", func(h *history) { h.events[7].At = h.events[6].At - ms }, "exclusion"},
		{"a hold within another one's hold", func(h *history) {
			at := h.events[6].At - 5*ms
			h.events = append(h.events,
				event{Process: 3, At: at, Kind: entered, Token: 101},
				event{Process: 3, At: at + ms, Kind: left})
			h.processes, h.ends = 3, append(h.ends, end{3, true, ""})
		}, "exclusion fencing"},
		{"entering before the killed holder was dead", func(h *history) { h.events[10].At = h.kill.at.UnixNano() - ms }, "exclusion recovery"},
		{"a token going back", func(h *history) { h.events[10].Token = 99 }, "fencing"},
		{"a token given twice", func(h *history) { h.events[10].Token = 101 }, "fencing"},
		{"a nested hold with a token of its own", func(h *history) { h.events[3].Token = 200 }, "re-entry"},
		{"a nested hold outside of any", func(h *history) { h.events[3].At, h.events[3].Process = h.events[0].At, 2 }, "re-entry"},
		{"no nested hold", func(h *history) { h.events = slices.Delete(h.events, 3, 4) }, "re-entry"},
		{"recovery too late", func(h *history) {
			for i := 10; i < 13; i++ {
				h.events[i].At += 4000 * ms
			}
		}, "recovery"},
		{"no recovery", func(h *history) { h.events, h.counter = h.events[:10], 1 }, "recovery"},
		{"nobody was killed", func(h *history) { h.kill = nil }, "recovery"},
		{"killed while it did not hold", func(h *history) {
			h.events = slices.Insert(h.events, 10, event{Process: 2, At: h.events[9].At + ms, Kind: left})
		}, "recovery"},
		{"a process that crashed", func(h *history) { h.ends[1] = end{1, false, "exit status 2"} }, "processes"},
		{"a process that vanished", func(h *history) { h.ends = h.ends[:1] }, "processes"},
		{"a process that reported a failure", func(h *history) {
			h.events = append(h.events, event{Process: 1, At: h.events[12].At, Kind: failed, Error: "lock lost"})
		}, "processes"},
		{"a process that never held", func(h *history) { h.processes, h.ends = 3, append(h.ends, end{3, true, ""}) }, "processes"},
		{"nothing happened", func(h *history) { *h = history{processes: 2} }, "counter exclusion re-entry fencing recovery processes"},
	} {
		t.Run(test.what, func(t *testing.T) {
			h := told()
			test.forge(&h)
			v := judge(h)
			var fails []string
			for _, c := range v {
				if !c.ok {
					fails = append(fails, c.name)
				}
			}
			if got := strings.Join(fails, " "); got != test.fails {
				t.Errorf("checks that fail: %q, want %q\n%+v", got, test.fails, v)
			}
			if v.right() {
				t.Error("the verdict is that all is right")
			}
		})
	}
}
