package rlock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestALockExcludesOtherSessionsUntilItIsUnlocked(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		a, b := testlock.NewSession(t, rdb, rlock.WithLabel("till 3")), testlock.NewSession(t, rdb)
		id := identity(t, a, newMutex)
		_, hold := testlock.Lock(t, newMutex(a, "x"), bg)

		ctx, none, err := newMutex(b, "x").TryLock(bg)
		var locked *rlock.LockedError
		if !errors.Is(err, rlock.ErrLocked) || !errors.As(err, &locked) {
			t.Fatalf("TryLock of a held lock: %v", err)
		}
		if ctx != bg || none != nil {
			t.Error("a failed TryLock must return the context it was given, and no hold")
		}
		if !strings.HasPrefix(locked.Holder, id) || locked.Name != "x" || !strings.HasSuffix(locked.About, "till 3") || locked.Remaining <= 0 || locked.Remaining > 30*time.Second {
			t.Errorf("LockedError does not describe the holder: %+v", locked)
		}

		st := testlock.Inspect(t, newMutex(b, "x"))
		if !st.Held || st.Session != id || st.Count != 1 || st.Token != hold.Token() || st.PID == 0 || st.Host == "" || st.Label != "till 3" {
			t.Errorf("Inspect: %+v", st)
		}

		testlock.Unlock(t, hold)
		if st := testlock.Inspect(t, newMutex(b, "x")); st.Held || st.Count != 0 {
			t.Errorf("after Unlock: %+v", st)
		}
		_, hold = testlock.Lock(t, newMutex(b, "x"), bg)
		testlock.Unlock(t, hold)
	})
}

func TestAWaiterIsWokenByTheUnlockOfAnotherSession(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		a, waits := testlock.NewSession(t, rdb), make(testlock.Waits, 1)
		b := testlock.NewSession(t, rdb, rlock.WithObserver(waits))
		_, first := testlock.Lock(t, newMutex(a, "x"), bg)
		got := testlock.Go(testlock.Bounded(t), newMutex(b, "x"))
		testlock.Receive(t, "waiting", waits)
		start := time.Now()
		testlock.Unlock(t, first)
		second := testlock.Granted(t, got)
		// Without the message it would wait for the lease of 30 s.
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("woken after %v, by the lease and not by the message", took)
		}
		testlock.WantAfter(t, second, first.Token())
		testlock.Unlock(t, second)
	})
}

func TestReentryFollowsTheContextAndCountsInRedis(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		ctx := bg
		var holds []*rlock.Hold
		for depth := 1; depth <= 5; depth++ {
			var hold *rlock.Hold
			ctx, hold = testlock.Lock(t, m, ctx)
			holds = append(holds, hold)
			if st := testlock.Inspect(t, m); st.Count != depth || st.Token != holds[0].Token() || hold.Token() != holds[0].Token() {
				t.Fatalf("at depth %d: %+v", depth, st)
			}
		}
		// Any order: here the middle, the outermost, the rest.
		for i, at := range []int{2, 0, 4, 1, 3} {
			testlock.Unlock(t, holds[at])
			if st := testlock.Inspect(t, m); st.Count != 4-i || st.Held != (i < 4) {
				t.Fatalf("after %d unlocks: %+v", i+1, st)
			}
		}
	})
}

func TestGoroutinesThatShareAHoldsContextTakeTurns(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		var inside, most, runs atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 10 {
					err := m.Do(ctx, func(ctx context.Context) error {
						most.Store(max(most.Load(), inside.Add(1)))
						runtime.Gosched()
						// One level down it is the same.
						err := m.Do(ctx, func(context.Context) error { runs.Add(1); return nil })
						inside.Add(-1)
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 || runs.Load() != 40 {
			t.Errorf("%d inside at once, %d runs", most.Load(), runs.Load())
		}
		if st := testlock.Inspect(t, m); st.Count != 1 {
			t.Errorf("hold count %d after all siblings left", st.Count)
		}
		testlock.Unlock(t, hold)
	})
}

func TestANestedHoldKeepsTheLockWhenTheOuterOneIsUnlockedFirst(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		outer, h1 := testlock.Lock(t, m, bg)
		inner, h2 := testlock.Lock(t, m, context.WithoutCancel(outer))
		testlock.Unlock(t, h1)
		if h1.Err() == nil || h2.Err() != nil || inner.Err() != nil {
			t.Fatalf("outer %v, inner %v", h1.Err(), h2.Err())
		}
		// What descends from the inner hold re-enters still.
		_, h3 := testlock.Lock(t, m, inner)
		testlock.Unlock(t, h2)
		if st := testlock.Inspect(t, m); st.Count != 1 {
			t.Fatalf("%+v", st)
		}
		if _, _, err := m.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Fatalf("a newcomer got the lock under a nested hold: %v", err)
		}
		testlock.Unlock(t, h3)
		_, h4 := testlock.TryLock(t, m, bg)
		testlock.Unlock(t, h4)
	})
}

