package contract

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// exclusion has tests of exclusion, of waiting, and of the errors of refused calls.
var exclusion = map[string]test{
	"TriesAtOneTimeKeepNoOtherOutOfWhatIsFree": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		_, hold := testlock.Lock(t, m, bg) // from now on, the session knows the time of Redis
		testlock.Unlock(t, hold)
		for _, net := range w.nets {
			net.SetDelay(time.Millisecond)
		}
		holds := make(chan *rlock.Hold, 3)
		var wg sync.WaitGroup
		for range cap(holds) {
			wg.Go(func() {
				_, hold, err := m.TryLock(bg)
				switch {
				case err == nil:
					holds <- hold
				case w.kind.Has&Excludes == 0 || !errors.Is(err, rlock.ErrLocked):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		close(holds)
		if n := len(holds); n > 1 && w.kind.Has&Excludes != 0 {
			t.Errorf("%d have it", n)
		}
		for hold := range holds {
			testlock.Unlock(t, hold)
		}
		w.clean(t, "x")
	}},
	"ALockExcludesOthersUntilItIsUnlocked": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		_, hold := testlock.Lock(t, m, bg)
		for _, refused := range []func() (context.Context, *rlock.Hold, error){
			func() (context.Context, *rlock.Hold, error) { return w.rival("x").TryLock(bg) },
			func() (context.Context, *rlock.Hold, error) {
				return w.rival("x").Lock(bg, rlock.WaitAtMost(0))
			},
			func() (context.Context, *rlock.Hold, error) {
				return w.rival("x", rlock.WaitAtMost(time.Second)).Lock(bg)
			},
		} {
			ctx, none, err := refused()
			locked, ok := refusal(err)
			if !errors.Is(err, rlock.ErrLocked) || !ok || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("a second one: %v", err)
			}
			if ctx != bg || none != nil {
				t.Error("a failed call must return the context that it was given, and no hold")
			}
			if !strings.HasPrefix(m.Name(), locked.Name) || locked.Holder != inspect(t, m).Owner ||
				locked.Remaining <= 0 ||
				locked.Remaining > lease+time.Millisecond ||
				locked.Hint != "" {
				t.Errorf("it does not describe the holder: %+v", locked)
			}
		}
		st := inspect(t, w.rival("x"))
		if !st.Held || st.Name != "x" || st.Session == "" || !strings.HasPrefix(st.Owner, st.Session) ||
			hold.Token() != 0 && st.Token != hold.Token() {
			t.Errorf("%+v", st)
		}
		_, other := testlock.Lock(t, w.rival("y"), bg) // another name is another lock
		testlock.Unlock(t, other)
		testlock.Unlock(t, hold)
		if st := inspect(t, m); st.Held || st.Count != 0 {
			t.Errorf("after Unlock: %+v", st)
		}
		_, next := testlock.TryLock(t, w.rival("x"), bg)
		w.wants(t, next, hold)
		testlock.Unlock(t, next)
		w.clean(t, "x")
	}},
	"ANoteShowsForWhatALockIsTakenOrWaitedFor": {0, func(t *testing.T, w *world) {
		m, other := w.new("x"), w.rival("x")
		_, hold := testlock.Lock(t, m, bg, rlock.WithNote("order 42"))
		refused := map[string]Lock{"another process": other}
		if w.kind.Has&Excludes != 0 {
			refused["its own process"] = m
		}
		for what, l := range refused {
			_, _, err := l.TryLock(bg)
			if r, ok := refusal(err); !ok || r.HeldBy().Note != "order 42" || r.HeldBy().Host == "" ||
				!strings.Contains(err.Error(), `note "order 42"`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		got := begin(t, other, bg, rlock.WithNote("order 43"))
		st := inspect(t, other)
		if st.Note != "order 42" || len(st.Queue) > 0 && st.Queue[0].Note != "order 43" {
			t.Errorf("%+v", st)
		}
		testlock.Unlock(t, hold)
		next := granted(t, got)
		if st := inspect(t, other); st.Note != "order 43" {
			t.Errorf("the next holder: %+v", st)
		}
		testlock.Unlock(t, next)
		_, hold = testlock.Lock(t, m, bg)
		if st := inspect(t, other); !st.Held || st.Note != "" {
			t.Errorf("a holder without a note: %+v", st)
		}
		testlock.Unlock(t, hold)
		w.clean(t, "x")
	}},
	"WhatSomebodyElseHoldsIsRefusedAndFreedForWhoWaits": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		free := w.occupy(t, "x")
		_, _, err := m.TryLock(bg)
		if locked, ok := refusal(err); !ok || locked.Holder == "" || locked.About == "" ||
			locked.Hint != "" || locked.Remaining <= 0 {
			t.Errorf("TryLock: %+v", err)
		} else if st := inspect(t, w.rival("x")); !st.Held || st.Owner != locked.Holder || st.Host == "" ||
			st.PID == 0 && w.wires != nil {
			t.Errorf("%+v", st)
		}
		before := inspect(t, w.rival("x")).Token
		got := begin(t, m, bg)
		start := time.Now()
		free()
		hold := granted(t, got)
		if took := time.Since(start); took > time.Second { // much less than the rest of the lease
			t.Errorf("woken after %v", took)
		}
		if w.kind.Has&Fences != 0 {
			testlock.WantAfter(t, hold, before)
		}
		testlock.Unlock(t, hold)
		w.clean(t, "x")
	}},
	"WaitersAreServedInTheOrderInWhichTheyCame": {Turns, func(t *testing.T, w *world) {
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
	}},
	"ProcessesAreServedInTheOrderInWhichTheyCame": {Lines, func(t *testing.T, w *world) {
		_, hold := testlock.Lock(t, w.new("x"), bg)
		var waiting []<-chan testlock.Grant
		for range 5 {
			waiting = append(waiting, begin(t, w.process(t).rival("x"), bg))
		}
		for i, got := range waiting {
			testlock.Unlock(t, hold)
			next := granted(t, got)
			w.wants(t, next, hold)
			hold = next
			time.Sleep(settled)
			for _, others := range waiting[i+1:] {
				if len(others) > 0 {
					t.Fatalf("number %d is let in beside number %d", 5-len(waiting[i+1:]), i)
				}
			}
			_, _, err := w.new("x").TryLock(bg)
			testlock.WantError(t, "a try while others wait", err, rlock.ErrLocked)
		}
		testlock.Unlock(t, hold)
		w.clean(t, "x")
	}},
	"AWaitThatEndsSaysWhy": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		free := w.occupy(t, "x")
		holder := inspect(t, w.rival("x")).Owner
		why := errors.New("shift is over")
		short, cancel := context.WithTimeoutCause(bg, time.Second, why)
		defer cancel()
		ctx, none, err := m.Lock(short)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) || ctx != short || none != nil ||
			!strings.Contains(err.Error(), `"x"`) {
			t.Errorf("after the deadline: %v", err)
		}
		if locked, ok := refusal(err); errors.Is(err, rlock.ErrLocked) ||
			w.kind.Has&Mutexes != 0 && (!ok || locked.Holder != holder ||
				!strings.Contains(err.Error(), holder)) {
			t.Errorf("after the deadline, of the holder: %v", err)
		}
		for _, lock := range []func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error){
			m.Lock, m.TryLock,
		} {
			ctx, none, err := lock(short)
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, why) ||
				ctx != short || none != nil {
				t.Errorf("with an ended context: %v", err)
			}
		}
		ours, end := context.WithCancelCause(bg)
		end(errors.Join(rlock.ErrLost))
		_, _, err = m.Lock(ours)
		testlock.WantError(t, "with an end that has a prefix", err, context.Canceled)
		_, err = m.Inspect(short)
		testlock.WantError(t, "Inspect with an ended context", err, why)
		start := time.Now()
		_, _, err = w.new("x", rlock.WaitAtMost(time.Minute)).Lock(bg, rlock.WaitAtMost(time.Second))
		if !errors.Is(err, rlock.ErrLocked) || strings.Contains(err.Error(), "same session") ||
			time.Since(start) < time.Second || time.Since(start) > 2*time.Second {
			t.Errorf("after WaitAtMost, %v: %v", time.Since(start), err)
		}
		free()
		w.clean(t, "x")
	}},
	"WhoeverWaitsForItselfIsToldSo": {Hints, func(t *testing.T, w *world) {
		m := w.new("x")
		_, hold := testlock.Lock(t, m, bg)
		_, _, tried := m.TryLock(bg)
		_, _, waited := m.Lock(bg, rlock.WaitAtMost(time.Second))
		soon, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		_, _, ended := m.Lock(soon)
		for err, want := range map[error]error{
			tried: rlock.ErrLocked, waited: rlock.ErrLocked, ended: context.DeadlineExceeded,
		} {
			if locked, _ := refusal(err); !errors.Is(err, want) ||
				!strings.Contains(err.Error(), "same session") || locked.Holder == "" {
				t.Errorf("%v", err)
			}
		}
		testlock.Unlock(t, hold)
	}},
	"WaitersOfOneProcessAreAllToldWhoHoldsIt": {0, func(t *testing.T, w *world) {
		free := w.occupy(t, "x")
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				_, _, err := w.new("x").Lock(bg, rlock.WaitAtMost(time.Second))
				if locked, ok := refusal(err); !errors.Is(err, rlock.ErrLocked) || !ok ||
					locked.Holder == "" || locked.Remaining <= 0 {
					t.Errorf("%v", err)
				}
			})
		}
		all.Wait()
		free()
		w.clean(t, "x")
	}},
	// Proves: no trace
	"AWaiterThatLeavesHoldsUpNobody": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		free := w.occupy(t, "x")
		ctx, cancel := context.WithCancel(bg)
		gone := begin(t, m, ctx)
		got := begin(t, m, bg)
		_, _, err := m.TryLock(bg)
		testlock.WantError(t, "a try behind those that wait", err, rlock.ErrLocked)
		cancel()
		testlock.WantError(t, "the wait that was given up", (<-gone).Err, context.Canceled)
		time.Sleep(settled)
		free()
		testlock.Unlock(t, granted(t, got))
		w.clean(t, "x")
	}},
	"WhoeverIsServedAndGivesUpAtOneInstantLeavesNoLockBehind": {0, func(t *testing.T, w *world) {
		m := w.process(t, rlock.WithHandover(time.Hour)).lock("x")
		taken := []func() (free func()){func() func() { return w.occupy(t, "x") }}
		if w.kind.Has&Excludes != 0 { // the process can also pass the lock on in memory
			taken = append(taken, func() func() {
				_, hold := testlock.Lock(t, m, bg)
				return func() { testlock.Unlock(t, hold) }
			})
		}
		for i := range 60 {
			free := taken[i/2%len(taken)]()
			var got <-chan testlock.Grant
			if i%2 == 0 {
				ctx, cancel := context.WithCancel(bg)
				got = begin(t, m, ctx)
				go cancel()
			} else {
				got = testlock.Go(bg, m, rlock.WaitAtMost(settled))
				time.Sleep(settled)
			}
			free()
			if g := <-got; g.Err == nil {
				testlock.Unlock(t, g.Hold)
			} else if want := []error{context.Canceled, rlock.ErrLocked}[i%2]; !errors.Is(g.Err, want) {
				t.Errorf("%v, want %v", g.Err, want)
			}
			w.clean(t, "x")
		}
		quiet(t, w)
	}},
	"AHundredThatTakeTurnsAreNeverTwoInside": {Excludes, func(t *testing.T, w *world) {
		locks := []Lock{w.new("x"), w.new("x"), w.process(t).lock("x"), w.process(t).lock("x")}
		var wg sync.WaitGroup
		var mu sync.Mutex
		inside, last := 0, int64(0)
		for i := range 20 {
			wg.Go(func() {
				for range 5 {
					_, hold, err := locks[i%len(locks)].Lock(bg)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if inside++; inside != 1 || w.kind.Has&Fences != 0 && hold.Token() <= last {
						t.Errorf("%d inside, token %d after %d", inside, hold.Token(), last)
					}
					last = hold.Token()
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := hold.Unlock(bg); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		w.clean(t, "x")
	}},
}
