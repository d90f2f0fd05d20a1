package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// What users of Redisson's RFairLock reported; each would have been caught here.
// The numbers are those of its issue tracker.

func simulated(t *testing.T, test func(t *testing.T, server *miniredis.Miniredis, rdb *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		t.Cleanup(server.Close)
		rdb := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:1", // never dialed, but looked up
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, server, rdb)
	})
}

func TestRedisson1104TimeoutsOfWaitersDoNotDriftIntoTheFuture(t *testing.T) {
	simulated(t, func(t *testing.T, _ *miniredis.Miniredis, rdb *redis.Client) {
		s := newSession(t, rdb)
		m := fairlock.New(s, "x")
		_, hold, err := m.Lock(bg)
		must(t, err)
		// For an hour, waiters come and give up.
		for range 360 {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(10*time.Second))
			if !errors.Is(err, rlock.ErrLocked) {
				t.Fatal(err)
			}
		}
		start := time.Now()
		got := make(chan error)
		go func() {
			_, h, err := m.Lock(bg)
			if err == nil {
				err = h.Unlock(bg)
			}
			got <- err
		}()
		synctest.Wait()
		unlock(t, hold)
		must(t, <-got)
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
		sessions = append(sessions, newSession(t, rdb))
	}
	ctx, cancel := context.WithTimeout(bg, 4*patience)
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
	simulated(t, func(t *testing.T, _ *miniredis.Miniredis, rdb *redis.Client) {
		holder, waiter := newSession(t, rdb), newSession(t, rdb)
		_, hold, err := fairlock.New(holder, "x").Lock(bg)
		must(t, err)
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
		unlock(t, hold)
		wg.Wait()
		if fmt.Sprint(order) != "[0 1 2 3 4]" || time.Since(start) > time.Second {
			t.Errorf("after hours they were served %v, in %v", order, time.Since(start))
		}
	})
}

func TestRedisson3166ManyDeadEntriesDoNotBlockANewcomer(t *testing.T) {
	everyServer(t, func(t *testing.T, rdb *redis.Client) {
		past := float64(time.Now().Add(-time.Minute).UnixMicro())
		var dead []redis.Z
		for i := range 10_000 {
			dead = append(dead, redis.Z{Score: past, Member: fmt.Sprintf("33333333-0000-4000-8000-000000000000:%d", i)})
		}
		must(t, rdb.ZAdd(bg, queueKey, dead...).Err())
		must(t, rdb.ZAdd(bg, aliveKey, dead...).Err())
		_, hold, err := fairlock.New(newSession(t, rdb), "x").TryLock(bg) // one request
		must(t, err)
		if queued(t, rdb) != 0 {
			t.Errorf("%d dead entries are left", queued(t, rdb))
		}
		unlock(t, hold)
	})
}

func TestRedisson3730AHolderWhoseLeaseEndsWithoutUnlockDoesNotStopTheQueue(t *testing.T) {
	simulated(t, func(t *testing.T, server *miniredis.Miniredis, rdb *redis.Client) {
		// What a process leaves that died.
		server.HSet(lockKey, "44444444-0000-4000-8000-000000000000:1", "1", "t", "1", "s", "0")
		server.SetTTL(lockKey, 20*time.Second)
		s := newSession(t, rdb)
		start := time.Now()
		for range 3 {
			_, h, err := fairlock.New(s, "x").Lock(bg)
			must(t, err)
			unlock(t, h)
		}
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("the queue went on after %v; the lease was 20 s", took)
		}
	})
}

func TestRedisson4167AQueueWithoutAHolderIsServed(t *testing.T) {
	simulated(t, func(t *testing.T, server *miniredis.Miniredis, rdb *redis.Client) {
		a, b := newSession(t, rdb), newSession(t, rdb)
		_, hold, err := fairlock.New(a, "x").Lock(bg)
		must(t, err)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				_, h, err := fairlock.New(b, "x").Lock(bg)
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Unlock(bg); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		server.Del(lockKey) // and nobody is told
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("nobody held the lock for %v; the liveness time is 10 s", took)
		}
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Error(err)
		}
	})
}

func TestRedisson5019AnErrorDuringAcquisitionLeavesNoEntry(t *testing.T) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := server.Client(t)
	kind := kindOf(t)
	s := newSession(t, proxy.Client(t))
	unlock(t, lock(t, fairlock.New(s, "x")))
	hold := lock(t, fairlock.New(newSession(t, rdb), "x"))
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
	eventually(t, "no entry is left", func() bool { return queued(t, rdb) == 0 })
	unlock(t, hold)
	proxy.OnRequest(nil)
	unlock(t, lock(t, fairlock.New(s, "x")))
}
