package main

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const briefly = 40 * time.Millisecond

// scaled is the scenario with less to do.
func scaled(s scenario) scenario {
	s.clients = min(s.clients, 5)
	s.goroutines = min(s.goroutines, max(4, 16/s.clients))
	s.reads = min(s.reads, 50) // so that some write, however few cycles there are
	if s.name == "waiters" || s.name == "held" || s.name == "names" {
		s.count = 100
	}
	if s.lease > 0 {
		s.lease = 1500 * time.Millisecond
	}
	return s
}

// Who takes part in what: those that one lock can be waited for, and those that differ where nobody waits.
var (
	waitingOnes = []string{"rlock", "fairlock", "multilock", "rueidislock", "redislock", "redislock-exp", "redsync", "redsync-default", "etcd"}
	loneOnes    = []string{"raw", "rlock", "fairlock", "multilock", "rueidislock", "redislock", "redsync", "etcd"}

	crowding1   = []string{"relay", "rlock", "fairlock", "multilock", "rueidislock", "redislock-exp", "redsync-default", "redsync-exp"}
	readingOnes = []string{"rlock", "redislock", "redislock-exp", "rwlock", "etcd-rw"}
	permitting  = []string{"semaphore", "redislock-keys", "zset-poll"}
	latching    = []string{"latch", "counter-poll", "counter-pubsub", "etcd-barrier"}

	crowding3 = []string{"redlock", "redsync-default", "redsync-exp"}

	takesPart = map[string][]string{
		"solo": loneOnes, "distinct": loneOnes, "distinct-rtt": loneOnes, "rtt-solo": loneOnes, "held": loneOnes,
		"names":  {"raw", "rlock", "fairlock", "multilock", "rueidislock", "redislock", "redsync"},
		"nested": {"raw", "rlock", "fairlock", "multilock"},
		"hot1":   waitingOnes, "hot8": waitingOnes, "procs": waitingOnes, "hold1ms": waitingOnes, "rtt-hot1": waitingOnes,
		"rtt-hot8": waitingOnes, "starve": waitingOnes, "waiters": waitingOnes, "handoff": append([]string{"message"}, waitingOnes...),
		"quorum-solo": {"redlock", "redsync"}, "quorum-hot": {"redlock", "redsync", "redsync-default"}, "quorum-8": {"redlock", "redsync", "redsync-default"},
		"crowd-8": crowding1, "crowd-50": crowding1, "crowd-300": crowding1, "crowd-1000": crowding1,
		"quorum-crowd-8": crowding3, "quorum-crowd-50": crowding3, "quorum-crowd-200": crowding3,
		"market-1x1-coarse": trading(), "market-1x1-fine": trading(), "market-5x1-coarse": trading(),
		"read-mostly": readingOnes, "read-mostly-1ms": readingOnes, "semaphore-1": permitting, "semaphore-8": permitting, "latch": latching, "latch-rtt": latching,
		"market-5x1-fine": trading(), "market-5x5-coarse": trading(), "market-5x5-fine": trading(),
	}
)

func trading() []string { return append(slices.Clone(waitingOnes), "watch") }

