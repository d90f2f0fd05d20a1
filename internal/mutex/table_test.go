package mutex_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
)

func TestALockIsForgottenWhenNobodyNeedsIt(t *testing.T) {
	l := newLock(t)
	var in *mutex.Lock
	enter := func() {
		got, err := l.m.Enter()
		if err != nil {
			t.Fatal(err)
		}
		if in != nil && got != in {
			t.Error("it is another lock while the first is known")
		}
		in = got
	}
	leave, keep, drop := func() { in.Leave() }, func() { in.Keep() }, func() { in.Drop() }
	for i, step := range []struct {
		do        func()
		forgotten int64
	}{{enter, 0}, {enter, 0}, {leave, 0}, {keep, 0}, {keep, 0}, {drop, 0}, {leave, 0}, {enter, 0}, {leave, 0}, {drop, 1}} {
		if step.do(); l.forgotten.Load() != step.forgotten {
			t.Errorf("after step %d it was forgotten %d times", i, l.forgotten.Load())
		}
	}
	former := in
	in = nil
	if enter(); in == former {
		t.Error("it is the lock that was forgotten")
	}
	if leave(); l.forgotten.Load() != 2 {
		t.Errorf("the next one was forgotten %d times", l.forgotten.Load()-1)
	}
}

func TestALockIsKnownAsLongAsItIsHeldOrWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLock(t)
		want := func(when string, n int64) {
			t.Helper()
			synctest.Wait()
			if got := l.forgotten.Load(); got != n {
				t.Errorf("%s: forgotten %d times", when, got)
			}
		}
		ctx, hold := l.lock(t, bg, mutex.Config{})
		_, nested := l.lock(t, ctx, mutex.Config{})
		next := l.wait(t, bg, mutex.Config{})
		unlock(t, nested)
		unlock(t, hold)
		hold = granted(t, next)
		want("held", 0)
		impatient, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if g := l.acquire(t, impatient, mutex.Config{}); !errors.Is(g.err, context.DeadlineExceeded) {
			t.Error(g.err)
		}
		want("still held", 0)
		unlock(t, hold)
		want("unlocked", 1)

		_, hold = l.lock(t, bg, mutex.Config{})
		lose(hold)
		want("lost", 2)
		_ = hold.Unlock(bg)
		want("unlocked after the loss", 2)
		_, _ = l.lock(t, bg, mutex.Config{})
		if err := l.s.Shutdown(bg); err != nil {
			t.Error(err)
		}
		want("closed", 3)
		if _, err := l.m.Enter(); !errors.Is(err, failure.ErrClosed) {
			t.Errorf("Enter: %v", err)
		}
	})
}