func TestWhatDescendsFromAFinishedHoldIsANewcomer(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		ctx, h1 := testlock.Lock(t, m, bg)
		detached := context.WithoutCancel(ctx)
		testlock.Unlock(t, h1)
		testlock.WantError(t, "cause of an unlocked hold's context", context.Cause(ctx), rlock.ErrNotHeld)
		_, h2 := testlock.Lock(t, m, bg)
		if _, _, err := m.TryLock(detached); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("it re-entered somebody else's hold: %v", err)
		}
		testlock.Unlock(t, h2)
		_, h3 := testlock.Lock(t, m, detached)
		if h3.Token() <= h2.Token() {
			t.Error("no token of its own")
		}
		testlock.Unlock(t, h3)
	})
}

func TestWhatDescendsFromALostHoldGetsErrLost(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		testlock.ForceUnlock(t, m)
		// The re-entry finds the outer hold gone, and must not start afresh.
		if _, _, err := m.Lock(ctx); !errors.Is(err, rlock.ErrLost) {
			t.Fatalf("re-entry under a lost hold: %v", err)
		}
		testlock.Receive(t, "the context of the lost hold ends", ctx.Done())
		if context.Cause(ctx) != rlock.ErrLost || !errors.Is(hold.Err(), rlock.ErrLost) {
			t.Errorf("cause %v, Err %v", context.Cause(ctx), hold.Err())
		}
		if _, _, err := m.Lock(context.WithoutCancel(ctx)); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("detached, under a lost hold: %v", err)
		}
		testlock.WantError(t, "Unlock of a lost hold", hold.Unlock(bg), rlock.ErrLost)
		testlock.WantError(t, "second Unlock of a lost hold", hold.Unlock(bg), rlock.ErrNotHeld)
		_, hold = testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
	})
}

func TestForceUnlockTokenFreesOnlyTheHoldThatWasSeen(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m, operator := newMutex(testlock.NewSession(t, rdb), "x"), newMutex(testlock.NewSession(t, rdb), "x")
		wants := func(what string, token int64, want bool) {
			t.Helper()
			if freed, err := operator.ForceUnlockToken(bg, token); err != nil || freed != want {
				t.Errorf("%s: %v, %v", what, freed, err)
			}
		}
		_, first := testlock.Lock(t, m, bg)
		seen := first.Token()
		testlock.Unlock(t, first)
		wants("a free lock", seen, false)
		ctx, hold := testlock.Lock(t, m, bg)
		wants("another holder", seen, false)
		wants("a token of its block that it has not used", hold.Token()+1, false)
		testlock.Must(t, hold.Extend(bg, time.Minute))
		if hold.Err() != nil || ctx.Err() != nil {
			t.Errorf("the other holder: %v", hold.Err())
		}
		wants("the holder that was seen", hold.Token(), true)
		wants("once more", hold.Token(), false)
		testlock.WantError(t, "Unlock after a forced one", hold.Unlock(bg), rlock.ErrLost)
		for _, token := range []int64{0, -1} {
			if freed, err := operator.ForceUnlockToken(bg, token); err == nil || freed {
				t.Errorf("token %d: %v, %v", token, freed, err)
			}
		}
	})
}

// Nothing tells one hold of a JVM from the next but its owner field.
func TestForceUnlockTokenLeavesAHoldWithoutATokenAlone(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		m := rlock.New(testlock.NewSession(t, rdb, rlock.RedissonKeys()), "x")
		testlock.Must(t, rdb.HSet(bg, "x", "d1c5a3de-0d56-4b4e-8f0a-9d0e3b4c1a77:30", 1).Err())
		testlock.Must(t, rdb.PExpire(bg, "x", time.Minute).Err())
		if st, err := m.Inspect(bg); err != nil || !st.Held || st.Token != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		if freed, err := m.ForceUnlockToken(bg, 1); freed || err != nil {
			t.Errorf("%v, %v", freed, err)
		}
		if _, err := m.ForceUnlockToken(bg, 0); err == nil {
			t.Error("no error with token 0")
		}
		if freed, err := m.ForceUnlock(bg); !freed || err != nil {
			t.Errorf("%v, %v", freed, err)
		}
	})
}

