package locktest_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/rlock"
)

// everyKind runs a test on locktest and on the library: what is promised of the one holds for the other.
func everyKind(t *testing.T, test func(t *testing.T, w world)) {
	t.Parallel()
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) { inFakeTime(t, kind, test) })
	}
}

func TestALockExcludesOthersUntilItIsUnlocked(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		_, hold := testlock.Lock(t, m, bg)
		for _, refused := range []func() (context.Context, *rlock.Hold, error){
			func() (context.Context, *rlock.Hold, error) { return w.new("x").TryLock(bg) },
			func() (context.Context, *rlock.Hold, error) { return w.new("x").Lock(bg, rlock.WaitAtMost(0)) },
			func() (context.Context, *rlock.Hold, error) {
				return w.new("x", rlock.WaitAtMost(time.Second)).Lock(bg)
			},
		} {
			ctx, none, err := refused()
			var locked *rlock.LockedError
			if !errors.Is(err, rlock.ErrLocked) || !errors.As(err, &locked) {
				t.Fatalf("a second one: %v", err)
			}
			if ctx != bg || none != nil {
				t.Error("whoever fails must get the context that it gave, and no hold")
			}
			if locked.Name != "x" || locked.Holder != w.inspect(t, "x").Owner || locked.Remaining <= 0 || locked.Remaining > 30*time.Second || locked.Hint == "" {
				t.Errorf("it does not describe the holder: %+v", locked)
			}
		}
		if st := w.inspect(t, "x"); !st.Held || st.Name != "x" || st.Count != 1 || st.Token != hold.Token() || !strings.HasPrefix(st.Owner, st.Session+":") {
			t.Errorf("%+v", st)
		}
		_, other := testlock.Lock(t, w.new("y"), bg) // another name is another lock
		testlock.Unlock(t, other)
		testlock.Unlock(t, hold)
		if st := w.inspect(t, "x"); st.Held || st.Count != 0 {
			t.Errorf("after Unlock: %+v", st)
		}
		_, hold = testlock.TryLock(t, m, bg)
		testlock.Unlock(t, hold)
	})
}

func TestWhatSomebodyElseHoldsIsRefusedAndFreedForWhoWaits(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		free := w.occupy(t, "x")
		var locked *rlock.LockedError
		if _, _, err := m.TryLock(bg); !errors.As(err, &locked) || locked.Holder == "" || locked.About == "" || locked.Hint != "" || locked.Remaining <= 0 {
			t.Errorf("TryLock: %+v", err)
		}
		if st := w.inspect(t, "x"); !st.Held || st.Owner != locked.Holder || st.Count != 1 || st.Host == "" {
			t.Errorf("%+v", st)
		}
		before := w.inspect(t, "x").Token
		got := wait1(t, m, bg)
		free()
		hold := <-got
		testlock.WantAfter(t, hold, before)
		testlock.Unlock(t, hold)
	})
}

// wait1 starts a Lock that has to wait.
func wait1(t testing.TB, m locker, ctx context.Context, options ...rlock.Option) <-chan *rlock.Hold {
	t.Helper()
	got := make(chan *rlock.Hold, 1)
	go func() {
		_, hold, err := m.Lock(ctx, options...)
		if err != nil {
			t.Error(err)
		}
		testlock.Keep(t, hold)
		got <- hold
	}()
	time.Sleep(settled)
	if len(got) > 0 {
		t.Error("it did not have to wait")
	}
	return got
}

func TestWaitersAreServedInTheOrderInWhichTheyCame(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		_, hold := testlock.Lock(t, m, bg)
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				err := m.Do(bg, func(context.Context) error { order = append(order, i); return nil })
				if err != nil {
					t.Error(err)
				}
			})
			time.Sleep(settled)
		}
		testlock.Unlock(t, hold)
		wg.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Errorf("served in the order %v", order)
		}
	})
}

