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
	alone   = 1 << 16 // weight of a writer, which is more than the number of goroutines
)

// A shape is the number of clients that want one lock, and the number of goroutines or threads of each
// client.
type shape struct{ clients, each int }

var (
	eight = shape{clients, perClient}
	one   = shape{1, clients * perClient}
)

// told has the results of one contender in one window, by the names of metrics.
type told map[string]float64

// A sharer is a contender in one of the benchmarks below.
type sharer struct {
	name string
	run  func(b *testing.B, addr, name string) told
}

// compareSharers measures contenders in turns, as BenchmarkCycles does, and reports the medians of the
// rounds. The last contender must be that of Lockline. The other contenders are in the JVM, so they run a few
// times before the first round.
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
			c := contenders[(k+round)%len(contenders)] // another contender begins in each round
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
		t["-in-use"] = min(1, inside/(permits*ns)) // a cycle that began in the window may end after it
	}
	return t
}

// visitors counts the goroutines of one contender that are inside the lock, and their cycles.
type visitors struct{ inside, violations, spent, cycles atomic.Int64 }

// visit adds weight to inside for the time linger. It counts a violation if inside is then above most.
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

// shareInGo returns the function of a contender in Go. It calls turn for each client. Then all goroutines of
// the client call the function that turn has returned, again and again, for the time of window.
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

// held returns the results of a lock or a semaphore without the context.
func held(_ context.Context, hold *rlock.Hold, err error) (*rlock.Hold, error) { return hold, err }

// BenchmarkReadMostly measures a read-write lock. About 95 of 100 cycles read, and the other cycles write. No
// goroutine or thread stays inside.
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

// BenchmarkSemaphore measures a semaphore with 4 permits. In each cycle, a goroutine or thread has one permit
// for 1 ms. The metric in-use is the share of the permits that were held, on average.
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
	latchAsleep  = 100 * time.Millisecond // time after which all waiters must be waiting
)

func latchRounds() int { return int(max(1, window()/latchAsleep)) }

// BenchmarkLatch measures a latch with a count of 3. One waiter of each of 100 clients waits for it. The
// result is the time from the call of the last count-down until the last waiter returns.
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
		if round > 0 { // clients connect in the first round
			took = append(took, float64(slices.MaxFunc(returns, time.Time.Compare).Sub(called)))
		}
	}
	slices.Sort(took)
	return told{"-ms": took[len(took)/2] / 1e6}
}
