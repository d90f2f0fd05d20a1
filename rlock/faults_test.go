package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: repeats
func TestAnUnlockWhoseReplyWasLostSucceedsThoughOthersHeldTheLockSince(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		b := testlock.Warm(t, rlock.New(testlock.NewSession(t, beside(t, w)), "x"))
		_, hold := testlock.Lock(t, a, bg)
		cut := false
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if !isScript(r, "release") {
				return faultproxy.Pass
			}
			if !cut {
				cut = true
				return faultproxy.CutReply
			}
			// Before the second copy arrives, another session holds the lock twice, and the second hold goes
			// on.
			for i := range 3 {
				_, theirs, err := b.TryLock(bg)
				if err == nil && i < 2 {
					err = theirs.Unlock(bg)
				}
				if err != nil {
					t.Error(err)
				}
				testlock.Keep(t, theirs)
			}
			return faultproxy.Pass
		})
		if err := hold.Unlock(bg); err != nil {
			t.Errorf("the unlock worked, but says %v", err)
		}
		if !testlock.Inspect(t, b).Held {
			t.Error("the second copy freed somebody else's lock")
		}
	})
}

func TestShutdownIsBoundedWhenRedisIsFrozen(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		ctx, _ := testlock.Lock(t, rlock.New(s, "x"), bg)
		w.Net.Freeze()
		bound, cancel := context.WithTimeout(bg, 50*time.Millisecond)
		defer cancel()
		testlock.WantError(t, "Shutdown", s.Shutdown(bound), context.DeadlineExceeded)
		if context.Cause(ctx) != rlock.ErrClosed {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		w.Net.Thaw()
	})
}

func TestAnUnlockThatIsNotTriedAgainSaysSo(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		const words = "not tried again: it may stay taken until its lease ends"
		rdb := beside(t, w)
		_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
		testlock.Must(t, rdb.Close())
		if err := hold.Unlock(bg); !errors.Is(err, redis.ErrClosed) || !strings.Contains(err.Error(), words) {
			t.Errorf("with a client that is closed: %v", err)
		}

		_, hold = testlock.Lock(t, rlock.New(testlock.NewSession(t, w.Client), "y"), bg)
		w.Net.Refuse(true)
		err := hold.Unlock(bg)
		if err == nil || strings.Contains(err.Error(), words) ||
			!strings.Contains(err.Error(), "the release failed, and is sent again in the background") {
			t.Errorf("in an outage: %v", err)
		}
		w.Net.Refuse(false)
	})
}

// A deferred Close drops its error, so Close also logs it.
func TestACloseThatLeavesLocksTakenLogsWhichAndWhy(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := beside(t, w)
		var log testlock.Log
		s := testlock.NewSession(t, rdb, rlock.WithLogger(log.Logger()))
		testlock.Lock(t, rlock.New(s, "x"), bg)
		testlock.Must(t, rdb.Close()) // as two defers in the wrong order do
		err := s.Close()
		testlock.WantError(t, "Close", err, redis.ErrClosed)
		for _, words := range []string{
			"level=WARN", "not all was given back", `lock \"x\"`, "close the session before its client",
		} {
			if log.Count(words) != 1 {
				t.Errorf("%s: %d times in: %s", words, log.Count(words), &log)
			}
		}

		log = testlock.Log{}
		s = testlock.NewSession(t, w.Client, rlock.WithLogger(log.Logger()))
		testlock.Lock(t, rlock.New(s, "y"), bg)
		testlock.Must(t, s.Close())
		if log.String() != "" {
			t.Errorf("a Close that gave all back logs: %s", &log)
		}
	})
}

// breaker counts failures as a circuit breaker does, which stops requests after some of them.
type breaker struct{ failures atomic.Int64 }

func (b *breaker) Allow() error { return nil }

func (b *breaker) ReportResult(err error) {
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		b.failures.Add(1)
	}
}

func TestAShortStallIsNoFailureToACircuitBreaker(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var b breaker
		rdb := w.Net.Client(t, func(o *redis.Options) { o.Limiter = &b })
		s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(5*time.Second))
		_, hold := testlock.Lock(t, rlock.New(s, "held"), bg)
		var all sync.WaitGroup
		for i := range 14 {
			all.Go(func() {
				m := rlock.New(s, fmt.Sprint(i))
				for range 50 {
					if err := testlock.Cycle(bg, m); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 3 {
			time.Sleep(10 * time.Millisecond)
			w.Net.Freeze()
			time.Sleep(40 * time.Millisecond)
			w.Net.Thaw()
		}
		all.Wait()
		if n := b.failures.Load(); n > 0 || hold.Err() != nil {
			t.Errorf("%d failures; the hold: %v", n, hold.Err())
		}
		testlock.Unlock(t, hold)
	})
}
