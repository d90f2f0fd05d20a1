package rlock_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestOnlyOneAbandonedRequestIsUnderWayForALock(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		proxy := w.Net
		// Before the first reply of Redis, calls also return when their contexts end.
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		var asked atomic.Int32
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "acquire") {
				asked.Add(1)
				return faultproxy.Swallow
			}
			return faultproxy.Pass
		})
		for range 5 {
			ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
			if _, _, err := m.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if n := asked.Load(); n > 1 {
			t.Errorf("%d abandoned requests for one lock at one time", n)
		}
		proxy.OnRequest(nil)
		testlock.Works(t, m)
	})
}

func TestALateCopyThatIsGrantedAfterAForcedUnlockEndsWithItsAttempt(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		proxy := faultproxy.InMemory(t, w.Dial)
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)), "x"))
		operator := rlock.New(testlock.NewSession(t, w.Client), "x")
		var n atomic.Int32
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r, "acquire") && n.Add(1) == 1 {
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
		_, hold := testlock.Lock(t, m, bg) // granted to the second copy
		testlock.ForceUnlock(t, operator)
		testlock.Must(t, proxy.Release(proxy.Held()[0])) // the first copy gets a grant, too
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		if st := testlock.Inspect(t, operator); st.Held {
			t.Errorf("a lock that nobody holds: %+v", st)
		}
	})
}

func TestALateCopyDoesNotTakeAForcedLockBack(t *testing.T) {
	for kind, newMutex := range map[string]testlock.Maker{"reentrant": rlock.New, "fair": fairlock.New} {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				proxy := faultproxy.InMemory(t, w.Dial)
				m := testlock.Warm(t, newMutex(testlock.NewSession(t, proxy.Client(t, testlock.Impatient)),
					"x"))
				operator := newMutex(testlock.NewSession(t, w.Client), "x")
				var n atomic.Int32
				proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
					if isScript(r, "acquire") && n.Add(1) == 1 {
						return faultproxy.Hold
					}
					return faultproxy.Pass
				})
				_, hold := testlock.Lock(t, m, bg) // granted to the second copy
				testlock.ForceUnlock(t, operator)
				_, theirs := testlock.Lock(t, operator, bg) // another session holds the lock meanwhile
				testlock.Unlock(t, theirs)
				testlock.Must(t, proxy.Release(proxy.Held()[0]))
				if st := testlock.Inspect(t, operator); st.Held {
					t.Errorf("taken back: %+v", st)
				}
				testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			})
		})
	}
}

func TestALockThatIsForcedBeforeItsHolderHeardOfIt(t *testing.T) {
	for kind, newMutex := range map[string]testlock.Maker{"reentrant": rlock.New, "fair": fairlock.New} {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				proxy := faultproxy.InMemory(t, w.Dial)
				m := testlock.Warm(t, newMutex(testlock.NewSession(t, proxy.Client(t)), "x"))
				operator := newMutex(testlock.NewSession(t, w.Client), "x")
				var n atomic.Int32
				proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
					if !isScript(r, "acquire") {
						return faultproxy.Pass
					}
					switch n.Add(1) {
					case 1:
						return faultproxy.CutReply
					case 2:
						if _, err := operator.ForceUnlock(bg); err != nil {
							t.Error(err)
						}
					}
					return faultproxy.Pass
				})
				_, hold, err := m.Lock(bg)
				testlock.Must(t, err) // the call has begun another attempt
				testlock.Unlock(t, hold)
				if st := testlock.Inspect(t, operator); st.Held || len(st.Queue) > 0 {
					t.Errorf("left: %+v", st)
				}
			})
		})
	}
}

func TestAnOwnerDoesNotWaitForItselfAfterTheOuterHoldWent(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, outer := testlock.Lock(t, m, bg)
		request := rlock.WithOwner(context.WithoutCancel(ctx))
		_, first := testlock.Lock(t, m, request)
		testlock.Unlock(t, outer)
		_, second := testlock.TryLock(t, m, request)
		testlock.Unlock(t, second)
		testlock.Unlock(t, first)
	})
}