func TestReentryFollowsTheContextAndCounts(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m, ctx := w.new("x"), bg
		var holds []*rlock.Hold
		for depth := 1; depth <= 5; depth++ {
			var hold *rlock.Hold
			ctx, hold = testlock.Lock(t, m, ctx)
			holds = append(holds, hold)
			if st := w.inspect(t, "x"); st.Count != depth || hold.Token() != holds[0].Token() {
				t.Fatalf("at depth %d: %+v", depth, st)
			}
		}
		for i, at := range []int{2, 0, 4, 1, 3} { // any order
			testlock.Unlock(t, holds[at])
			if st := w.inspect(t, "x"); st.Count != 4-i || st.Held != (i < 4) {
				t.Fatalf("after %d unlocks: %+v", i+1, st)
			}
		}
	})
}

func TestGoroutinesThatShareAHoldsContextTakeTurns(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		var mu sync.Mutex
		inside, most, runs := 0, 0, 0
		add := func(n int) { mu.Lock(); inside += n; most = max(most, inside); mu.Unlock() }
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					err := m.Do(ctx, func(ctx context.Context) error {
						add(1)
						defer add(-1)
						time.Sleep(time.Millisecond)
						return m.Do(ctx, func(context.Context) error { runs++; return nil })
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if most != 1 || runs != 20 || w.inspect(t, "x").Count != 1 {
			t.Errorf("%d inside at once, %d runs, %+v", most, runs, w.inspect(t, "x"))
		}
		testlock.Unlock(t, hold)
	})
}

func TestANestedHoldKeepsTheLockWhenTheOuterOneIsUnlockedFirst(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		outer, h1 := testlock.Lock(t, m, bg)
		inner, h2 := testlock.Lock(t, m, context.WithoutCancel(outer))
		testlock.Unlock(t, h1)
		if h1.Err() == nil || h2.Err() != nil || inner.Err() != nil {
			t.Fatalf("outer %v, inner %v", h1.Err(), h2.Err())
		}
		_, h3 := testlock.Lock(t, m, inner)
		testlock.Unlock(t, h2)
		if _, _, err := m.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Fatalf("a newcomer got it under a nested hold: %v", err)
		}
		testlock.Unlock(t, h3)
		_, h4 := testlock.TryLock(t, m, bg)
		testlock.Unlock(t, h4)
	})
}

func TestWhatWasNestedInAFinishedHoldIsNestedInTheNextOne(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		outer, h1 := testlock.Lock(t, m, bg)
		middle, h2 := testlock.Lock(t, m, outer)
		_, h3 := testlock.Lock(t, m, context.WithoutCancel(middle))
		testlock.Unlock(t, h2)
		_, _, err := m.TryLock(outer)
		testlock.WantError(t, "beside what was nested in between", err, rlock.ErrLocked)
		_, _, err = m.TryLock(context.WithoutCancel(middle))
		testlock.WantError(t, "below what is finished", err, rlock.ErrLocked)
		testlock.Unlock(t, h3)
		_, h4 := testlock.TryLock(t, m, outer)
		testlock.Unlock(t, h4)
		testlock.Unlock(t, h1)
	})
}

func TestWhatDescendsFromAFinishedHoldIsANewcomer(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, h1 := testlock.Lock(t, m, bg)
		detached := context.WithoutCancel(ctx)
		testlock.Unlock(t, h1)
		testlock.WantError(t, "the cause of an unlocked hold's context", context.Cause(ctx), rlock.ErrNotHeld)
		_, _, err := m.Lock(ctx)
		testlock.WantError(t, "Lock with that context", err, context.Canceled)
		if !strings.Contains(err.Error(), "belonged to a hold that was unlocked") {
			t.Errorf("it does not say what context that is: %v", err)
		}
		_, h2 := testlock.Lock(t, m, bg)
		_, _, err = m.TryLock(detached)
		testlock.WantError(t, "a detached one beside the next hold", err, rlock.ErrLocked)
		testlock.Unlock(t, h2)
		_, h3 := testlock.Lock(t, m, detached)
		if h1.Token() >= h2.Token() || h2.Token() >= h3.Token() {
			t.Errorf("tokens %d, %d, %d", h1.Token(), h2.Token(), h3.Token())
		}
		testlock.Unlock(t, h3)
	})
}

