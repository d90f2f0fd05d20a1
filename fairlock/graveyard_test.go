package fairlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Each test reproduces a problem that users of Redisson's RFairLock have reported. The numbers are of
// Redisson's issue tracker.

func TestRedisson4167AQueueWithoutAHolderIsServed(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		hold, m := testlock.Take(t, w.lock()), w.lock()
		var waits []<-chan testlock.Grant
		for range 5 {
			waits = append(waits, testlock.Join(bg, m))
		}
		w.Del(lockKey) // no message is sent
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
			if w.kind(*r) == "acquire" {
				return faultproxy.CutReply // the attempt is queued, but the reply is lost
			}
			return faultproxy.Pass
		})
		_, _, err := m.Lock(bg)
		if err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Errorf("Lock whose replies are all lost: %v", err)
		}
		testlock.Eventually(t, "no entry is left", func() bool {
			return len(testlock.Inspect(t, holder).Queue) == 0
		})
		testlock.Unlock(t, hold)
		w.Net.OnRequest(nil)
		testlock.Works(t, m)
	})
}
