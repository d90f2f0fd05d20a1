package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testredis"
)

const briefly = 50 * time.Millisecond

func TestEveryContenderExcludesInEveryScenario(t *testing.T) {
	url := "redis://" + testredis.Start(t).Addr
	version, err := serverVersion(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		for _, c := range contenders(version) {
			t.Run(s.name+"/"+c.name, func(t *testing.T) {
				if reason := c.absence(s); reason != "" {
					t.Skip(reason)
				}
				got, err := s.run(t.Context(), c, url, briefly)
				if err != nil {
					t.Fatal(err)
				}
				if got.violations != 0 {
					t.Errorf("%d violations of mutual exclusion", got.violations)
				}
				if got.cycles <= 0 || got.p50 <= 0 || got.p99 < got.p50 || got.max < got.p99 || got.allocs <= 0 || got.bytes <= 0 {
					t.Errorf("not plausible: %+v", got)
				}
				if got.minShare > 1 || got.maxShare < 1 {
					t.Errorf("shares from %v to %v do not enclose the mean", got.minShare, got.maxShare)
				}
				if c.module == "github.com/lockline/lockline" && got.stuck != 0 {
					t.Errorf("%d waiters were stuck", got.stuck)
				}
			})
		}
	}
}

// leaky lets every nth caller in without asking.
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

func TestABrokenLockIsCaught(t *testing.T) {
	for name, n := range map[string]int64{"that excludes nobody": 1, "that lets one in 50 in": 50} {
		t.Run(name, func(t *testing.T) {
			broken := leaky{mu: new(sync.Mutex), n: n, all: new(atomic.Int64)}
			c := contender{name: "broken", dial: func(string) (client, error) { return &broken, nil }}
			got, err := scenarios[1].run(t.Context(), c, "", briefly)
			if err != nil {
				t.Fatal(err)
			}
			if got.violations == 0 {
				t.Error("nothing was noticed")
			}
		})
	}
	t.Run("but not one that excludes", func(t *testing.T) {
		sound := leaky{mu: new(sync.Mutex), n: 1 << 62, all: new(atomic.Int64)}
		c := contender{name: "sound", dial: func(string) (client, error) { return &sound, nil }}
		got, err := scenarios[1].run(t.Context(), c, "", briefly)
		if err != nil {
			t.Fatal(err)
		}
		if got.violations != 0 {
			t.Errorf("%d violations", got.violations)
		}
	})
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

func (free) lock(context.Context) error   { return nil }
func (free) unlock(context.Context) error { return nil }

type deaf struct{ free }

func (deaf) lock(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAWaiterThatNobodyWakesIsReported(t *testing.T) {
	c := contender{name: "unequal", dial: func(string) (client, error) { return &unequal{}, nil }}
	got, err := scenario{"pair", "", 1, 2}.run(t.Context(), c, "", briefly)
	if err != nil {
		t.Fatal(err)
	}
	if got.stuck != 1 || got.minShare != 0 {
		t.Errorf("%d stuck, least share %v", got.stuck, got.minShare)
	}
}

func TestTheProgramStartsItsServerAndReports(t *testing.T) {
	testredis.Start(t) // skips without a binary
	file := filepath.Join(t.TempDir(), "results.json")
	var out, errOut bytes.Buffer
	args := []string{"--rounds", "2", "--for", "20ms", "--scenario", "solo,hot8", "--contender", "raw, rlock,fairlock", "--json", file}
	if err := run(t.Context(), args, &out, &errOut); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"solo:", "hot8:", "rlock", "fairlock", "without raw", "go-redis/v9 v9.", "violations", "Redis "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in the table:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), "hot1") || strings.Contains(out.String(), "redsync") {
		t.Errorf("more than what was asked for:\n%s", &out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Results) != 5 || len(got.Absent) != 1 || got.Machine.Cores == 0 {
		t.Errorf("%s", b)
	}
	for _, x := range got.Results {
		if len(x.Rounds) != 2 || x.CyclesPerS <= 0 || (x.MinShare != nil) != (x.Scenario == "hot8") {
			t.Errorf("%+v", x)
		}
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, args := range []string{"--scenario hot9", "--contender etcd", "--rounds 0", "--for 0s", "extra", "--redis nonsense"} {
		var out bytes.Buffer
		if err := run(t.Context(), strings.Fields(args), &out, &out); err == nil {
			t.Errorf("%s: no error", args)
		}
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
	if h.max != time.Hour {
		t.Errorf("max %v", h.max)
	}
}

func TestVersionsAreComparedByNumber(t *testing.T) {
	for version, want := range map[string]bool{"7.0.15": true, "7.0.5": true, "7.0.4": false, "6.2.20": false, "7.2": true, "8.10.1": true} {
		if got := atLeast(version, 7, 0, 5); got != want {
			t.Errorf("%s: %v", version, got)
		}
	}
}