// What each kind of scenario measures; the second list only of what speaks RESP.
var (
	cycling   = "cycles_per_s wait_p50_us wait_p99_us wait_max_us cpu_us_per_cycle allocs_per_cycle bytes_per_cycle stuck lost violations"
	shared32  = " min_share max_share"
	serving   = " server_us_per_cycle server_cpu_us_per_cycle"
	counting  = "requests_per_cycle server_calls_per_cycle" + serving
	writing   = " write_wait_p99_us"
	opening   = "last_return_p50_us last_return_p99_us cpu_us_per_cycle stuck violations"
	ordering  = " fifo_inversions fifo_grants"
	bargain   = "cycles_per_s per_60s listed_per_s retries_per_cycle wait_p50_us wait_p99_us wait_max_us wait_mean_us cpu_us_per_cycle stuck violations"
	thronging = "cycles_per_s inside_share wait_p50_us wait_p99_us wait_max_us cpu_us_per_cycle min_share max_share turn_share lost violations"
	working   = "requests_per_cycle published_per_cycle" + serving
	perLock   = "cpu_us_per_lock bytes_per_lock goroutines_per_lock lost violations"
	perWaiter = "bytes_per_waiter goroutines_per_waiter violations"

	measured = map[string][2]string{
		"solo": {cycling, counting}, "nested": {cycling, counting}, "distinct": {cycling + shared32, counting},
		"hot1": {cycling + shared32, counting}, "procs": {cycling + shared32, counting},
		"hot8":         {cycling + shared32, counting + ordering},
		"hold1ms":      {cycling + shared32 + " possible_per_s inside_share", counting + ordering},
		"rtt-solo":     {cycling + " added_rtt_us", counting},
		"distinct-rtt": {cycling + shared32 + " added_rtt_us", counting},
		"rtt-hot1":     {cycling + shared32 + " added_rtt_us", counting},
		"rtt-hot8":     {cycling + shared32 + " added_rtt_us", counting + ordering},
		"starve":       {cycling + shared32 + " crowd_share lone_share lone_wait_max_us", serving},
		"waiters":      {perWaiter, "requests_per_s"},
		"held":         {perLock, "requests_per_lock server_cpu_us_per_lock"},
		"names":        {"cycles_per_s cpu_us_per_cycle lost", serving + " left_keys_per_name left_bytes_per_name"},
		"handoff":      {"handoff_p50_us handoff_p99_us stuck lost violations", serving},
		"quorum":       {cycling, counting},
		"read-mostly":  {cycling + shared32 + writing, counting}, "read-mostly-1ms": {cycling + shared32 + writing, counting},
		"semaphore": {cycling + shared32 + " possible_per_s permits_share", counting},
		"latch":     {opening, "round_trip_us last_return_trips " + working},
		"latch-rtt": {opening + " added_rtt_us", "round_trip_us last_return_trips " + working},
		"crowd":     {thronging, working},
		"market":    {bargain, "server_cpu_us_per_cycle"},
	}
)

// leaky lets every nth caller in without asking.
type leaky struct {
	mu  *sync.Mutex
	n   int64
	all *atomic.Int64
	has bool
}

func (m *leaky) mutex(string) mutex { return &leaky{mu: m.mu, n: m.n, all: m.all} }
func (m *leaky) close() error       { return nil }

func (m *leaky) lock(ctx context.Context) (context.Context, error) {
	if m.has = m.all.Add(1)%m.n != 0; m.has {
		m.mu.Lock()
	}
	return ctx, nil
}

func (m *leaky) unlock(context.Context) error {
	if m.has {
		m.mu.Unlock()
	}
	return nil
}

func leakyContender(n int64) contender {
	l := leaky{mu: new(sync.Mutex), n: n, all: new(atomic.Int64)}
	return contender{name: "leaky", foreign: true, renewals: 3, dial: func(setup) (client, error) { return &l, nil }}
}

func theScenario(t *testing.T, name string) scenario {
	t.Helper()
	some, err := pick("scenario", scenarios, name)
	if err != nil || len(some) != 1 {
		t.Fatal(some, err)
	}
	return scaled(some[0])
}