func TestOneOwnerReentersWithoutPassingContextsOn(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		request := rlock.WithOwner(bg)
		_, h1 := testlock.Lock(t, m, request)
		_, h2 := testlock.Lock(t, m, request)
		if h2.Token() != h1.Token() || testlock.Inspect(t, m).Count != 2 {
			t.Error("the second Lock of one owner did not re-enter")
		}
		if _, _, err := m.TryLock(rlock.WithOwner(bg)); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("another owner entered: %v", err)
		}
		testlock.Unlock(t, h1)
		if _, _, err := m.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("somebody entered while the owner's second hold lives: %v", err)
		}
		testlock.Unlock(t, h2)
		_, h3 := testlock.Lock(t, m, bg)
		testlock.Unlock(t, h3)
	})
}

func TestGoroutinesOfOneOwnerThatAskAtOnceAllGetIn(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		for range 20 {
			request := rlock.WithOwner(testlock.Bounded(t))
			var in, wg sync.WaitGroup
			in.Add(4)
			for range 4 {
				wg.Go(func() {
					_, hold, err := m.Lock(request)
					in.Done()
					if err != nil {
						t.Error(err)
						return
					}
					in.Wait() // all four hold it together, or this hangs
					if err := hold.Unlock(bg); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		// An attempt that was dropped, because its owner got in, leaves the queue in the background.
		testlock.Eventually(t, "free", func() bool { return !testlock.Inspect(t, m).Held })
	})
}

func TestUnlockTwiceTouchesNothing(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		_, h1 := testlock.Lock(t, m, bg)
		testlock.Unlock(t, h1)
		_, h2 := testlock.Lock(t, m, bg)
		testlock.WantError(t, "second Unlock", h1.Unlock(bg), rlock.ErrNotHeld)
		if st := testlock.Inspect(t, m); !st.Held || st.Token != h2.Token() || h2.Err() != nil {
			t.Errorf("the second Unlock freed somebody else's lock: %+v", st)
		}
		testlock.Unlock(t, h2)
	})
}

func TestTheContextEndsWithItsParentButTheHoldDoesNot(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(3*time.Second)), "x")
		parent, cancel := context.WithCancelCause(bg)
		ctx, hold := testlock.Lock(t, m, parent)
		why := errors.New("request over")
		cancel(why)
		testlock.Receive(t, "the context ends", ctx.Done())
		if context.Cause(ctx) != why || hold.Err() != nil {
			t.Errorf("cause %v, hold %v", context.Cause(ctx), hold.Err())
		}
		// It is renewed still, and more than once: each time for a third of the lease.
		testlock.Renewed(t, hold, 1500*time.Millisecond)
		if hold.Err() != nil {
			t.Fatal("renewal ended with the context of Lock")
		}
		testlock.Unlock(t, hold)
		if testlock.Inspect(t, m).Held {
			t.Error("still held")
		}
	})
}

func TestAWaitThatEndsSaysWhy(t *testing.T) {
	t.Parallel()
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
		ctx, hold := testlock.Lock(t, newMutex(a, "x"), bg)

		// By the context, with its cause.
		why := errors.New("shift is over")
		short, cancel := context.WithTimeoutCause(bg, 20*time.Millisecond, why)
		defer cancel()
		_, none, err := newMutex(b, "x").Lock(short)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) || none != nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("after the deadline: %v", err)
		}
		if strings.Contains(err.Error(), "this same session") {
			t.Errorf("blames the wrong one: %v", err)
		}
		// By a context that had ended before.
		if _, _, err := newMutex(b, "x").Lock(short); !errors.Is(err, why) {
			t.Errorf("with an ended context: %v", err)
		}
		// By WaitAtMost.
		_, _, err = newMutex(b, "x", rlock.WaitAtMost(time.Second)).Lock(bg)
		if !errors.Is(err, rlock.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after WaitAtMost: %v", err)
		}
		if _, _, err = newMutex(b, "x").Lock(bg, rlock.WaitAtMost(0)); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("with WaitAtMost(0): %v", err)
		}
		// By oneself: the outer context was passed to a nested Lock.
		_, _, err = newMutex(a, "x").Lock(bg, rlock.WaitAtMost(20*time.Millisecond))
		if !errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "this same session") {
			t.Errorf("waiting for oneself: %v", err)
		}
		_ = ctx
		testlock.Unlock(t, hold)
	})
}

