package rlock_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

var scriptTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// BenchmarkUncontended says what a lock and an unlock are made of: two requests, here GETs, the
// goroutine that each has where the caller's context can be canceled, and the scripts, whose
// time in the server is reported beside.
func BenchmarkUncontended(b *testing.B) {
	rdb := testredis.Start(b).Client(b)
	s, err := rlock.NewSession(rdb)
	must(b, err)
	defer s.Close()
	cancelable, cancel := context.WithCancel(bg)
	defer cancel()

	get := func() { must(b, rdb.Get(bg, "x").Err()) }
	must(b, rdb.Set(bg, "x", "", 0).Err())
	cycle := func(l rlock.Locker, ctx context.Context) func() {
		return func() {
			_, h, err := l.Lock(ctx)
			must(b, err)
			must(b, h.Unlock(ctx))
		}
	}
	for _, x := range []struct {
		name string
		do   func()
	}{
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
		{"fairlock", cycle(fairlock.New(s, "x"), bg)},
		{"fairlock, cancelable", cycle(fairlock.New(s, "x"), cancelable)},
	} {
		b.Run(x.name, func(b *testing.B) {
			x.do()
			must(b, rdb.ConfigResetStat(bg).Err())
			b.ReportAllocs()
			for b.Loop() {
				x.do()
			}
			b.StopTimer()
			b.ReportMetric(scriptMicros(b, rdb)/float64(b.N), "script-us/op")
		})
	}
}

func scriptMicros(b *testing.B, rdb *redis.Client) float64 {
	stats, err := rdb.Info(bg, "commandstats").Result()
	must(b, err)
	m := scriptTime.FindStringSubmatch(stats)
	if m == nil {
		return 0
	}
	us, err := strconv.ParseFloat(m[1], 64)
	must(b, err)
	return us
}

// BenchmarkSharing says what it brings that goroutines with locks of their own share pipelines. An operation is a lock and an unlock.
func BenchmarkSharing(b *testing.B) {
	rdb := testredis.Start(b).Client(b)
	ctx, cancel := context.WithCancel(bg)
	defer cancel()
	for _, goroutines := range []int{8, 16, 24, 32, 128} {
		for _, x := range []struct {
			name     string
			batching rlock.SessionOption
		}{{"never", rlock.WithBatching(-1)}, {"always", rlock.WithBatching(0)}, {"by default", nil}} {
			b.Run(fmt.Sprintf("%d/%s", goroutines, x.name), func(b *testing.B) {
				s, err := rlock.NewSession(rdb, x.batching)
				must(b, err)
				defer s.Close()
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