func TestALossEndsTheContextAndEverythingBelowIt(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		below, nested := testlock.Lock(t, m, ctx)
		w.lose(t, hold)
		for _, ctx := range []context.Context{ctx, below} {
			<-ctx.Done()
			testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrLost)
			_, _, err := m.Lock(ctx)
			testlock.WantError(t, "a re-entry", err, rlock.ErrLost)
			_, _, err = m.Lock(context.WithoutCancel(ctx))
			testlock.WantError(t, "a detached re-entry", err, rlock.ErrLost)
		}
		if w.inspect(t, "x").Held {
			t.Error("still held")
		}
		for _, h := range []*rlock.Hold{hold, nested} {
			testlock.WantError(t, "Err", h.Err(), rlock.ErrLost)
			testlock.WantError(t, "Extend", h.Extend(bg, time.Minute), rlock.ErrLost)
			testlock.WantError(t, "Unlock", h.Unlock(bg), rlock.ErrLost)
			testlock.WantError(t, "a second Unlock", h.Unlock(bg), rlock.ErrNotHeld)
		}
		_, next := testlock.Lock(t, m, bg)
		testlock.WantAfter(t, next, hold.Token())
		testlock.Unlock(t, next)
	})
}

func TestWhoeverWaitsGetsWhatAnotherLost(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		below := make(chan error, 1)
		go func() { _, _, err := m.Lock(context.WithoutCancel(ctx)); below <- err }() // waits for nested
		got := wait1(t, m, bg)
		w.lose(t, hold)
		testlock.WantError(t, "who waited for a re-entry", <-below, rlock.ErrLost)
		next := <-got
		testlock.WantError(t, "a late Unlock", nested.Unlock(bg), rlock.ErrLost)
		if next.Err() != nil {
			t.Error("it ended somebody else's hold")
		}
		testlock.Unlock(t, next)
	})
}

func TestOneOwnerReentersWithoutPassingContextsOn(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		request := rlock.WithOwner(bg)
		_, h1 := testlock.Lock(t, m, request)
		_, h2 := testlock.Lock(t, m, request)
		if h2.Token() != h1.Token() || w.inspect(t, "x").Count != 2 {
			t.Error("the second Lock of one owner did not re-enter")
		}
		_, _, err := m.TryLock(rlock.WithOwner(bg))
		testlock.WantError(t, "another owner", err, rlock.ErrLocked)
		testlock.Unlock(t, h1)
		_, _, err = m.TryLock(bg)
		testlock.WantError(t, "somebody, while the owner's second hold lives", err, rlock.ErrLocked)
		testlock.Unlock(t, h2)

		_, h3 := testlock.Lock(t, m, request)
		w.lose(t, h3)
		_, _, err = m.TryLock(request)
		testlock.WantError(t, "the owner that lost it", err, rlock.ErrLost)
		testlock.WantError(t, "Unlock", h3.Unlock(bg), rlock.ErrLost)
		_, h4 := testlock.TryLock(t, m, request) // it knows now
		testlock.Unlock(t, h4)
	})
}

func TestUnlockTwiceTouchesNothing(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		_, h1 := testlock.Lock(t, m, bg)
		testlock.Unlock(t, h1)
		_, h2 := testlock.Lock(t, m, bg)
		testlock.WantError(t, "a second Unlock", h1.Unlock(bg), rlock.ErrNotHeld)
		testlock.WantError(t, "Extend", h1.Extend(bg, time.Minute), rlock.ErrNotHeld)
		if h2.Err() != nil || !w.inspect(t, "x").Held {
			t.Error("the second Unlock freed somebody else's lock")
		}
		testlock.Unlock(t, h2)
	})
}