func TestAnUnlockWhoseOutcomeCannotBeKnownDoesNotSayLost(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		proxy := faultproxy.InMemory(t, w.Dial)
		m := testlock.Warm(t, rlock.New(testlock.NewSession(t, proxy.Client(t)), "x"))
		other := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		third := testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x"))
		_, hold := testlock.Lock(t, m, bg)
		var n atomic.Int32
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if !isScript(r, "release") {
				return faultproxy.Pass
			}
			if n.Add(1) == 1 {
				return faultproxy.CutReply // the release was carried out
			}
			// Before the second copy arrives, another session acquires the lock and loses it, and acquires it
			// again.
			if _, hold, err := other.TryLock(bg); err != nil {
				t.Error(err)
			} else {
				testlock.Keep(t, hold)
			}
			if _, err := other.ForceUnlock(bg); err != nil {
				t.Error(err)
			}
			if _, hold, err := third.TryLock(bg); err != nil {
				t.Error(err)
			} else {
				testlock.Keep(t, hold)
			}
			return faultproxy.Pass
		})
		if err := hold.Unlock(bg); errors.Is(err, rlock.ErrLost) {
			t.Errorf("the unlock worked, and says %v", err)
		}
	})
}

// panicking is an observer and a log handler. It panics each time that it is called, and records for what it
// was called.
type panicking struct{ calls sync.Map }

func (f *panicking) Observe(_ context.Context, e rlock.Event) {
	f.calls.Store(e.Type.String(), true)
	panic("on purpose")
}

func (f *panicking) Enabled(context.Context, slog.Level) bool { return true }
func (f *panicking) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f *panicking) WithGroup(string) slog.Handler            { return f }
func (f *panicking) Handle(_ context.Context, r slog.Record) error {
	f.calls.Store(r.Message, true)
	panic("on purpose")
}

func (f *panicking) called(what string) bool { _, ok := f.calls.Load(what); return ok }

// Proves: panics
func TestAnObserverOrLoggerThatPanicsLeavesTheLockWhole(t *testing.T) {
	for kind, newMutex := range testlock.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				rdb, broken := w.Client, new(pipelines)
				broken.count(rdb)
				observer, handler := new(panicking), new(panicking)
				s, err := rlock.NewSession(rdb, rlock.WithWatchdogTimeout(1500*time.Millisecond),
					rlock.WithObserver(observer), rlock.WithLogger(slog.New(handler)))
				testlock.Must(t, err)
				theirRdb := w.Net.Client(t)
				m, other := newMutex(s, "x"), newMutex(testlock.NewSession(t, theirRdb), "x")
				_, theirs := testlock.Lock(t, other, bg)
				if _, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
					t.Errorf("Lock: %v", err)
				}
				testlock.Unlock(t, theirs)

				ctx, cancel := context.WithCancel(testlock.Bounded(t))
				defer cancel()
				_, hold := testlock.Lock(t, m, ctx)
				_, _, err = m.Lock(ctx, rlock.WaitAtMost(time.Millisecond))
				if !errors.Is(err, rlock.ErrLocked) {
					t.Errorf("Lock: %v", err)
				}
				broken.refuse.Store(true)
				testlock.Eventually(t, "RenewFailed", func() bool { return observer.called("RenewFailed") })
				broken.refuse.Store(false)
				_ = hold.Unlock(bg) // ErrLost if the hold was lost meanwhile

				held, hold := testlock.Lock(t, m, testlock.Bounded(t))
				if _, err := other.ForceUnlock(bg); err != nil {
					t.Error(err)
				}
				testlock.Receive(t, "the loss", held.Done())
				testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)

				testlock.Works(t, m)
				testlock.Must(t, s.Close())
				for event := rlock.EventWaiting; event <= rlock.EventRenewFailed; event++ {
					if !observer.called(event.String()) {
						t.Errorf("%v did not happen", event)
					}
				}
				if !handler.called("lockline: lock lost") {
					t.Error("the loss is not logged")
				}
			})
		})
	}
}

// Simulation has found this case. TryLock returned an error that said that the grant took longer than its
// lease.
func TestATryLockThatWasForcedAndOvertakenIsLocked(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb, other := w.Client, w.Net.Client(t)
		m, operator := fairlock.New(testlock.NewSession(t, rdb), "x"),
			fairlock.New(testlock.NewSession(t, other), "x")
		var hold *rlock.Hold
		var force func()
		onGrant(rdb, func() { force() })
		force = func() { // the lock is granted, but the caller has no reply yet
			force = func() {}
			if held, err := operator.ForceUnlock(bg); !held || err != nil {
				t.Errorf("ForceUnlock: %v, %v", held, err)
			}
			_, hold = testlock.Lock(t, m, bg)
		}
		if _, _, err := m.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		testlock.Unlock(t, hold)
	})
}
