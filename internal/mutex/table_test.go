package mutex

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
)

func TestALockIsForgottenWhenNobodyNeedsIt(t *testing.T) {
	l := newStore(t)
	var in *Lock
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
		forgotten bool
	}{
		{enter, false}, {enter, false}, {leave, false}, {keep, false}, {keep, false}, {drop, false}, {leave, false},
		{enter, false}, {leave, false}, {drop, true},
	} {
		if step.do(); l.forgotten() != step.forgotten {
			t.Errorf("after step %d it was forgotten: %v", i, !step.forgotten)
		}
	}
	former := in
	in = nil
	if enter(); in == former {
		t.Error("it is the lock that was forgotten")
	}
	if leave(); !l.forgotten() {
		t.Error("the next one is not forgotten")
	}
}

func TestALockIsKnownAsLongAsItIsHeldOrWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newStore(t)
		want := func(when string, forgotten bool) {
			t.Helper()
			if synctest.Wait(); l.forgotten() != forgotten {
				t.Errorf("%s: forgotten: %v", when, !forgotten)
			}
		}
		ctx, hold := l.lock(t, bg, Config{})
		_, nested := l.lock(t, ctx, Config{})
		next := l.wait(t, bg, Config{})
		unlock(t, nested)
		unlock(t, hold)
		hold = granted(t, next)
		want("held", false)
		impatient, cancel := context.WithTimeout(bg, time.Second)
		defer cancel()
		if g := l.acquire(t, impatient, Config{}); !errors.Is(g.err, context.DeadlineExceeded) {
			t.Error(g.err)
		}
		want("still held", false)
		unlock(t, hold)
		want("unlocked", true)

		_, hold = l.lock(t, bg, Config{})
		lose(hold)
		want("lost", true)
		_ = hold.Unlock(bg)
		want("unlocked after the loss", true)
		_, _ = l.lock(t, bg, Config{})
		if err := l.s.Shutdown(bg); err != nil {
			t.Error(err)
		}
		want("closed", true)
		if _, err := l.m.Enter(); !errors.Is(err, failure.ErrClosed) {
			t.Errorf("Enter: %v", err)
		}
	})
}
