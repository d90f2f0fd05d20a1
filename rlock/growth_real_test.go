package rlock_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// BenchmarkGrowth measures a cycle with many waiters, with many dead holders, and with many remembered locks.
// It reports the scripts and the server's time of a cycle, which must not grow with these numbers. There are
// at most 1,000 sessions, so 10,000 waiters are ten goroutines of each session. Run it with a fixed number of
// cycles, such as -benchtime 20000x.
func BenchmarkGrowth(b *testing.B) {
	server := testredis.Start(b)
	numbers := []int{10, 1000, 10_000}
	for _, of := range []struct {
		name string
		lock func(s *rlock.Session, waiter int) rlock.Locker
	}{
		{"rlock", func(s *rlock.Session, _ int) rlock.Locker { return rlock.New(s, "x") }},
		{"fairlock", func(s *rlock.Session, _ int) rlock.Locker { return fairlock.New(s, "x") }},
		{"semaphore", func(s *rlock.Session, _ int) rlock.Locker {
			return semaphore.New(s, "x", 5).Locker(1)
		}},
		{"rwlock", func(s *rlock.Session, waiter int) rlock.Locker {
			l := rwlock.New(s, "x")
			if waiter%2 == 0 {
				return l.RLocker()
			}
			return l
		}},
	} {
		for _, n := range numbers {
			b.Run(fmt.Sprintf("%s/waiters=%d", of.name, n), func(b *testing.B) {
				rdb := server.Client(b)
				var lockers []rlock.Locker
				var sessions []*rlock.Session
				for i := range n {
					if i < 1000 {
						sessions = append(sessions, testlock.NewSession(b, rdb))
					}
					lockers = append(lockers, of.lock(sessions[i%len(sessions)], i))
				}
				measure(b, rdb, lockers)
			})
		}
	}
	for _, n := range numbers {
		b.Run(fmt.Sprintf("semaphore/dead=%d", n), func(b *testing.B) {
			rdb := server.Client(b)
			s := testlock.NewSession(b, rdb)
			dead := semaphore.New(s, fmt.Sprint("dead", n), n+1).Locker(1)
			each(b, n, func(int) error {
				_, _, err := dead.Lock(bg, rlock.WithLease(5*time.Second))
				return err
			})
			time.Sleep(5 * time.Second) // until the leases have ended by the server's clock
			measure(b, rdb, []rlock.Locker{dead})
		})
		b.Run(fmt.Sprintf("latch/counted=%d", n), func(b *testing.B) {
			rdb := server.Client(b)
			l := latch.New(testlock.NewSession(b, rdb), fmt.Sprint("counted", n, "+", b.N))
			if _, err := l.TrySet(bg, 2*n+b.N); err != nil {
				b.Fatal(err)
			}
			each(b, n, func(int) error { return l.CountDown(bg) })
			testlock.Must(b, rdb.ConfigResetStat(bg).Err())
			for b.Loop() {
				testlock.Must(b, l.CountDown(bg))
			}
			report(b, rdb)
		})
	}
}

// each calls f for the numbers from 0 to n-1, in 100 goroutines.
func each(b *testing.B, n int, f func(int) error) {
	var all sync.WaitGroup
	for g := range 100 {
		all.Go(func() {
			for i := g; i < n; i += 100 {
				if err := f(i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// measure runs b.N cycles, and measures them. Before, each goroutine makes one cycle that does not count.
func measure(b *testing.B, rdb *redis.Client, lockers []rlock.Locker) {
	var left atomic.Int64
	var warm, all sync.WaitGroup
	begin := make(chan struct{})
	warm.Add(len(lockers))
	for _, l := range lockers {
		all.Go(func() {
			for i := 0; ; i++ {
				if i == 1 {
					warm.Done()
					<-begin
				}
				if i > 0 && left.Add(-1) < 0 {
					return
				}
				_, h, err := l.Lock(bg)
				if err == nil {
					err = h.Unlock(bg)
				}
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	warm.Wait()
	testlock.Must(b, rdb.ConfigResetStat(bg).Err())
	left.Store(int64(b.N))
	b.ResetTimer()
	close(begin)
	all.Wait()
	report(b, rdb)
}

// report reports the number of scripts in an operation, and their time.
func report(b *testing.B, rdb *redis.Client) {
	b.StopTimer()
	scripts, us := scriptMicros(b, rdb)
	b.ReportMetric(scripts/float64(b.N), "scripts/op")
	b.ReportMetric(us/float64(b.N), "script-us/op")
}