func TestTheContextEndsWithItsParentButTheHoldDoesNot(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		type key struct{}
		parent, cancel := context.WithCancelCause(context.WithValue(bg, key{}, "value"))
		ctx, hold := testlock.Lock(t, m, parent)
		if ctx.Value(key{}) != "value" {
			t.Error("it does not inherit values")
		}
		why := errors.New("request over")
		cancel(why)
		<-ctx.Done()
		time.Sleep(time.Hour)
		if context.Cause(ctx) != why || hold.Err() != nil || !w.inspect(t, "x").Held {
			t.Errorf("cause %v, hold %v", context.Cause(ctx), hold.Err())
		}
		ended, end := context.WithCancel(bg)
		end()
		testlock.WantError(t, "Extend with an ended context", hold.Extend(ended, time.Minute), context.Canceled)
		if err := hold.Unlock(ended); err != nil || w.inspect(t, "x").Held {
			t.Errorf("Unlock with an ended context: %v", err)
		}
	})
}

func TestAWaitThatEndsSaysWhy(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		free := w.occupy(t, "x")
		why := errors.New("shift is over")
		short, cancel := context.WithTimeoutCause(bg, time.Second, why)
		defer cancel()
		ctx, none, err := m.Lock(short)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) || ctx != short || none != nil || !strings.Contains(err.Error(), `"x"`) {
			t.Errorf("after the deadline: %v", err)
		}
		var locked *rlock.LockedError
		if by := "; locked by " + w.inspect(t, "x").Owner; !strings.Contains(err.Error(), by) {
			t.Errorf("the text blames the holder for the end of the context: %v", err)
		}
		if errors.Is(err, rlock.ErrLocked) || !errors.As(err, &locked) || locked.Holder != w.inspect(t, "x").Owner {
			t.Errorf("after the deadline, of the holder: %+v", locked)
		}
		for _, lock := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){m.Lock, m.TryLock} {
			ctx, none, err := lock(short)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) || ctx != short || none != nil {
				t.Errorf("with an ended context: %v", err)
			}
		}
		start := time.Now()
		_, _, err = w.new("x", rlock.WaitAtMost(time.Minute)).Lock(bg, rlock.WaitAtMost(time.Second))
		if !errors.Is(err, rlock.ErrLocked) || strings.Contains(err.Error(), "this same session") || time.Since(start) < time.Second || time.Since(start) > 2*time.Second {
			t.Errorf("after WaitAtMost, %v: %v", time.Since(start), err)
		}
		free()

		_, hold := testlock.Lock(t, m, bg) // whoever waits for itself is told so
		_, _, err = m.Lock(bg, rlock.WaitAtMost(time.Second))
		if !errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "this same session") {
			t.Errorf("waiting for oneself: %v", err)
		}
		soon, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if _, _, err = m.Lock(soon); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "this same session") {
			t.Errorf("waiting for oneself, until the context ends: %v", err)
		}
		testlock.Unlock(t, hold)
	})
}

func TestAWaiterThatLeavesHoldsUpNobody(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		free := w.occupy(t, "x")
		ctx, cancel := context.WithCancel(bg)
		gone := make(chan error, 1)
		go func() { _, _, err := m.Lock(ctx); gone <- err }()
		time.Sleep(settled)
		got := wait1(t, m, bg)
		cancel()
		testlock.WantError(t, "who gave up", <-gone, context.Canceled)
		time.Sleep(settled)
		free()
		testlock.Unlock(t, <-got)
		if st := w.inspect(t, "x"); st.Held || len(st.Queue) > 0 {
			t.Errorf("left: %+v", st)
		}
	})
}

func TestWhoeverIsServedAndGivesUpAtOneInstantLeavesNoLockBehind(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		for range 50 {
			_, hold := testlock.Lock(t, m, bg)
			ctx, cancel := context.WithCancel(bg)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, hold, err := m.Lock(ctx); err == nil {
					testlock.Unlock(t, hold)
				} else {
					testlock.WantError(t, "Lock", err, context.Canceled)
				}
			}()
			time.Sleep(settled)
			cancel()
			testlock.Unlock(t, hold)
			<-done
			time.Sleep(settled)
			if w.inspect(t, "x").Held {
				t.Fatal("held by nobody")
			}
		}
	})
}

