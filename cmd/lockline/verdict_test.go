package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/rlock"
)

// told is an account of three holds, as a demo of two processes leaves it:
// process 1 holds and re-enters, process 2 is killed holding, process 1 holds again.
func told() account {
	start := time.Unix(1_000_000, 0)
	at := func(ms int) int64 { return start.Add(time.Duration(ms) * time.Millisecond).UnixNano() }
	return account{
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

// toldFairly is what a fair demo of three processes leaves: process 3 holds, then
// 2, in whose hold 3 is killed in the queue ahead of 1; then 1; 2 is killed holding;
// then 1 holds again.
func toldFairly() account {
	start := time.Unix(1_000_000, 0)
	at := func(ms int) int64 { return start.Add(time.Duration(ms) * time.Millisecond).UnixNano() }
	queue := func(owners ...string) (q []rlock.Waiter) {
		for _, o := range owners {
			q = append(q, rlock.Waiter{Owner: o, Session: o[:1]})
		}
		return q
	}
	return account{
		processes: 3, lease: 2 * time.Second, liveness: 2 * time.Second, slack: 3 * time.Second,
		events: []event{
			{Process: 3, At: at(0), Kind: waiting, Session: "c"},
			{Process: 3, At: at(10), Kind: entered, Token: 100},
			{Process: 3, At: at(20), Kind: nested, Token: 100},
			{Process: 2, At: at(30), Kind: waiting, Session: "b"},
			{Process: 3, At: at(40), Kind: wrote, Count: 1},
			{Process: 3, At: at(50), Kind: looked, Token: 100, Owner: "c:1", Queue: queue("b:1")}, // 5
			{Process: 3, At: at(60), Kind: left},
			{Process: 2, At: at(70), Kind: entered, Token: 110},
			{Process: 3, At: at(80), Kind: waiting, Session: "c"},
			{Process: 1, At: at(90), Kind: waiting, Session: "a"},
			{Process: 2, At: at(100), Kind: stalled, Count: 1},
			{At: at(110), Kind: looked, Token: 110, Owner: "b:1", Queue: queue("c:2", "a:1")}, // 11
			{Process: 2, At: at(130), Kind: wrote, Count: 2},
			{Process: 2, At: at(140), Kind: left},
			{Process: 2, At: at(150), Kind: waiting, Session: "b"},
			{At: at(160), Kind: looked, Token: 115, Owner: "c:2", Queue: queue("a:1", "b:2")}, // 15
			{Process: 1, At: at(1900), Kind: entered, Token: 120},
			{Process: 1, At: at(1910), Kind: wrote, Count: 3},
			{Process: 1, At: at(1920), Kind: looked, Token: 120, Owner: "a:1", Queue: queue("b:2")}, // 18
			{Process: 1, At: at(1930), Kind: left},
			{Process: 2, At: at(1940), Kind: entered, Token: 130},
			{Process: 1, At: at(1950), Kind: waiting, Session: "a"},
			{Process: 2, At: at(1960), Kind: stalled, Count: 3},
			{At: at(1970), Kind: looked, Token: 130, Owner: "b:2", Queue: queue("a:2")}, // 23
			{Process: 1, At: at(3900), Kind: entered, Token: 140},
			{Process: 1, At: at(3910), Kind: wrote, Count: 4},
			{Process: 1, At: at(3920), Kind: looked, Token: 140, Owner: "a:2"}, // 26
			{Process: 1, At: at(3930), Kind: left},
		},
		waiter:  &kill{process: 3, at: start.Add(120 * time.Millisecond)},
		kill:    &kill{process: 2, at: start.Add(1980 * time.Millisecond)},
		ends:    []end{{3, true, "signal: killed"}, {2, true, "signal: killed"}, {1, true, "exit status 0"}},
		counter: 4,
	}
}

func TestVerdictOfWhatWentRight(t *testing.T) {
	for _, c := range slices.Concat(judge(told()), judge(toldFairly())) {
		if !c.ok {
			t.Errorf("%s: %s", c.name, c.says)
		}
	}
}

// forgery is an account made false.
type forgery struct {
	what  string
	forge func(h *account)
	fails string // names of the checks that must fail
}

func (f forgery) isNoticed(t *testing.T, h account) {
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
}

func TestVerdictNoticesWhatWentWrong(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, f := range []forgery{
		{"a lost increment", func(h *account) { h.counter-- }, "counter"},
		{"an increment too many: the killed process had written after all", func(h *account) { h.counter++ }, "counter"},
		{"no file", func(h *account) { h.fileErr = errors.New("gone") }, "counter"},
		{"an overlap by a millisecond", func(h *account) { h.events[7].At = h.events[6].At - ms }, "exclusion"},
		{"a hold within another one's hold", func(h *account) {
			at := h.events[6].At - 5*ms
			h.events = append(h.events,
				event{Process: 3, At: at, Kind: entered, Token: 101},
				event{Process: 3, At: at + ms, Kind: left})
			h.processes, h.ends = 3, append(h.ends, end{3, true, ""})
		}, "exclusion fencing"},
		{"entering before the killed holder was dead", func(h *account) { h.events[10].At = h.kill.at.UnixNano() - ms }, "exclusion recovery"},
		{"a token going back", func(h *account) { h.events[10].Token = 99 }, "fencing"},
		{"a token given twice", func(h *account) { h.events[10].Token = 101 }, "fencing"},
		{"a nested hold with a token of its own", func(h *account) { h.events[3].Token = 200 }, "re-entry"},
		{"a nested hold outside of any", func(h *account) { h.events[3].At, h.events[3].Process = h.events[0].At, 2 }, "re-entry"},
		{"no nested hold", func(h *account) { h.events = slices.Delete(h.events, 3, 4) }, "re-entry"},
		{"recovery too late", func(h *account) {
			for i := 10; i < 13; i++ {
				h.events[i].At += 4000 * ms
			}
		}, "recovery"},
		{"no recovery", func(h *account) { h.events, h.counter = h.events[:10], 1 }, "recovery"},
		{"nobody was killed", func(h *account) { h.kill = nil }, "recovery"},
		{"killed while it did not hold", func(h *account) {
			h.events = slices.Insert(h.events, 10, event{Process: 2, At: h.events[9].At + ms, Kind: left})
		}, "recovery"},
		{"a process that crashed", func(h *account) { h.ends[1] = end{1, false, "exit status 2"} }, "processes"},
		{"a process that vanished", func(h *account) { h.ends = h.ends[:1] }, "processes"},
		{"a process that reported a failure", func(h *account) {
			h.events = append(h.events, event{Process: 1, At: h.events[12].At, Kind: failed, Error: "lock lost"})
		}, "processes"},
		{"a process that never held", func(h *account) { h.processes, h.ends = 3, append(h.ends, end{3, true, ""}) }, "processes"},
		{"nothing happened", func(h *account) { *h = account{processes: 2} }, "counter exclusion re-entry fencing recovery processes"},
	} {
		t.Run(f.what, func(t *testing.T) { f.isNoticed(t, told()) })
	}
}

func TestVerdictNoticesWhatWasUnfair(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, f := range []forgery{
		{"two in the queue, served the other way round", func(h *account) {
			q := h.events[15].Queue
			q[0], q[1] = q[1], q[0]
		}, "order"},
		{"asking later than one in the queue, and served before, never seen in the queue", func(h *account) {
			at := h.events[5].At
			h.events = append(h.events,
				event{Process: 1, At: at + ms, Kind: waiting, Session: "a"},
				event{Process: 1, At: at + 11*ms, Kind: entered, Token: 105},
				event{Process: 1, At: at + 12*ms, Kind: looked, Token: 105, Owner: "a:0"},
				event{Process: 1, At: at + 13*ms, Kind: left})
		}, "order"},
		{"one that lives is never served", func(h *account) {
			h.events[15].Queue = slices.Insert(h.events[15].Queue, 0, rlock.Waiter{Owner: "a:0", Session: "a"})
		}, "order"},
		{"one that was killed later had been passed over when it lived", func(h *account) {
			h.events[5].Queue = slices.Insert(h.events[5].Queue, 0, rlock.Waiter{Owner: "c:2", Session: "c"})
		}, "order"},
		{"nobody looked", func(h *account) {
			h.events = slices.DeleteFunc(h.events, func(e event) bool { return e.Kind == looked })
		}, "order skipping"},
		{"nobody was ever in the queue", func(h *account) {
			for i := range h.events {
				h.events[i].Queue = nil
			}
		}, "order skipping"},
		{"nobody was ever behind another", func(h *account) {
			h.events[11].Queue, h.events[15].Queue = h.events[11].Queue[:1], h.events[15].Queue[:1]
		}, "order skipping"},
		{"a hold whose place in the queue is not known", func(h *account) { h.events[18].Owner = "" }, "order"},
		{"no waiter was killed", func(h *account) { h.waiter = nil }, "order skipping"},
		{"the killed waiter was not the first", func(h *account) { slices.Reverse(h.events[11].Queue) }, "skipping"},
		{"the queue was last looked at in another hold", func(h *account) { h.events[11].Token = 100 }, "order skipping"},
		{"the holder left before the waiter was killed", func(h *account) {
			h.events[12].At, h.events[13].At = h.events[11].At+ms, h.events[11].At+2*ms
		}, "skipping"},
		{"the dead waiter kept the others waiting for too long", func(h *account) {
			for i := 16; i < len(h.events); i++ {
				h.events[i].At += 4000 * ms
			}
			h.kill.at = h.kill.at.Add(4 * time.Second)
		}, "skipping"},
		{"nobody held after the dead waiter", func(h *account) { h.events, h.counter = h.events[:16], 2 }, "recovery processes order skipping"},
		{"nothing happened", func(h *account) { *h = account{processes: 3, liveness: time.Second} },
			"counter exclusion re-entry fencing recovery processes order skipping"},
	} {
		t.Run(f.what, func(t *testing.T) { f.isNoticed(t, toldFairly()) })
	}
}
