package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/standin"
)

const briefly = 40 * time.Millisecond

// scaled returns the scenario with less to do.
func scaled(s scenario) scenario {
	s.clients = min(s.clients, 5)
	s.goroutines = min(s.goroutines, 16)
	s.reads = min(s.reads, 50) // so that some of the few cycles write
	s.locks = min(s.locks, 100)
	s.lease = min(s.lease, 1500*time.Millisecond)
	return s
}

func theScenario(t *testing.T, name string) scenario {
	t.Helper()
	some, err := pick("scenario", scenarios, name)
	if err != nil {
		t.Fatal(err)
	}
	return scaled(some[0])
}

// A leaky is a lock in the memory of this process. Every nth call of lock returns at once, even if the lock
// is taken.
type leaky struct {
	mu  *sync.Mutex
	n   int64
	all *atomic.Int64
	has bool
}

func (m *leaky) mutex(string) mutex { return &leaky{mu: m.mu, n: m.n, all: m.all} }
func (m *leaky) close() error       { return nil }

func (m *leaky) lock(context.Context) error {
	if m.has = m.all.Add(1)%m.n != 0; m.has {
		m.mu.Lock()
	}
	return nil
}

func (m *leaky) unlock(context.Context) error {
	if m.has {
		m.mu.Unlock()
	}
	return nil
}

// of returns a bout whose locks are in the memory of this process, so the bout needs no server.
func of(s scenario, c client, window time.Duration) bout {
	dial := func(setup) (client, error) { return c, nil }
	return bout{s, contender{name: "local", dial: dial}, setup{lease: s.lease}, window}
}

