//go:build nightly

package redisson

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

const (
	clients   = 8
	perClient = 4 // goroutines or threads of a client
)

// window returns the time for which a contender runs in its turn. With -short, the time is too short for a
// result, but long enough to show that the benchmark works.
func window() time.Duration {
	if testing.Short() {
		return 100 * time.Millisecond
	}
	return 2 * time.Second
}

// BenchmarkCycles measures how often clients*perClient goroutines or threads lock and unlock one lock.
// Redisson and Lockline take turns, each for the time of window. The results are the medians of the rounds.
// Before the first round, the contenders in the JVM run without a measurement, so that the JVM compiles their
// code.
//
//	LOCKLINE_REQUIRE_JVM=1 go test -tags nightly -run '^$' -bench Cycles -benchtime 5x ./interop/redisson
func BenchmarkCycles(b *testing.B) {
	needJVM(b)
	server := testredis.Start(b)
	jvm := dial(b, lease, server.Addr).thread("main")
	contenders := []contender{
		{"Redisson-RLock", inJVM(jvm, "lock")},
		{"Lockline-rlock", inGo(rlock.New)},
		{"Lockline-rlock-WithHandover(0)", inGo(rlock.New, rlock.WithHandover(0))},
		{"Redisson-fair", inJVM(jvm, "fair")},
		{"Lockline-fairlock", inGo(fairlock.New)},
	}
	rates := make([][]float64, len(contenders))
	for i := range 4 {
		for _, c := range []contender{contenders[0], contenders[3]} {
			c.cycles(b, server.Addr, fmt.Sprint("warm-", c.name, i))
		}
	}
	round := 0
	for b.Loop() {
		for k := range contenders {
			i := (k + round) % len(contenders) // another contender begins in each round
			rates[i] = append(rates[i], contenders[i].cycles(b, server.Addr, fmt.Sprint("x-", round, "-", i)))
		}
		round++
	}
	b.ReportMetric(0, "ns/op")
	for i, c := range contenders {
		slices.Sort(rates[i])
		b.Logf("%s: %.0f", c.name, rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], c.name+"/s")
	}
}

type contender struct {
	name   string
	cycles func(b *testing.B, addr, name string) float64 // a second
}

func inJVM(th thread, kind string) func(*testing.B, string, string) float64 {
	return func(b *testing.B, addr, name string) float64 {
		b.Helper()
		var n, ns float64
		_, err := fmt.Sscan(th.do("cycles", kind, name, clients, perClient, window().Milliseconds(),
			"redis://"+addr), &n, &ns)
		testlock.Must(b, err)
		return n / (ns / 1e9)
	}
}

func inGo(
	newMutex func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex, options ...rlock.SessionOption,
) func(*testing.B, string, string) float64 {
	return func(b *testing.B, addr, name string) float64 {
		b.Helper()
		var sessions []*rlock.Session
		for range clients {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { _ = rdb.Close() }()
			s, err := rlock.NewSession(rdb, options...)
			testlock.Must(b, err)
			defer func() { _ = s.Close() }()
			sessions = append(sessions, s)
		}
		var n atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for _, s := range sessions {
			m := newMutex(s, name)
			for range perClient {
				wg.Go(func() {
					for time.Since(began) < window() {
						_, hold, err := m.Lock(context.Background())
						if err == nil {
							err = hold.Unlock(context.Background())
						}
						if err != nil {
							b.Error(err)
							return
						}
						n.Add(1)
					}
				})
			}
		}
		wg.Wait()
		return float64(n.Load()) / time.Since(began).Seconds()
	}
}
