//go:build nightly

package redisson

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

const (
	permits = 4
	alone   = 1 << 16 // what a writer adds to inside: more than there are goroutines
)

// shape is how many want one thing.
type shape struct{ clients, each int }

var (
	eight = shape{clients, perClient}
	one   = shape{1, clients * perClient}
)

// told is what one window of one contender shows, by the names of metrics.
type told map[string]float64

// sharer is one contender in one of the benchmarks below.
type sharer struct {
	name string
	run  func(b *testing.B, addr, name string) told
}

// compareSharers is as BenchmarkCycles: all in turns, after a warm-up of those in the JVM, medians of the
// rounds. The last one is of Lockline.
func compareSharers(b *testing.B, server *testredis.Server, contenders []sharer) {
	b.Helper()
	for i := range 3 {
		for _, c := range contenders[:len(contenders)-1] {
			c.run(b, server.Addr, fmt.Sprint("warm-", i, "-", c.name))
		}
	}
	all := map[string][]float64{}
	round := 0
	for b.Loop() {
		for k := range contenders {
			c := contenders[(k+round)%len(contenders)] // nobody is always first
			for unit, v := range c.run(b, server.Addr, fmt.Sprint("x-", round, "-", c.name)) {
				all[c.name+unit] = append(all[c.name+unit], v)
			}
		}
		round++
	}
	b.ReportMetric(0, "ns/op")
	for metric, values := range all {
		slices.Sort(values)
		b.ReportMetric(values[len(values)/2], metric)
	}
}

func shareInJVM(th thread, kind string, of shape) func(*testing.B, string, string) told {
	return func(b *testing.B, addr, name string) told {
		b.Helper()
		var n, ns, inside float64
		var violations int64
		_, err := fmt.Sscan(th.do("share", kind, name, of.clients, of.each, window().Milliseconds(), permits,
			"redis://"+addr), &n, &ns, &inside, &violations)
		testlock.Must(b, err)
		return shareOf(b, n, ns, inside, violations)
	}
}

func shareOf(b *testing.B, n, ns, inside float64, violations int64) told {
	b.Helper()
	if violations > 0 {
		b.Errorf("%d times somebody was inside who should not have been", violations)
	}
	t := told{"/s": n / (ns / 1e9)}
	if inside > 0 {
		t["-in-use"] = min(1, inside/(permits*ns)) // a cycle that began in time may end after it
	}
	return t
}

// visitors are inside, of one contender.
type visitors struct{ inside, violations, spent, cycles atomic.Int64 }

// visit adds weight to what is inside, for that long.
func (v *visitors) visit(weight, most int64, linger time.Duration) {
	if v.inside.Add(weight) > most {
		v.violations.Add(1)
	}
	if linger > 0 {
		began := time.Now()
		time.Sleep(linger)
		v.spent.Add(int64(time.Since(began)))
	}
	v.inside.Add(-weight)
	v.cycles.Add(1)
}