func TestDoReleasesHoweverFnEnds(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		free := func(how string) {
			t.Helper()
			if w.inspect(t, "x").Held {
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
		<-done
		free("Goexit")
		err := m.Do(bg, func(ctx context.Context) error {
			_, hold := testlock.Lock(t, m, ctx)
			w.lose(t, hold)
			return own
		})
		testlock.WantError(t, "Do", err, own)
		testlock.WantError(t, "Do", err, rlock.ErrLost)

		unfree := w.occupy(t, "x")
		err = m.Do(bg, func(context.Context) error { t.Error("it ran"); return nil }, rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "Do of what another holds", err, rlock.ErrLocked)
		unfree()
	})
}

func TestAFixedLeaseRunsOutAndIsNotRenewed(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x", rlock.WithLease(10*time.Second))
		ctx, hold := testlock.Lock(t, m, bg)
		start := time.Now()
		deadline := hold.Deadline()
		got := wait1(t, w.new("x", rlock.WithLease(time.Minute)), bg)
		<-ctx.Done()
		if took := time.Since(start); took >= 10*time.Second || took < 9*time.Second || !time.Now().Equal(deadline) {
			t.Errorf("ended after %v, the deadline was after %v", took, deadline.Sub(start))
		}
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrLost)
		next := <-got
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("the next one got it after %v", took)
		}
		if left := time.Until(next.Deadline()); next.Token() <= hold.Token() || left < time.Second || left > time.Minute { // two seconds at first
			t.Errorf("token %d after %d, for %v", next.Token(), hold.Token(), left)
		}
		time.Sleep(time.Second)
		if left := time.Until(next.Deadline()); left < 55*time.Second || left > 59*time.Second {
			t.Errorf("after a second it is leased for %v", left)
		}
		testlock.WantError(t, "a late Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Unlock(t, next)
		time.Sleep(time.Hour) // no timer of an ended hold does anything
		_, hold = testlock.TryLock(t, m, bg, rlock.WithLease(time.Minute))
		if left := time.Until(hold.Deadline()); left > time.Minute || left < 59*time.Second {
			t.Errorf("the option of the call does not count: %v", left)
		}
		testlock.Unlock(t, hold)
	})
}

func TestAHoldWithoutALeaseIsKeptForAsLongAsItsHolderLives(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		_, hold := testlock.Lock(t, w.new("x"), bg)
		for range 100 {
			time.Sleep(67*time.Second + 13*time.Millisecond)
			if left := time.Until(hold.Deadline()); hold.Err() != nil || left < 19*time.Second || left > 30*time.Second {
				t.Fatalf("%v, deadline in %v", hold.Err(), left)
			}
		}
		testlock.Unlock(t, hold)
	})
}

func TestReentryNeverShortensALease(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(time.Minute))
		_, inner := testlock.Lock(t, m, ctx, rlock.WithLease(time.Second))
		if left := time.Until(inner.Deadline()); left < 59*time.Second {
			t.Errorf("%v are left", left)
		}
		testlock.Unlock(t, inner)
		_, inner = testlock.Lock(t, m, ctx, rlock.WithLease(2*time.Minute))
		if left := time.Until(outer.Deadline()); left < 118*time.Second {
			t.Errorf("a longer lease was not taken: %v", left)
		}
		testlock.Unlock(t, inner)
		testlock.Unlock(t, outer)
	})
}

func TestANestedHoldWithoutALeaseOfItsOwnIsRenewed(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(15*time.Second))
		_, inner := testlock.Lock(t, m, ctx)
		time.Sleep(10*time.Minute + 5*time.Second)
		if outer.Err() != nil || inner.Err() != nil {
			t.Fatalf("lost under a hold that is renewed: %v, %v", outer.Err(), inner.Err())
		}
		testlock.Unlock(t, inner)
		start := time.Now()
		<-ctx.Done() // from here on nobody renews
		testlock.WantError(t, "Err", outer.Err(), rlock.ErrLost)
		if took := time.Since(start); took < 19*time.Second || took > 30*time.Second {
			t.Errorf("it ended after %v", took)
		}
		testlock.WantError(t, "Unlock", outer.Unlock(bg), rlock.ErrLost)
	})
}

