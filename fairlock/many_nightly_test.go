//go:build nightly

package fairlock_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
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

var sessions = flag.Int("sessions", 200,
	"how many wait for one lock in TestManySessionsAreServedInOrder; 10000 need as many open files")

func TestManySessionsAreServedInOrder(t *testing.T) {
	t.Parallel()
	n := *sessions
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		server := testredis.Start(t, "--maxclients", "20000")
		rdb := server.Client(t)
		hold := testlock.Take(t, newMutex(testlock.NewSession(t, rdb), "x"))
		shared := server.Client(t, func(o *redis.Options) { o.PoolSize = 10 })
		memory := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc + m.StackInuse
		}
		before := memory()
		var (
			all    sync.WaitGroup
			mu     sync.Mutex // guards served
			served []string   // sessions
		)
		for range n {
			s := testlock.NewSession(t, shared, longLiveness)
			all.Go(func() {
				err := newMutex(s, "x").Do(bg, func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					served = append(served, s.ID())
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		testlock.Eventually(t, "all wait, and listen", func() bool { return marked(rdb, letter) == int64(n) })
		each := (memory() - before) / uint64(n)
		var order []string
		for _, attempt := range rdb.ZRange(bg, "lockline:"+letter+":{x}:q", 0, -1).Val() {
			session, _, _ := strings.Cut(attempt, ":")
			order = append(order, session)
		}
		testlock.Must(t, rdb.ConfigResetStat(bg).Err())
		start := time.Now()
		testlock.Unlock(t, hold)
		all.Wait()
		took := time.Since(start)
		if len(served) != n {
			t.Fatalf("%d of %d were served", len(served), n)
		}
		for i := range order {
			if order[i] != served[i] {
				t.Errorf("number %d in the queue was served as number %d", i, slices.Index(served, order[i]))
				break
			}
		}
		stats := rdb.Info(bg, "commandstats").Val()
		_, calls, _ := strings.Cut(stats, "cmdstat_evalsha:calls=")
		calls, _, _ = strings.Cut(calls, ",")
		t.Logf("%d sessions in %v, %d bytes each as they wait, %s scripts", n, took, each, calls)
	})
}

// Proves: no trace
func TestACancelStormLeavesNoQueueAndNoLock(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	rnd := rand.New(rand.NewPCG(7, 8))
	var all []*rlock.Mutex
	for range 4 {
		all = append(all, fairlock.New(testlock.NewSession(t, rdb), "x"))
	}
	var wg sync.WaitGroup
	var held, canceled atomic.Int64
	room := make(chan struct{}, 40)
	for i := range 5_000 {
		room <- struct{}{}
		patience := time.Duration(rnd.Int64N(int64(60 * time.Millisecond)))
		wg.Go(func() {
			defer func() { <-room }()
			ctx, cancel := context.WithTimeout(bg, patience)
			defer cancel()
			switch err := testlock.Cycle(ctx, all[i%4]); {
			case err == nil:
				held.Add(1)
			case errors.Is(err, context.DeadlineExceeded):
				canceled.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if held.Load() == 0 || canceled.Load() == 0 {
		t.Errorf("%d held, %d canceled: a storm of one kind only proves nothing",
			held.Load(), canceled.Load())
	}
	testlock.OnlyTokens(t, rdb)
	testlock.Works(t, all[0])
	testlock.NoSubscriptions(t, rdb)
}