// shareInGo has each goroutine do what turn says over and over.
func shareInGo(
	of shape, turn func(s *rlock.Session, name string, v *visitors) func() error,
) func(*testing.B, string, string) told {
	return func(b *testing.B, addr, name string) told {
		b.Helper()
		var v visitors
		var turns []func() error
		for range of.clients {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer func() { _ = rdb.Close() }()
			s, err := rlock.NewSession(rdb)
			testlock.Must(b, err)
			defer func() { _ = s.Close() }()
			turns = append(turns, turn(s, name, &v))
		}
		var wg sync.WaitGroup
		began := time.Now()
		for _, once := range turns {
			for range of.each {
				wg.Go(func() {
					for time.Since(began) < window() {
						if err := once(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		return shareOf(b, float64(v.cycles.Load()), float64(time.Since(began)), float64(v.spent.Load()),
			v.violations.Load())
	}
}

// held is what a lock and a semaphore return.
func held(_ context.Context, hold *rlock.Hold, err error) (*rlock.Hold, error) { return hold, err }

// BenchmarkReadMostly: 95 of 100 cycles read, the others write, and nobody stays inside.
//
//	LOCKLINE_REQUIRE_JVM=1 go test -tags nightly -run '^$' \
//		-bench 'ReadMostly|Semaphore|Latch' -benchtime 5x ./interop/redisson
func BenchmarkReadMostly(b *testing.B) {
	needJVM(b)
	server := testredis.Start(b)
	compareSharers(b, server, []sharer{
		{"Redisson-RReadWriteLock", shareInJVM(dial(b, lease, server.Addr).thread("main"),
			"readWrite", eight)},
		{"Lockline-rwlock", shareInGo(eight, func(s *rlock.Session, name string, v *visitors) func() error {
			m := rwlock.New(s, name)
			return func() error {
				take, weight, most := m.Lock, int64(alone), int64(alone)
				if rand.IntN(100) < 95 {
					take, weight, most = m.RLock, 1, alone-1
				}
				hold, err := held(take(bg))
				if err != nil {
					return err
				}
				v.visit(weight, most, 0)
				return hold.Unlock(bg)
			}
		})},
	})
}

// BenchmarkSemaphore: a permit of 4 each, for 1 ms. in-use is the share of the permits that somebody has.
func BenchmarkSemaphore(b *testing.B) {
	needJVM(b)
	for _, of := range []shape{one, eight} {
		b.Run(fmt.Sprintf("%dx%d", of.clients, of.each), func(b *testing.B) {
			server := testredis.Start(b)
			jvm := dial(b, lease, server.Addr).thread("main")
			compareSharers(b, server, []sharer{
				{"Redisson-RSemaphore", shareInJVM(jvm, "semaphore", of)},
				{"Redisson-RPermitExpirableSemaphore", shareInJVM(jvm, "expirable", of)},
				{"Lockline-semaphore", shareInGo(of, func(
					s *rlock.Session, name string, v *visitors,
				) func() error {
					sem := semaphore.New(s, name, permits)
					return func() error {
						hold, err := held(sem.Acquire(bg, 1))
						if err != nil {
							return err
						}
						v.visit(1, permits, time.Millisecond)
						return hold.Unlock(bg)
					}
				})},
			})
		})
	}
}

const (
	latchWaiters = 100
	latchCount   = 3
	latchAsleep  = 100 * time.Millisecond // all waiters have asked by then
)

func latchRounds() int { return int(max(1, window()/latchAsleep)) }

// BenchmarkLatch: a waiter of each of 100 clients, from the call of the last of 3 count-downs to the last
// return.
func BenchmarkLatch(b *testing.B) {
	needJVM(b)
	server := testredis.Start(b)
	jvm := dial(b, lease, server.Addr).thread("main")
	compareSharers(b, server, []sharer{
		{"Redisson-RCountDownLatch", func(b *testing.B, addr, name string) told {
			return told{"-ms": float64(jvm.number("latch", name, latchWaiters, latchRounds(), latchCount,
				latchAsleep.Milliseconds(), "redis://"+addr)) / 1e6}
		}},
		{"Lockline-latch", latchInGo},
	})
}

func latchInGo(b *testing.B, addr, name string) told {
	b.Helper()
	var sessions []*rlock.Session
	for range latchWaiters + 1 {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer func() { _ = rdb.Close() }()
		s, err := rlock.NewSession(rdb)
		testlock.Must(b, err)
		defer func() { _ = s.Close() }()
		sessions = append(sessions, s)
	}
	var took []float64
	for round := range latchRounds() + 1 {
		own := fmt.Sprint(name, "-", round)
		counter := latch.New(sessions[latchWaiters], own)
		_, err := counter.TrySet(bg, latchCount)
		testlock.Must(b, err)
		returns := make([]time.Time, latchWaiters)
		var wg sync.WaitGroup
		for i := range returns {
			wg.Go(func() {
				if err := latch.New(sessions[i], own).Wait(bg); err != nil {
					b.Error(err)
				}
				returns[i] = time.Now()
			})
		}
		for range latchCount - 1 {
			testlock.Must(b, counter.CountDown(bg))
		}
		<-time.After(latchAsleep)
		called := time.Now()
		testlock.Must(b, counter.CountDown(bg))
		wg.Wait()
		if first := slices.MinFunc(returns, time.Time.Compare); first.Before(called) {
			b.Error("a waiter returned before the last count-down")
		}
		if round > 0 { // connections are made in the first
			took = append(took, float64(slices.MaxFunc(returns, time.Time.Compare).Sub(called)))
		}
	}
	slices.Sort(took)
	return told{"-ms": took[len(took)/2] / 1e6}
}