func TestTheGuardCountsOverlapsAndLostIncrements(t *testing.T) {
	var g guard
	g.section(0)
	if n := g.violations(1); n != 0 {
		t.Errorf("%d violations in one section alone", n)
	}
	g.inside.Add(1) // somebody stays inside
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

func TestProcessesShareTheGuard(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shared")
	one, unmap, err := mapShared(file)
	if err != nil {
		t.Skip(err)
	}
	defer unmap()
	other, unmapOther, err := mapShared(file)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapOther()
	one.inside.Add(1)
	other.section(0)
	if n := one.violations(1); n != 1 {
		t.Errorf("%d violations after an overlap of two mappings", n)
	}
}

func TestInversionsAreGrantsThatPassOverAnEarlierArrival(t *testing.T) {
	type event struct {
		who  int
		what string
	}
	const waits, sees, answers, gets = "begin", "asked", "answered", "granted"
	for name, test := range map[string]struct {
		events []event
		want   int
	}{
		"in order":          {[]event{{0, waits}, {0, sees}, {0, answers}, {1, waits}, {1, sees}, {1, answers}, {0, gets}, {1, gets}}, 0},
		"passed over":       {[]event{{0, waits}, {0, sees}, {0, answers}, {1, waits}, {1, sees}, {1, answers}, {1, gets}, {0, gets}}, 1},
		"requests overlap":  {[]event{{0, waits}, {0, sees}, {1, waits}, {1, sees}, {0, answers}, {1, answers}, {1, gets}, {0, gets}}, 0},
		"has not asked yet": {[]event{{0, waits}, {1, waits}, {1, sees}, {1, answers}, {0, sees}, {1, gets}, {0, gets}}, 0},
		"passed over twice": {[]event{{0, waits}, {0, sees}, {0, answers}, {1, waits}, {1, sees}, {1, gets}, {1, waits}, {1, sees}, {1, gets}, {0, gets}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			a := &arrivals{count: func() bool { return true }}
			tickets := []*ticket{a.newTicket(), a.newTicket()}
			tickets[0].grants, tickets[1].grants = 1, 1
			for _, e := range test.events {
				switch x := tickets[e.who]; e.what {
				case waits:
					x.begin()
				case sees:
					x.asked(1)
				case answers:
					x.answered(1)
				case gets:
					x.granted()
				}
			}
			if a.inversions != test.want || a.grants == 0 {
				t.Errorf("%d inversions in %d grants, not %d", a.inversions, a.grants, test.want)
			}
		})
	}
}

// unequal has a free lock for the first goroutine and none for any other.
type unequal struct{ first atomic.Bool }

func (u *unequal) mutex(string) mutex {
	if u.first.CompareAndSwap(false, true) {
		return free{}
	}
	return deaf{}
}
func (u *unequal) close() error { return nil }

type free struct{}

func (free) lock(ctx context.Context) (context.Context, error) { return ctx, nil }
func (free) unlock(context.Context) error                      { return nil }

type deaf struct{ free }

func (deaf) lock(ctx context.Context) (context.Context, error) {
	<-ctx.Done()
	return ctx, ctx.Err()
}

func TestAWaiterThatNobodyWakesIsReported(t *testing.T) {
	c := contender{name: "unequal", foreign: true, dial: func(setup) (client, error) { return &unequal{}, nil }}
	x := &result{}
	b := (&site{}).bout(scenario{name: "pair", clients: 1, goroutines: 2, run: cycles}, c, briefly)
	if err := b.into(t.Context(), x, false); err != nil {
		t.Fatal(err)
	}
	if f := x.rounds[0]; f["stuck"] != 1 || f["min_share"] != 0 {
		t.Errorf("%v stuck, least share %v", f["stuck"], f["min_share"])
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	addresses  = regexp.MustCompile(`(?i)(xmlns(?::\w+)?=")?\b(?:https?:)?//[\w.-]+[^"'\s<)]*`)
	references = regexp.MustCompile(`(?i)(?:\b(?:src|srcset|href|action|data|poster)\s*=\s*["']?|url\(\s*["']?|@import\s+["']?)([^"'\s>)]+)`)
)

// external are the addresses that a page names, namespaces aside, and whatever it refers to but itself.
func external(page string) (names []string) {
	for _, m := range addresses.FindAllStringSubmatch(page, -1) {
		if m[1] == "" {
			names = append(names, m[0])
		}
	}
	for _, m := range references.FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(m[1], "#") {
			names = append(names, m[0])
		}
	}
	return names
}

func TestAnAddressInAPageIsFound(t *testing.T) {
	for page, want := range map[string]bool{
		`<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"><use href="#a"/></svg>`: false,
		`<script src="https://cdn.example.org/x.js">`:                                                               true,
		`<script src="//cdn.example.org/x.js">`:                                                                     true,
		`<img src=x.png>`:                                                                                           true,
		`<style>@import "x.css"`:                                                                                    true,
		`<style>a { background: url(x.png) }`:                                                                       true,
		`see http://example.org`:                                                                                    true,
	} {
		if got := len(external(page)) > 0; got != want {
			t.Errorf("%s: %v", page, external(page))
		}
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range []string{"--scenarios hot9", "--contenders consul --embedded", "--rounds 0", "--duration 0s", "extra", "--redis nonsense",
		"--redis rediss://localhost:1", "--embedded --redis redis://localhost:1", "--only-plots hot8-curves"} {
		var out bytes.Buffer
		if err := run(t.Context(), strings.Fields(args), &out, &out); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
}

func TestTheFirstPartOfANamePicksTheFamily(t *testing.T) {
	for list, want := range map[string]string{
		"rtt": "rtt-solo, rtt-hot1, rtt-hot8", "distinct": "distinct", "redislock": "redislock", "crowd": "crowd-8, crowd-50, crowd-300, crowd-1000",
		"quorum, solo": "solo, quorum-solo, quorum-hot, quorum-8, quorum-crowd-8, quorum-crowd-50, quorum-crowd-200",
		"semaphore":    "semaphore-1, semaphore-8", "latch": "latch",
		"quorum-crowd": "quorum-crowd-8, quorum-crowd-50, quorum-crowd-200", "market-5x1": "market-5x1-coarse, market-5x1-fine",
	} {
		some, err := pick("scenarios", scenarios, list)
		got := names(some)
		if list == "redislock" {
			var c []contender
			c, err = pick("contenders", contenders(site{}), list)
			got = names(c)
		}
		if err != nil || got != want {
			t.Errorf("%s picks %s, not %s: %v", list, got, want, err)
		}
	}
}

func TestRatiosAreToTheFloorAndTheBestOtherLibrary(t *testing.T) {
	entry := func(c contender, speed, wait float64) *result {
		return &result{contender: c, figures: figures{"cycles_per_s": speed, "wait_p50_us": wait}}
	}
	all := []*result{
		entry(contender{name: "rlock", module: ownModule}, 100, 10), entry(contender{name: "fairlock", module: ownModule}, 500, 1),
		entry(contender{name: "floor", floor: true}, 900, 1), entry(contender{name: "a"}, 50, 20), entry(contender{name: "b"}, 40, 5),
	}
	got := ratios(all[:], []metric{metrics[0], {"wait_p50_us", "wait", -1, medianOf, readable}})
	want := []string{"rlock to floor: cycles/s 0.11 x", "rlock to the best other library: cycles/s 2.00 x a, wait 2.00 x b",
		"fairlock to floor: cycles/s 0.56 x", "fairlock to the best other library: cycles/s 10 x a, wait 0.20 x b"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestRoundsBecomeMediansSumsAndMaxima(t *testing.T) {
	got := combine([]figures{{"cycles_per_s": 1, "wait_max_us": 7, "violations": 1}, {"cycles_per_s": 5, "wait_max_us": 3, "violations": 2}, {"cycles_per_s": 2}})
	if want := (figures{"cycles_per_s": 2, "wait_max_us": 7, "violations": 3}); !maps.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func TestQuantilesAreWithinOnePercent(t *testing.T) {
	var h histogram
	if h.quantile(.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	const n = 100_000
	for i := range n {
		h.add(time.Duration(i+1) * time.Microsecond)
	}
	for _, q := range []float64{.001, .5, .99, 1} {
		want := float64(n) * q * float64(time.Microsecond)
		if got := float64(h.quantile(q)); got < .99*want || got > 1.01*want {
			t.Errorf("quantile %v is %v, not %v", q, time.Duration(got), time.Duration(want))
		}
	}
	h.add(time.Hour) // beyond the last bucket
	if h.Max != time.Hour {
		t.Errorf("max %v", h.Max)
	}
}

func TestVersionsAreComparedByNumber(t *testing.T) {
	for version, want := range map[string]bool{"7.0.15": true, "7.0.5": true, "7.0.4": false, "6.2.20": false, "7.2": true, "8.10.1": true} {
		if got := atLeast(version, 7, 0, 5); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}

func TestCallsThatNeverReturnAreLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		never := make(chan struct{})
		defer close(never) // or the goroutine would outlive the test
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := inParallel(ctx, 2, 4, func(i int) error {
			if i == 1 {
				<-never
			}
			return nil
		})
		if !errors.Is(err, errNoReturn) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
