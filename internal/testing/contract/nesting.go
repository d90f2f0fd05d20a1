package contract

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// An askingContext is a context of a user's type, whose method Err calls the library.
type askingContext struct {
	context.Context
	hold *rlock.Hold
}

func (c askingContext) Err() error { return cmp.Or(c.hold.Err(), c.Context.Err()) }

// nesting has tests of calls below the context of a hold.
var nesting = map[string]test{
	// The library calls the methods of a context under no mutex that a Hold locks.
	"TheContextOfAWaitMayAskTheHoldAboveIt": {Excludes, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		holds := []*rlock.Hold{hold}
		if w.kind.Has&Reenters != 0 { // a second nested hold has to wait for this one
			_, nested := testlock.Lock(t, m, ctx)
			holds = append(holds, nested)
		}
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _, err := m.Lock(askingContext{waiting, hold})
		testlock.WantError(t, "Lock", err, context.DeadlineExceeded)
		_, _, err = m.Lock(askingContext{ctx, hold}, rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "Lock with WaitAtMost", err, rlock.ErrLocked)
		for _, h := range holds {
			testlock.Unlock(t, h)
		}
		w.clean(t, "x")
	}},
	// Proves: re-entry
	"ReentryFollowsTheContextAndCounts": {Reenters, func(t *testing.T, w *world) {
		m, ctx := w.new("x"), bg
		var holds []*rlock.Hold
		check := func(depth int) {
			t.Helper()
			if st := inspect(t, m); st.Held != (depth > 0) || w.kind.Has&Counts != 0 && st.Count != depth {
				t.Fatalf("at depth %d: %+v", depth, st)
			}
			_, hold, err := w.rival("x").TryLock(bg)
			if (err == nil) != (depth == 0) {
				t.Fatalf("another one, at depth %d: %v", depth, err)
			}
			if err == nil {
				testlock.Unlock(t, hold)
			}
		}
		for depth := 1; depth <= 5; depth++ {
			var hold *rlock.Hold
			ctx, hold = testlock.Lock(t, m, ctx)
			holds = append(holds, hold)
			if hold.Token() != holds[0].Token() {
				t.Errorf("tokens %d and %d", hold.Token(), holds[0].Token())
			}
			check(depth)
		}
		for i, at := range []int{2, 0, 4, 1, 3} { // nested holds may be unlocked in any order
			testlock.Unlock(t, holds[at])
			check(4 - i)
		}
		w.clean(t, "x")
	}},
	// Proves: re-entry
	"GoroutinesThatShareAHoldsContextTakeTurns": {Reenters | Excludes, func(t *testing.T, w *world) {
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
		if most != 1 || runs != 20 || hold.Err() != nil {
			t.Errorf("%d inside at once, %d runs, %v", most, runs, hold.Err())
		}
		testlock.Unlock(t, hold)
		w.clean(t, "x")
	}},
	"ANestedHoldKeepsTheLockWhenTheOuterOneIsUnlockedFirst": {Reenters, func(t *testing.T, w *world) {
		m := w.new("x")
		outer, h1 := testlock.Lock(t, m, bg)
		inner, h2 := testlock.Lock(t, m, context.WithoutCancel(outer))
		testlock.Unlock(t, h1)
		if h1.Err() == nil || h2.Err() != nil || inner.Err() != nil {
			t.Fatalf("outer %v, inner %v", h1.Err(), h2.Err())
		}
		_, h3 := testlock.Lock(t, m, inner)
		testlock.Unlock(t, h2)
		_, _, err := w.rival("x").TryLock(bg)
		testlock.WantError(t, "a newcomer under a nested hold", err, rlock.ErrLocked)
		testlock.Unlock(t, h3)
		w.clean(t, "x")
	}},
	"WhatWasNestedInAFinishedHoldIsNestedInTheNextOne": {Reenters | Excludes, func(t *testing.T, w *world) {
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
	}},
	"WhatDescendsFromAFinishedHoldIsANewcomer": {Excludes, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, h1 := testlock.Lock(t, m, bg)
		detached := context.WithoutCancel(ctx)
		testlock.Unlock(t, h1)
		testlock.WantError(t, "the cause of an unlocked hold's context", context.Cause(ctx), rlock.ErrNotHeld)
		for _, lock := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){
			m.Lock, w.new("y").TryLock,
		} {
			_, _, err := lock(ctx)
			testlock.WantError(t, "with that context", err, context.Canceled)
			if !strings.Contains(err.Error(), "lock not held: this context belonged to a hold of ") ||
				!strings.Contains(err.Error(), fmt.Sprintf("%q that was unlocked; go on with ", m.Name())) {
				t.Errorf("it does not say what context that is: %v", err)
			}
		}
		_, h2 := testlock.Lock(t, m, bg)
		_, _, err := m.TryLock(detached)
		testlock.WantError(t, "a detached one beside the next hold", err, rlock.ErrLocked)
		testlock.Unlock(t, h2)
		_, h3 := testlock.Lock(t, m, detached)
		if w.kind.Has&Fences != 0 && (h1.Token() >= h2.Token() || h2.Token() >= h3.Token()) {
			t.Errorf("tokens %d, %d, %d", h1.Token(), h2.Token(), h3.Token())
		}
		testlock.Unlock(t, h3)
	}},
	// Proves: re-entry
	"OneOwnerReentersWithoutPassingContextsOn": {Reenters | Excludes, func(t *testing.T, w *world) {
		m := w.new("x")
		request := rlock.WithOwner(bg)
		_, h1 := testlock.Lock(t, m, request)
		_, h2 := testlock.Lock(t, m, request)
		if st := inspect(t, m); h2.Token() != h1.Token() || w.kind.Has&Counts != 0 && st.Count != 2 {
			t.Error("the second Lock of one owner did not re-enter")
		}
		_, _, err := m.TryLock(rlock.WithOwner(bg))
		testlock.WantError(t, "another owner", err, rlock.ErrLocked)
		testlock.Unlock(t, h1)
		_, _, err = m.TryLock(bg)
		testlock.WantError(t, "another one, while the owner's second hold lives", err, rlock.ErrLocked)
		testlock.Unlock(t, h2)

		_, h3 := testlock.Lock(t, m, request)
		w.lose(t, "x", h3)
		for range 2 { // code of the owner must not take the lost lock again without noticing the loss
			_, _, err = m.TryLock(request)
			testlock.WantError(t, "the owner that lost it", err, rlock.ErrLost)
		}
		testlock.WantError(t, "Unlock", h3.Unlock(bg), rlock.ErrLost)
		_, h4 := testlock.TryLock(t, m, request) // works, because the Unlock has reported the loss
		testlock.Unlock(t, h4)
	}},
	"GoroutinesOfOneOwnerThatAskAtOnceAllHaveTheirTurn": {Reenters | Mutexes, func(t *testing.T, w *world) {
		m := w.process(t, rlock.WithHandover(time.Minute)).lock("x")
		for _, taken := range []string{"", "by another", "by its own process"} {
			free := func() {}
			switch taken {
			case "by another":
				free = w.occupy(t, "x")
			case "by its own process":
				_, hold := testlock.Lock(t, m, bg)
				free = func() { testlock.Unlock(t, hold) }
			}
			request := rlock.WithOwner(bg)
			done := make(chan error, 4)
			for range cap(done) {
				go func() { done <- testlock.Cycle(request, m) }()
			}
			time.Sleep(settled)
			free()
			for range cap(done) {
				testlock.Must(t, testlock.Receive(t, "its turn", done))
			}
			w.clean(t, "x")
		}
	}},
	"TheHoldIsFoundInItsContext": {0, func(t *testing.T, w *world) {
		if h := rlock.HoldFrom(bg); h != nil {
			t.Errorf("there is a hold of %q in a context that came from none", h.Name())
		}
		m := w.new("x")
		found := func(ctx context.Context) *rlock.Hold {
			below, cancel := context.WithCancel(ctx)
			defer cancel()
			return rlock.HoldFrom(below)
		}
		err := rlock.Do(bg, m, func(ctx context.Context) error {
			h := found(ctx)
			if h == nil || h.Err() != nil || h.Name() != m.Name() {
				t.Errorf("in the function of Do is %v", h)
			}
			if w.kind.Has&Reenters != 0 {
				inner, other := testlock.Lock(t, m, ctx)
				if found(inner) != other || found(ctx) != h || other.Token() != h.Token() {
					t.Errorf("in the contexts of a hold and of its outer one are %v and %v",
						found(inner), found(ctx))
				}
				testlock.Must(t, other.Unlock(bg))
			}
			return h.Unlock(bg)
		})
		testlock.WantError(t, "Do, of what fn has unlocked", err, rlock.ErrNotHeld)
		w.clean(t, "x")
	}},
	"DoReleasesHoweverFnEnds": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		own := errors.New("own")
		if err := m.Do(bg, func(context.Context) error { return own }); err != own {
			t.Errorf("fn's error came back as %v", err)
		}
		w.clean(t, "x")
		func() {
			defer func() {
				if recover() != "panic" {
					t.Error("the panic did not come through")
				}
			}()
			_ = m.Do(bg, func(context.Context) error { panic("panic") })
		}()
		w.clean(t, "x")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = m.Do(bg, func(context.Context) error { goexit(); return nil })
		}()
		<-done
		w.clean(t, "x")
		err := m.Do(bg, func(ctx context.Context) error {
			force(t, m)
			return own
		})
		testlock.WantError(t, "Do", err, own)
		testlock.WantError(t, "Do", err, rlock.ErrLost)
		if w.kind.Has&Reenters != 0 {
			err = m.Do(bg, func(ctx context.Context) error {
				force(t, m)
				return fmt.Errorf("step 2: %w", m.Do(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					return context.Cause(ctx)
				}))
			})
			testlock.WantError(t, "Do, of what was lost within", err, rlock.ErrLost)
		}
		free := w.occupy(t, "x")
		err = m.Do(bg, func(context.Context) error { t.Error("it ran"); return nil },
			rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "Do of what another holds", err, rlock.ErrLocked)
		free()
		w.clean(t, "x")
	}},
}