func TestExtendLengthensTheLeaseAndNeverShortensIt(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Second))
		testlock.Must(t, hold.Extend(bg, time.Minute))
		testlock.Must(t, hold.Extend(bg, time.Second))
		if err := hold.Extend(bg, 0); err == nil {
			t.Error("a lease of nothing was taken")
		}
		time.Sleep(59 * time.Second)
		if hold.Err() != nil {
			t.Errorf("lost before the extended lease was over: %v", hold.Err())
		}
		<-ctx.Done()
		testlock.WantError(t, "Extend of a lost hold", hold.Extend(bg, time.Minute), rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestBadInputIsRefused(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		for what, c := range map[string]struct {
			m       locker
			ctx     context.Context
			options []rlock.Option
			named   string // what the error must name
		}{
			"an empty name":       {w.new(""), bg, nil, `""`},
			"a long name":         {w.new(strings.Repeat("n", 513)), bg, nil, "513"},
			"a zero lease":        {w.new("x"), bg, []rlock.Option{rlock.WithLease(0)}, "lease"},
			"a negative lease":    {w.new("x"), bg, []rlock.Option{rlock.WithLease(-time.Second)}, "-1s"},
			"a lease too short":   {w.new("x"), bg, []rlock.Option{rlock.WithLease(time.Millisecond)}, "1ms"},
			"a negative wait":     {w.new("x"), bg, []rlock.Option{rlock.WaitAtMost(-time.Second)}, "-1s"},
			"a bad default lease": {w.new("x", rlock.WithLease(-time.Minute)), bg, nil, "-1m"},
			"a nil context":       {w.new("x"), nil, nil, "context"},
			"a zero Locker":       {new(locktest.Locker), bg, nil, "zero Locker"},
			"a nil Locker":        {(*locktest.Locker)(nil), bg, nil, "zero Locker"},
		} {
			_ = c.m.Name()
			ctx, hold, err := c.m.Lock(c.ctx, c.options...)
			if err == nil || !strings.Contains(err.Error(), c.named) || ctx != c.ctx || hold != nil {
				t.Errorf("%s: Lock: %v, %v, %v", what, ctx, hold, err)
			}
			if _, _, err := c.m.TryLock(c.ctx, c.options...); err == nil {
				t.Errorf("%s: TryLock took it", what)
			}
			if err := c.m.Do(c.ctx, func(context.Context) error { t.Errorf("%s: Do ran", what); return nil }, c.options...); err == nil {
				t.Errorf("%s: Do took it", what)
			}
		}
		_, hold := testlock.Lock(t, w.new("x", nil), bg, nil) // options may be nil
		var none context.Context
		if hold.Unlock(none) == nil || hold.Extend(none, time.Minute) == nil {
			t.Error("a nil context was taken")
		}
		testlock.Unlock(t, hold)
	})
}

func TestAnOutageFailsRequestsAndLosesNoLock(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		_, theirs := testlock.Lock(t, w.new("y"), bg)
		got := wait1(t, w.new("y"), bg)
		const outage = "LOADING nothing is answered"
		w.fail(outage)
		start := time.Now()
		failed := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), outage) || !strings.Contains(err.Error(), `lock "`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		given, none, err := w.new("z").Lock(bg)
		failed("Lock", err)
		if given != bg || none != nil {
			t.Error("it returned something")
		}
		_, _, err = w.new("z").TryLock(bg)
		failed("TryLock", err)
		_, _, err = m.Lock(ctx)
		failed("a re-entry", err)
		failed("Extend", hold.Extend(bg, time.Minute))
		if time.Since(start) > 15*time.Second || hold.Err() != nil || ctx.Err() != nil {
			t.Errorf("the hold has ended, after %v: %v", time.Since(start), hold.Err())
		}
		failed("Unlock", hold.Unlock(bg))
		testlock.WantError(t, "a second Unlock", hold.Unlock(bg), rlock.ErrNotHeld)
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrNotHeld)
		w.fail("")
		_, again := testlock.Lock(t, m, bg) // what could not be given back is given back now
		testlock.Unlock(t, again)
		testlock.Unlock(t, theirs)
		testlock.Unlock(t, <-got)
	})
}

