package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestALeaseIsRenewedForAsLongAsItsHolderLives(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		for range 3 * 60 {
			time.Sleep(time.Minute + 13*time.Millisecond) // not the instant of a renewal
			st := testlock.Inspect(t, m)
			// Renewed at a third: never less than two thirds are left, less the batching of renewals.
			if ctx.Err() != nil || !st.Held || st.Remaining < 20*time.Second || time.Until(hold.Deadline()) < 19*time.Second {
				t.Fatalf("%v, %+v, deadline in %v", context.Cause(ctx), st, time.Until(hold.Deadline()))
			}
			if hold.Deadline().After(time.Now().Add(st.Remaining)) {
				t.Fatal("the holder believes longer than Redis")
			}
		}
		testlock.Unlock(t, hold)
		// An hour later nothing is renewed, and nothing is left.
		time.Sleep(time.Hour)
		if keys := w.Keys(); len(keys) != 0 {
			t.Errorf("left behind: %q", keys)
		}
	})
}

func TestAHoldEndsAtItsDeadlineAndBeforeRedisFreesIt(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		start := time.Now()
		w.Down(true)
		<-ctx.Done()
		// Nothing in the simulation takes time: the margin is exactly 1 % and 2 ms.
		if took, want := time.Since(start), 30*time.Second-300*time.Millisecond-2*time.Millisecond; took != want {
			t.Errorf("its context ended after %v, want %v", took, want)
		}
		if !w.Exists("lockline:r:{x}") {
			t.Error("Redis freed it before its holder knew")
		}
		if context.Cause(ctx) != rlock.ErrLost || !errors.Is(hold.Err(), rlock.ErrLost) {
			t.Errorf("cause %v, Err %v", context.Cause(ctx), hold.Err())
		}
		w.Down(false)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestAFixedLeaseRunsOutAndIsNotRenewed(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Second))
		start := time.Now()
		<-ctx.Done()
		if took := time.Since(start); took != 10*time.Second-102*time.Millisecond {
			t.Errorf("ended after %v", took)
		}
		// Who waits for it gets it when Redis lets it go.
		_, next := testlock.Lock(t, m, bg)
		if took := time.Since(start); took < 10*time.Second || took > 10*time.Second+50*time.Millisecond {
			t.Errorf("the next one got it after %v", took)
		}
		testlock.WantAfter(t, next, hold.Token())
		testlock.WantError(t, "Unlock of the late one", hold.Unlock(bg), rlock.ErrLost)
		if st := testlock.Inspect(t, m); st.Token != next.Token() || next.Err() != nil {
			t.Errorf("the late Unlock freed somebody else's lock: %+v", st)
		}
		testlock.Unlock(t, next)
	})
}

// The graveyard: locks whose every entry sets the lease lose what an outer layer had asked for.
func TestReentryNeverShortensALease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(time.Minute))
		_, inner := testlock.Lock(t, m, ctx, rlock.WithLease(time.Second))
		if st := testlock.Inspect(t, m); st.Remaining != time.Minute || time.Until(inner.Deadline()) < 59*time.Second {
			t.Errorf("%+v, deadline in %v", st, time.Until(inner.Deadline()))
		}
		testlock.Unlock(t, inner)
		_, inner = testlock.Lock(t, m, ctx, rlock.WithLease(2*time.Minute))
		if st := testlock.Inspect(t, m); st.Remaining != 2*time.Minute {
			t.Errorf("a longer lease was not taken: %+v", st)
		}
		testlock.Unlock(t, inner)
		testlock.Unlock(t, outer)
	})
}

func TestANestedHoldWithoutALeaseOfItsOwnIsRenewed(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(5*time.Second))
		_, inner := testlock.Lock(t, m, ctx)
		time.Sleep(10 * time.Minute)
		if outer.Err() != nil || inner.Err() != nil {
			t.Fatalf("lost under a hold that is renewed: %v, %v", outer.Err(), inner.Err())
		}
		testlock.Unlock(t, inner)
		<-ctx.Done() // from here on nobody renews
		testlock.WantError(t, "the outer hold, after the one that was renewed", outer.Err(), rlock.ErrLost)
	})
}

func TestExtendLengthensTheLeaseAndNeverShortensIt(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Second))
		testlock.Must(t, hold.Extend(bg, time.Minute))
		testlock.Must(t, hold.Extend(bg, time.Second))
		if st := testlock.Inspect(t, m); st.Remaining != time.Minute {
			t.Errorf("%+v", st)
		}
		time.Sleep(59 * time.Second)
		if hold.Err() != nil {
			t.Errorf("lost before the extended lease was over: %v", hold.Err())
		}
		<-ctx.Done()
		testlock.WantError(t, "Extend of a lost hold", hold.Extend(bg, time.Minute), rlock.ErrLost)
	})
}

func TestAWaiterGetsTheLockOfADeadHolderWhenItsLeaseEnds(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		// What a process leaves that died.
		w.HSet("lockline:r:{x}", "5f1c5ba6-0000-4000-8000-000000000000:7", "1", "t", "12", "s", "0")
		w.SetTTL("lockline:r:{x}", 20*time.Second)
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		start := time.Now()
		_, hold := testlock.Lock(t, m, bg)
		if took := time.Since(start); took < 20*time.Second || took > 21*time.Second {
			t.Errorf("got it after %v", took)
		}
		testlock.Unlock(t, hold)
	})
}

func TestTokensGrowWhateverRedisForgets(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		last := int64(0)
		grab := func(after string) {
			t.Helper()
			_, hold := testlock.Lock(t, m, bg)
			if hold.Token() <= last {
				t.Errorf("after %s: token %d after %d", after, hold.Token(), last)
			}
			last = hold.Token()
			testlock.Unlock(t, hold)
		}
		grab("nothing")
		grab("an unlock at the same instant")
		w.FlushAll()
		time.Sleep(time.Millisecond)
		grab("a flush")
		time.Sleep(time.Hour)
		if len(w.Keys()) != 0 {
			t.Errorf("an idle lock is still remembered: %q", w.Keys())
		}
		grab("an idle hour")
		// A clock that falls back does not matter as long as the token is remembered.
		w.SetTime(time.Now().Add(-time.Hour))
		grab("a clock that fell back")
		w.SetTime(time.Time{})
	})
}

func TestTheTokenIsRememberedForLongerThanTheLockIsHeld(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		time.Sleep(3 * time.Hour)
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l <= 0 || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		testlock.Must(t, hold.Extend(bg, 24*time.Hour))
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l != 24*time.Hour || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		testlock.Unlock(t, hold)
	})
}

func TestARenewedLeaseIsCountedFromWhenTheRenewalLeft(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	proxy := faultproxy.New(t, testredis.Start(t).Addr)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, proxy.Client(t), rlock.WithWatchdogTimeout(lease)), "x"), bg)
	granted := hold.Deadline()
	proxy.SetDelay(100 * time.Millisecond) // much more than the margin for drift
	testlock.Eventually(t, "renewed", func() bool { return hold.Deadline().After(granted) })
	deadline := hold.Deadline()
	for _, r := range proxy.Requests() {
		if isScript(&r, "keep.lua") && !deadline.After(r.At.Add(lease)) {
			return
		}
	}
	t.Error("believed for longer than its lease after any renewal had left")
}
