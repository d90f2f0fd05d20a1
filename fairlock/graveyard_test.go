package fairlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// What users of Redisson's RFairLock reported; each would have been caught here.
// The numbers are those of its issue tracker.

func TestRedisson1104TimeoutsOfWaitersDoNotDriftIntoTheFuture(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		m := w.lock()
		hold := testlock.Take(t, m)
		// For ten minutes, waiters come and give up.
		for range 60 {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(10*time.Second))
			testlock.WantError(t, "Lock", err, rlock.ErrLocked)
		}
		start := time.Now()
		waits := testlock.Join(bg, m)
		testlock.Unlock(t, hold)
		testlock.Served(t, waits)
		if took := time.Since(start); took > time.Second {
			t.Errorf("the queue stalled for %v", took)
		}
	})
}

func TestRedisson2278And2883FiveHundredThreadsAllAcquire(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		const goroutines = 500
		all := make([]*rlock.Mutex, 5)
		for i := range all {
			all[i] = w.lock()
		}
		inside, done := 0, make(chan error) // inside is guarded by the lock
		for i := range goroutines {
			go func() {
				done <- all[i%len(all)].Do(bg, func(context.Context) error {
					if inside++; inside != 1 {
						t.Error("two are inside")
					}
					time.Sleep(time.Millisecond)
					inside--
					return nil
				})
			}()
		}
		for range goroutines {
			testlock.Must(t, testlock.Receive(t, "all acquire", done))
		}
	})
}

func TestRedisson3004AWaiterThatOutlivesAllTimeoutsIsServed(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		hold, m := testlock.Take(t, w.lock()), w.lock()
		var waits []<-chan testlock.Grant
		for range 5 {
			waits = append(waits, testlock.Join(bg, m))
		}
		time.Sleep(20 * time.Minute) // 120 times its liveness
		start := time.Now()
		testlock.Unlock(t, hold)
		testlock.Served(t, waits...)
		if took := time.Since(start); took > time.Second {
			t.Errorf("after hours it took %v", took)
		}
	})
}

func TestRedisson3730AHolderWhoseLeaseEndsWithoutUnlockDoesNotStopTheQueue(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		// What a process leaves that died.
		w.HSet(lockKey, "44444444-0000-4000-8000-000000000000:1", "1", "t", "1", "s", "0")
		w.SetTTL(lockKey, 20*time.Second)
		start := time.Now()
		m := w.lock()
		testlock.Served(t, testlock.Join(bg, m), testlock.Join(bg, m), testlock.Join(bg, m))
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("the queue went on after %v; the lease was 20 s", took)
		}
	})
}

func TestRedisson4167AQueueWithoutAHolderIsServed(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		hold, m := testlock.Take(t, w.lock()), w.lock()
		var waits []<-chan testlock.Grant
		for range 5 {
			waits = append(waits, testlock.Join(bg, m))
		}
		w.Del(lockKey) // and nobody is told
		start := time.Now()
		testlock.Served(t, waits...)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("nobody held the lock for %v; the liveness time is 10 s", took)
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestRedisson5019AnErrorDuringAcquisitionLeavesNoEntry(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, m := w.lockBeside(), w.lock()
		hold := testlock.Take(t, holder)
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if w.kind(*r) == "lock" {
				return faultproxy.CutReply // executed: it stands in the queue
			}
			return faultproxy.Pass
		})
		_, _, err := m.Lock(bg)
		if err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Errorf("Lock whose replies are all lost: %v", err)
		}
		testlock.Eventually(t, "no entry is left", func() bool { return len(testlock.Inspect(t, holder).Queue) == 0 })
		testlock.Unlock(t, hold)
		w.Net.OnRequest(nil)
		testlock.Works(t, m)
	})
}