// What only locktest has.

func TestToOccupyALockTakesItFromItsHolder(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		var space locktest.Space
		m := space.New("x")
		ctx, hold := testlock.Lock(t, m, bg)
		below := make(chan error, 1)
		_, nested := testlock.Lock(t, m, ctx)
		go func() { _, _, err := m.Lock(context.WithoutCancel(ctx)); below <- err }()
		got := wait1(t, m, bg)
		free := space.Occupy("x")
		if context.Cause(ctx) != rlock.ErrLost {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		testlock.WantError(t, "who waited below the hold", <-below, rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.WantError(t, "Unlock", nested.Unlock(bg), rlock.ErrLost)
		time.Sleep(time.Hour)
		again := space.Occupy("x") // another one
		free()
		synctest.Wait()
		st := space.Inspect("x")
		if !st.Held || len(st.Queue) != 1 || st.Queue[0].Age < time.Hour || st.Token <= hold.Token() {
			t.Errorf("%+v", st)
		}
		again()
		next := <-got
		again() // does nothing
		if next.Err() != nil || next.Token() <= st.Token {
			t.Errorf("%v, token %d after %d", next.Err(), next.Token(), st.Token)
		}
		testlock.Unlock(t, next)
		if space.Lose("x") || space.Lose("y") {
			t.Error("a free lock was lost")
		}
		space.Occupy("x")
		if !space.Lose("x") || space.Inspect("x").Held {
			t.Error("somebody else cannot lose it")
		}
	})
}

func TestNobodyIsServedInAnOutage(t *testing.T) {
	testlock.InFakeTime(t, func(t *testing.T) {
		var space locktest.Space
		free := space.Occupy("x")
		got := wait1(t, space.New("x"), bg)
		space.Fail(errors.New("outage"))
		free()
		time.Sleep(time.Minute)
		if len(got) > 0 || space.Inspect("x").Held {
			t.Error("the lock was granted")
		}
		space.Fail(nil)
		testlock.Unlock(t, <-got)
	})
}

func TestALossIsImmediateWithoutFakeTime(t *testing.T) {
	var space locktest.Space
	ctx, hold := testlock.Lock(t, space.New("x"), bg)
	if !space.Lose("x") || context.Cause(ctx) != rlock.ErrLost || hold.Err() != rlock.ErrLost {
		t.Errorf("cause %v, Err %v", context.Cause(ctx), hold.Err())
	}
	_, short := testlock.Lock(t, space.New("y", rlock.WithLease(20*time.Millisecond)), bg)
	_, next := testlock.Lock(t, space.New("y"), bg)
	testlock.WantError(t, "Unlock of what ran out", short.Unlock(bg), rlock.ErrLost)
	testlock.Unlock(t, next)
}

func TestGoroutinesMakeNoRace(t *testing.T) {
	var space locktest.Space
	var wg sync.WaitGroup
	inside := 0 // guarded by the lock
	for i := range 8 {
		wg.Go(func() {
			m := space.New("x")
			for n := range 200 {
				ctx, cancel := context.WithTimeout(bg, time.Duration(n)*time.Microsecond)
				held, hold, err := m.Lock(ctx)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if err == nil {
					inside++
					_, nested := testlock.Lock(t, m, context.WithoutCancel(held), rlock.WithLease(time.Minute))
					_, _ = hold.Deadline(), hold.Extend(bg, time.Second)
					testlock.Unlock(t, hold)
					if inside--; inside != 0 {
						t.Error("not alone")
					}
					testlock.Unlock(t, nested)
				}
				cancel()
				if i == 0 && n%20 == 0 {
					_ = space.Inspect("x")
				}
			}
		})
	}
	wg.Wait()
}
