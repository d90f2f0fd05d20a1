package rlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// A TryLock that waits for a lost reply does not delay other calls of its session.
func TestOthersDoNotWaitForATry(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Net.Client(t)), "x"))
		var lost atomic.Bool
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if testlock.Script(r.Script()) == "acquire" && lost.CompareAndSwap(false, true) {
				return faultproxy.Swallow
			}
			return faultproxy.Pass
		})
		ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
		defer cancel()
		hangs := make(chan error)
		go func() {
			_, _, err := m.TryLock(ctx)
			hangs <- err
		}()
		time.Sleep(10 * time.Millisecond)
		begun := time.Now()
		_, hold := testlock.TryLock(t, m, bg)
		testlock.Unlock(t, hold)
		_, hold = testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		if took := time.Since(begun); took != 0 {
			t.Errorf("after %v", took)
		}
		if err := <-hangs; !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, rlock.ErrLocked) {
			t.Errorf("the try without an answer: %v", err)
		}
	})
}

func TestTriesThatAreNotAnsweredDoNotSayLocked(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Net.Client(t))
		m := testlock.Warm(t, rlock.New(s, "x"))
		w.Down(true)
		testlock.Silence(t, s, w.Net)
		errs := make(chan error)
		begun := time.Now()
		for range 3 {
			go func() {
				ctx, cancel := context.WithTimeout(bg, time.Second)
				defer cancel()
				_, _, err := m.TryLock(ctx)
				errs <- err
			}()
		}
		for range 3 {
			err := <-errs
			took := time.Since(begun)
			locked := errors.Is(err, rlock.ErrLocked)
			if !errors.Is(err, context.DeadlineExceeded) || locked || took != time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		}
		w.Down(false)
		begun = time.Now()
		_, hold := testlock.Lock(t, m, bg)
		if took := time.Since(begun); took != 0 {
			t.Errorf("Lock after that took %v", took)
		}
		testlock.Unlock(t, hold)
	})
}
