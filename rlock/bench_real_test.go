package rlock_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

var scriptTime = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// A part is a part of BenchmarkUncontended.
type part struct {
	name string
	do   func()
}

// named returns the parts of a map, sorted by name.
func named(of map[string]func()) (parts []part) {
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, part{"rlock, " + name, of[name]})
	}
	return parts
}

// BenchmarkUncontended measures a Lock and an Unlock in each way in which users write them. It compares them
// with two GETs, because a cycle sends two requests. It also reports the server's time for the scripts.
func BenchmarkUncontended(b *testing.B) {
	rdb := testredis.Start(b).Client(b)
	s, err := rlock.NewSession(rdb)
	testlock.Must(b, err)
	defer s.Close()
	cancelable, cancel := context.WithCancel(bg)
	defer cancel()

	get := func() { testlock.Must(b, rdb.Get(bg, "x").Err()) }
	testlock.Must(b, rdb.Set(bg, "x", "", 0).Err())
	cycle := func(l rlock.Locker, ctx context.Context) func() {
		return func() {
			_, h, err := l.Lock(ctx)
			testlock.Must(b, err)
			testlock.Must(b, h.Unlock(ctx))
		}
	}
	// many returns a function that uses one lock after another. So no lock is acquired while its release is
	// in flight.
	many := func(s *rlock.Session) func() {
		var locks []rlock.Locker
		for i := range 100 {
			locks = append(locks, rlock.New(s, fmt.Sprint("many", i)))
		}
		i := 0
		return func() {
			i++
			cycle(locks[i%len(locks)], bg)()
		}
	}
	for _, x := range append([]part{
		{"two GETs", func() { get(); get() }},
		{"two GETs, each in a goroutine", func() {
			for range 2 {
				done := make(chan struct{})
				go func() { defer close(done); get() }()
				<-done
			}
		}},
		{"rlock", cycle(rlock.New(s, "x"), bg)},
		{"rlock, cancelable", cycle(rlock.New(s, "x"), cancelable)},
		{"rlock, of many", many(s)},
		{"fairlock", cycle(fairlock.New(s, "x"), bg)},
		{"fairlock, cancelable", cycle(fairlock.New(s, "x"), cancelable)},
		{"rwlock, cancelable", cycle(rwlock.New(s, "x"), cancelable)},
		{"rwlock to read, cancelable", cycle(rwlock.New(s, "x").RLocker(), cancelable)},
		{"semaphore, cancelable", cycle(semaphore.New(s, "x", 5).Locker(1), cancelable)},
	}, named(idioms(b, func() *rlock.Mutex { return rlock.New(s, "x") }))...) {
		b.Run(x.name, func(b *testing.B) {
			x.do()
			testlock.Must(b, rdb.ConfigResetStat(bg).Err())
			b.ReportAllocs()
			for b.Loop() {
				x.do()
			}
			b.StopTimer()
			_, us := scriptMicros(b, rdb)
			b.ReportMetric(us/float64(b.N), "script-us/op")
		})
	}
}

// scriptMicros returns how many scripts the server has run, and their total time in µs.
func scriptMicros(b *testing.B, rdb *redis.Client) (scripts, us float64) {
	stats, err := rdb.Info(bg, "commandstats").Result()
	testlock.Must(b, err)
	m := scriptTime.FindStringSubmatch(stats)
	if m == nil {
		return 0, 0
	}
	scripts, err = strconv.ParseFloat(m[1], 64)
	testlock.Must(b, err)
	us, err = strconv.ParseFloat(m[2], 64)
	testlock.Must(b, err)
	return scripts, us
}

// BenchmarkSharing shows the effect of shared pipelines on goroutines that use different locks. An operation
// is a Lock and an Unlock.
func BenchmarkSharing(b *testing.B) {
	rdb := testredis.Start(b).Client(b)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for _, goroutines := range []int{8, 16, 24, 32, 64, 128, 512, 2000} {
		for _, x := range []struct {
			name     string
			batching int
		}{{"never", -1}, {"always", 0}, {"by default", 16}} {
			b.Run(fmt.Sprintf("%d/%s", goroutines, x.name), func(b *testing.B) {
				s := testlock.Batching(testlock.NewSession(b, rdb), x.batching)
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for i := range goroutines {
					wg.Go(func() {
						for m := rlock.New(s, fmt.Sprint("own", i)); left.Add(-1) >= 0; {
							_, h, err := m.Lock(ctx)
							if err == nil {
								err = h.Unlock(ctx)
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