func TestDoReleasesHoweverFnEnds(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		free := func(how string) {
			t.Helper()
			if testlock.Inspect(t, m).Held {
				t.Fatalf("still held after %s", how)
			}
		}
		own := errors.New("own")
		if err := m.Do(bg, func(context.Context) error { return own }); err != own {
			t.Errorf("fn's error came back as %v", err)
		}
		free("an error")
		func() {
			defer func() {
				if recover() != "panic" {
					t.Error("the panic did not come through")
				}
			}()
			_ = m.Do(bg, func(context.Context) error { panic("panic") })
		}()
		free("a panic")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Do(bg, func(context.Context) error { runtime.Goexit(); return nil })
		}()
		testlock.Receive(t, "Goexit", done)
		free("Goexit")

		err := m.Do(bg, func(ctx context.Context) error {
			testlock.ForceUnlock(t, m)
			return own
		})
		if !errors.Is(err, own) || !errors.Is(err, rlock.ErrLost) {
			t.Errorf("fn failed and the lock was lost: %v", err)
		}
	})
}

func TestCloseGivesBackAtOnceWhatIsHeldAndWaitedFor(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		waits := make(testlock.Waits, 8)
		a, b := testlock.NewSession(t, rdb, rlock.WithObserver(waits)), testlock.NewSession(t, rdb)
		ctx, mine := testlock.Lock(t, newMutex(a, "mine"), bg)
		_, nested := testlock.Lock(t, newMutex(a, "mine"), ctx)
		_, theirs := testlock.Lock(t, newMutex(b, "theirs"), bg)
		ends := make(chan error, 2)
		go func() { _, _, err := newMutex(a, "theirs").Lock(bg); ends <- err }() // waits in Redis
		testlock.Receive(t, "waiting", waits)
		go func() { _, _, err := newMutex(a, "theirs").Lock(bg); ends <- err }() // waits behind it
		testlock.Receive(t, "waiting", waits)

		testlock.Must(t, a.Close())
		for range 2 {
			testlock.WantError(t, "a wait of a closed session", <-ends, rlock.ErrClosed)
		}
		if context.Cause(ctx) != rlock.ErrClosed || !errors.Is(mine.Err(), rlock.ErrClosed) || !errors.Is(nested.Unlock(bg), rlock.ErrClosed) {
			t.Errorf("cause %v, Err %v", context.Cause(ctx), mine.Err())
		}
		if testlock.Inspect(t, newMutex(b, "mine")).Held {
			t.Error("a closed session holds a lock")
		}
		if _, _, err := newMutex(a, "mine").Lock(bg); !errors.Is(err, rlock.ErrClosed) {
			t.Errorf("Lock on a closed session: %v", err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		testlock.Unlock(t, theirs)
	})
}

func TestAForgottenHoldIsReleasedWhenItIsCollected(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		func() {
			testlock.Lock(t, m, bg)
		}()
		testlock.Eventually(t, "released", func() bool { runtime.GC(); return !testlock.Inspect(t, m).Held })

		// With a fixed lease it may be meant: at most once in ten minutes.
		func() {
			testlock.Lock(t, m, bg, rlock.WithLease(10*time.Minute))
		}()
		for range 5 {
			runtime.GC()
		}
		if !testlock.Inspect(t, m).Held {
			t.Error("a fixed lease was cut short")
		}
	})
}

// "Hold it until the process ends" needs no Unlock, and often drops the Hold or the context.
func TestAHoldIsNotReleasedWhileItOrItsContextCanBeReached(t *testing.T) {
	type key struct{}
	for name, keep := range map[string]func(ctx context.Context, hold *rlock.Hold) any{
		"the Hold":           func(_ context.Context, hold *rlock.Hold) any { return hold },
		"the context":        func(ctx context.Context, _ *rlock.Hold) any { return ctx },
		"one with a value":   func(ctx context.Context, _ *rlock.Hold) any { return context.WithValue(ctx, key{}, 1) },
		"one without cancel": func(ctx context.Context, _ *rlock.Hold) any { return context.WithoutCancel(ctx) },
		"one with a time-out": func(ctx context.Context, _ *rlock.Hold) any {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			t.Cleanup(cancel)
			return ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
				m := newMutex(testlock.NewSession(t, rdb), "x")
				kept := func() any {
					ctx, hold, err := m.Lock(bg)
					testlock.Must(t, err)
					return keep(ctx, hold)
				}()
				for range 20 {
					runtime.GC()
				}
				if !testlock.Inspect(t, m).Held {
					t.Error("a lock was released that is in use")
				}
				if ctx, ok := kept.(context.Context); ok && ctx.Err() != nil {
					t.Error(context.Cause(ctx))
				}
				runtime.KeepAlive(kept)
			})
		})
	}
}

