package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// What users of Redisson's RFairLock reported; each would have been caught here.
// The numbers are those of its issue tracker.

func TestRedisson1104TimeoutsOfWaitersDoNotDriftIntoTheFuture(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		m := fairlock.New(s, "x")
		_, hold := testlock.Lock(t, m, bg)
		// For an hour, waiters come and give up.
		for range 360 {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(10*time.Second))
			if !errors.Is(err, rlock.ErrLocked) {
				t.Fatal(err)
			}
		}
		start := time.Now()
		got := make(chan error, 1)
		go func() { got <- testlock.Cycle(bg, m) }()
		synctest.Wait()
		testlock.Unlock(t, hold)
		testlock.Must(t, <-got)
		if took := time.Since(start); took > time.Second {
			t.Errorf("the queue stalled for %v", took)
		}
	})
}

func TestRedisson2278And2883FiveHundredThreadsAllAcquire(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	var sessions []*rlock.Session
	for range 5 {
		sessions = append(sessions, testlock.NewSession(t, rdb))
	}
	ctx, cancel := context.WithTimeout(bg, 4*testlock.Patience)
	defer cancel()
	var wg sync.WaitGroup
	var inside, done atomic.Int32
	for i := range 500 {
		wg.Go(func() {
			err := fairlock.New(sessions[i%5], "x").Do(ctx, func(context.Context) error {
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				done.Add(1)
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if done.Load() != 500 {
		t.Errorf("%d acquired", done.Load())
	}
}

func TestRedisson3004AWaiterThatOutlivesAllTimeoutsIsServed(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		holder, waiter := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		_, hold := testlock.Lock(t, fairlock.New(holder, "x"), bg)
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				_, h, err := fairlock.New(waiter, "x").Lock(bg)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				if err := h.Unlock(bg); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(3 * time.Hour)
		start := time.Now()
		testlock.Unlock(t, hold)
		wg.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4]" || time.Since(start) > time.Second {
			t.Errorf("after hours they were served %v, in %v", order, time.Since(start))
		}
	})
}

func TestRedisson3166ManyDeadEntriesDoNotBlockANewcomer(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		past := float64(time.Now().Add(-time.Minute).UnixMicro())
		var dead []redis.Z
		for i := range 10_000 {
			dead = append(dead, redis.Z{Score: past, Member: fmt.Sprintf("33333333-0000-4000-8000-000000000000:%d", i)})
		}
		testlock.Must(t, rdb.ZAdd(bg, queueKey, dead...).Err())
		testlock.Must(t, rdb.ZAdd(bg, aliveKey, dead...).Err())
		_, hold := testlock.TryLock(t, fairlock.New(testlock.NewSession(t, rdb), "x"), bg) // one request
		if queued(t, rdb) != 0 {
			t.Errorf("%d dead entries are left", queued(t, rdb))
		}
		testlock.Unlock(t, hold)
	})
}

func TestRedisson3730AHolderWhoseLeaseEndsWithoutUnlockDoesNotStopTheQueue(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		// What a process leaves that died.
		w.HSet(lockKey, "44444444-0000-4000-8000-000000000000:1", "1", "t", "1", "s", "0")
		w.SetTTL(lockKey, 20*time.Second)
		s := testlock.NewSession(t, w.Client)
		start := time.Now()
		for range 3 {
			_, h := testlock.Lock(t, fairlock.New(s, "x"), bg)
			testlock.Unlock(t, h)
		}
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("the queue went on after %v; the lease was 20 s", took)
		}
	})
}

func TestRedisson4167AQueueWithoutAHolderIsServed(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		_, hold := testlock.Lock(t, fairlock.New(a, "x"), bg)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if err := testlock.Cycle(bg, fairlock.New(b, "x")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		w.Del(lockKey) // and nobody is told
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("nobody held the lock for %v; the liveness time is 10 s", took)
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestRedisson5019AnErrorDuringAcquisitionLeavesNoEntry(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	kind := kindOf(t)
	s := testlock.NewSession(t, proxy.Client(t))
	testlock.Works(t, fairlock.New(s, "x"))
	hold := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if kind(*r) == "lock" {
			return faultproxy.CutReply // executed: it stands in the queue
		}
		return faultproxy.Pass
	})
	_, _, err := fairlock.New(s, "x").Lock(bg)
	if err == nil || errors.Is(err, rlock.ErrLocked) {
		t.Errorf("Lock whose replies are all lost: %v", err)
	}
	testlock.Eventually(t, "no entry is left", func() bool { return queued(t, rdb) == 0 })
	testlock.Unlock(t, hold)
	proxy.OnRequest(nil)
	testlock.Works(t, fairlock.New(s, "x"))
}