func measuredLocally(t *testing.T, s scenario, c client) figures {
	t.Helper()
	f, err := of(s, c, 5*briefly).measured(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestABrokenLockIsCaught(t *testing.T) {
	for _, test := range []struct {
		scenario string
		leak     int64 // n of the leaky
		broken   bool
	}{
		{"hot1", 1, true}, {"hot1", 50, true}, {"hot8", 50, true}, {"crowd", 5, true}, {"held", 1, true},
		{"handoff", 5, true},
		{"hot1", 1 << 62, false}, {"hot8", 1 << 62, false}, {"crowd", 1 << 62, false},
		{"handoff", 1 << 62, false},
	} {
		s := theScenario(t, test.scenario)
		s.lease /= 10
		f := measuredLocally(t, s, &leaky{mu: new(sync.Mutex), n: test.leak, all: new(atomic.Int64)})
		if got := f["violations"] > 0; got != test.broken {
			t.Errorf("%s, 1 in %d: %v violations", test.scenario, test.leak, f["violations"])
		}
	}
}

func TestTheGuardCountsOverlapsAndLostIncrements(t *testing.T) {
	var g guard
	g.section(0)
	if n := g.violations(1); n != 0 {
		t.Errorf("%d violations in one section alone", n)
	}
	g.inside.Add(1) // as if a goroutine stayed inside
	g.section(0)
	if n := g.violations(2); n != 1 {
		t.Errorf("%d violations after an overlap", n)
	}
	var lost guard
	lost.section(0)
	if n := lost.violations(3); n != 2 {
		t.Errorf("%d violations after two lost increments", n)
	}
}

// An unequal is a client whose first mutex is always free. Nobody ever gets its other mutexes.
type unequal struct{ first atomic.Bool }

func (u *unequal) mutex(string) mutex {
	if u.first.CompareAndSwap(false, true) {
		return free{}
	}
	return deaf{}
}
func (u *unequal) close() error { return nil }

type free struct{}

func (free) lock(context.Context) error   { return nil }
func (free) unlock(context.Context) error { return nil }

type deaf struct{ free }

func (deaf) lock(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAWaiterThatNobodyWakesIsReported(t *testing.T) {
	pair := scenario{name: "pair", clients: 1, goroutines: 2, run: cycles}
	for _, s := range []scenario{pair, theScenario(t, "handoff")} {
		if f := measuredLocally(t, s, &unequal{}); f["stuck"] != 1 || f["least_share"] != 0 {
			t.Errorf("%s: %v stuck, least share %v", s.name, f["stuck"], f["least_share"])
		}
	}
}

func TestWaitsThatTheRunEndsCount(t *testing.T) {
	s := theScenario(t, "crowd")
	s.clients, s.goroutines = 1, 2 // the first one always gets the lock, the second one never
	f := measuredLocally(t, s, &unequal{})
	if f["wait_max_us"] < micros(5*briefly) || f["turn_share"] != .5 || f["stuck"] != 0 || f["lost"] != 0 {
		t.Errorf("%v", f)
	}
}

// A laborious is a lock that keeps a core busy for the time work before each grant.
type laborious struct {
	free
	work time.Duration
}

func (l laborious) mutex(string) mutex { return l }
func (l laborious) close() error       { return nil }

func (l laborious) lock(context.Context) error {
	for began := cpuTime(); cpuTime() < began+l.work; {
	}
	return nil
}

func TestTheCPUThatAClientNeedsIsTold(t *testing.T) {
	if cpuTime() == 0 {
		t.Skip("this system does not tell")
	}
	const work = time.Millisecond
	before := cpuTime()
	f := measuredLocally(t, theScenario(t, "solo"), laborious{work: work})
	used := cpuTime() - before
	// The first cycle that counts may have begun before the measurement, so half of the work is enough.
	if cpu := f["cpu_us_per_cycle"]; cpu < micros(work)/2 {
		t.Errorf("%v us of CPU for a cycle that takes %v", cpu, work)
	}
	if told := f["cpu_us_per_cycle"] * f["cycles_per_s"] * (5 * briefly).Seconds(); told > micros(used) {
		t.Errorf("%v us of CPU for all cycles, of a run that took %v in all", told, used)
	}
}

func runOf(t *testing.T, args string, out *bytes.Buffer) error {
	t.Helper()
	return standin.Run("bench-test", func(h *standin.Host) error {
		return run(t.Context(), h, strings.Fields(args), out, out)
	})
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range []string{
		"--scenarios hot9", "--contenders consul", "--rounds 0", "--duration 0s", "extra", "--redis nonsense",
		"--scenarios solo --contenders raw --rounds 1 --duration 1ms --redis redis://127.0.0.1:1 --plot x",
	} {
		var out bytes.Buffer
		if err := runOf(t, args, &out); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestANamePicksAllThatHaveIt(t *testing.T) {
	for list, want := range map[string]int{
		"": len(scenarios), "crowd": 4, "solo, crowd": 5, "read-mostly": 1,
	} {
		if some, err := pick("--scenarios", scenarios, list); err != nil || len(some) != want {
			t.Errorf("%q picks %s: %v", list, names(some), err)
		}
	}
}

func TestEveryNameOfAScenarioIsAContender(t *testing.T) {
	used := map[string]bool{}
	for _, s := range scenarios {
		for _, name := range s.who {
			used[name] = true
		}
	}
	for _, c := range contenders {
		if !used[c.name] {
			t.Errorf("%s is in no scenario", c.name)
		}
		delete(used, c.name)
	}
	if len(used) > 0 {
		t.Errorf("no contenders: %v", used)
	}
}

func TestARunOfAllTakesTenMinutesAtMost(t *testing.T) {
	r := newReport(&site{}, nil, 3, time.Second, scenarios, contenders)
	if all := r.lasts(); all > 10*time.Minute || all < 5*time.Minute {
		t.Errorf("it takes %v", all)
	}
}

func TestAContenderThatFailsIsLeftOutUnlessItIsOurs(t *testing.T) {
	broken := errors.Join(errors.New("broken"), errors.New("twice"))
	run := func(_ context.Context, b bout) (figures, error) {
		if b.contender.name == "breaks" {
			return nil, broken
		}
		return figures{"cycles_per_s": 1}, nil
	}
	some := []scenario{{name: "s", what: "a scenario", who: []string{"breaks", "works"}, run: run}}
	for module, want := range map[string]error{"others": nil, ownModule: broken} {
		who := []contender{{name: "breaks", module: module}, {name: "works", module: "others"}}
		r := newReport(&site{}, nil, 3, briefly, some, who)
		if err := r.measure(t.Context(), &site{}, progress(nil)); !errors.Is(err, want) {
			t.Errorf("%s: %v", module, err)
		}
		const told = "\nWithout breaks, which failed: broken; twice\n"
		if page := written(t, r); want == nil && !strings.Contains(page, told) {
			t.Errorf("%s", page)
		}
	}
}

func TestNobodyIsAlwaysFirstAndACrowdRunsOnce(t *testing.T) {
	var ran []string
	note := func(_ context.Context, b bout) (figures, error) {
		ran = append(ran, b.scenario.name+" "+b.contender.name)
		if want := briefly * time.Duration(max(1, b.stretch)); b.window != want {
			t.Errorf("%s is measured for %v, not %v", b.scenario.name, b.window, want)
		}
		return figures{}, nil
	}
	who := []string{"a", "b"}
	some := []scenario{
		{name: "s", who: who, run: note},
		{name: "once", who: who, stretch: 3, once: true, run: note},
	}
	r := newReport(&site{}, nil, 2, briefly, some, []contender{{name: "a"}, {name: "b"}, {name: "c"}})
	bar := progress(nil)
	if err := r.measure(t.Context(), &site{}, bar); err != nil {
		t.Fatal(err)
	}
	if want := []string{"s a", "s b", "once a", "once b", "s b", "s a"}; !slices.Equal(ran, want) {
		t.Errorf("%q, not %q", ran, want)
	}
	if at := bar.State(); at.CurrentNum != bar.GetMax64() || at.CurrentNum != r.lasts().Milliseconds() {
		t.Errorf("the bar ends at %d of %d, of a run of %v", at.CurrentNum, bar.GetMax64(), r.lasts())
	}
}

func TestCallsThatNeverReturnAreLeftBehind(t *testing.T) {
	never := make(chan struct{})
	defer close(never) // ends the goroutines with the test
	ctx, cancel := context.WithTimeout(t.Context(), briefly)
	defer cancel()
	err := inParallel(ctx, 4, func(int) error {
		<-never
		return nil
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