// losses is an observer of lost locks.
type losses chan rlock.Event

func (c losses) Observe(_ context.Context, e rlock.Event) {
	if e.Kind == rlock.Lost {
		c <- e
	}
}

func TestAForgottenFixedLeaseKeepsItsOwnerFromNothing(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		lost := make(losses, 10)
		m := newMutex(testlock.NewSession(t, rdb, rlock.WithObserver(lost)), "x")
		owner := rlock.WithOwner(bg)
		short := func() (context.Context, *rlock.Hold) {
			return testlock.Lock(t, m, owner, rlock.WithLease(150*time.Millisecond))
		}
		gone := func(what string) {
			t.Helper()
			testlock.Eventually(t, what, func() bool {
				runtime.GC()
				_, hold, err := m.TryLock(owner)
				if err != nil && !errors.Is(err, rlock.ErrLost) && !errors.Is(err, rlock.ErrLocked) {
					t.Fatal(err)
				}
				return err == nil && hold.Unlock(bg) == nil
			})
		}

		remembered := func(what string) {
			t.Helper()
			for range 5 {
				runtime.GC()
			}
			if _, _, err := m.TryLock(owner); !errors.Is(err, rlock.ErrLost) {
				t.Errorf("%s of a lost hold can be reached: %v", what, err)
			}
		}

		func() { short() }()
		<-lost
		gone("locked, after a hold was forgotten")

		hold := func() *rlock.Hold { _, h := short(); return h }()
		<-lost
		remembered("the Hold")
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)

		ctx := func() context.Context { c, _ := short(); return c }()
		<-lost
		remembered("the context")
		runtime.KeepAlive(ctx)
		gone("locked, after a context was forgotten")
	})
}

func TestHoldersAreKnownByTheirSessionsID(t *testing.T) {
	s := testlock.NewSession(t, testredis.Start(t).Client(t))
	for _, kind := range []string{"reentrant", "fair"} {
		if id := identity(t, s, testlock.Kinds[kind]); id != s.ID() {
			t.Errorf("%s: %q, want %q", kind, id, s.ID())
		}
	}
}

func TestObserversHearOfEveryHold(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		var rec recorder
		s := testlock.NewSession(t, rdb, rlock.WithObserver(&rec))
		m := newMutex(s, "x")
		ctx, h1 := testlock.Lock(t, m, bg)
		_, h2 := testlock.Lock(t, m, ctx)
		id := testlock.Inspect(t, m).Session
		if _, _, err := m.TryLock(bg); err == nil {
			t.Fatal("entered twice")
		}
		testlock.Unlock(t, h2)
		testlock.Unlock(t, h1)
		lost, h3 := testlock.Lock(t, m, bg)
		testlock.ForceUnlock(t, m)
		_ = h3.Extend(bg, time.Minute)
		testlock.Receive(t, "lost", lost.Done())
		testlock.Eventually(t, "told", func() bool { return strings.Contains(rec.String(), "Lost") })
		want := "Acquired/1 Acquired/2 NotAcquired/0 Released/0 Acquired/1 Lost/0"
		if got := rec.String(); got != want {
			t.Errorf("events:\n got %s\nwant %s", got, want)
		}
		for _, e := range rec.events {
			if e.Name != "x" || e.Lock == "" || e.Session != id || e.At.IsZero() || e.Kind == rlock.Acquired && e.Token == 0 || e.Kind == rlock.NotAcquired && !errors.As(e.Err, new(*rlock.LockedError)) {
				t.Errorf("incomplete: %+v", e)
			}
		}
	})
}

type recorder struct {
	mu     sync.Mutex
	events []rlock.Event
}

func (r *recorder) Observe(_ context.Context, e rlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var words []string
	for _, e := range r.events {
		words = append(words, e.Kind.String()+"/"+string(rune('0'+e.Depth)))
	}
	return strings.Join(words, " ")
}
