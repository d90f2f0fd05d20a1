package locktest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestSeveralLocksAreTakenAsOne(t *testing.T) {
	everyKind(t, func(t *testing.T, w world) {
		a, b := w.new("a"), w.new("b")
		both := multilock.New(a, b)
		ctx, hold := testlock.Lock(t, both, bg)
		parts := hold.Parts()
		if len(parts) != 2 || parts[0].Name() != "a" || parts[1].Name() != "b" || !w.inspect(t, "a").Held ||
			!w.inspect(t, "b").Held {
			t.Errorf("%v, %+v, %+v", parts, w.inspect(t, "a"), w.inspect(t, "b"))
		}
		below, again := testlock.Lock(t, both, ctx)
		_, one := testlock.Lock(t, a, below, rlock.WaitAtMost(time.Second))
		testlock.Unlock(t, one)
		testlock.Unlock(t, again)
		w.lose(t, parts[1])
		<-ctx.Done()
		cause := context.Cause(ctx)
		if !errors.Is(cause, rlock.ErrLost) || !strings.Contains(cause.Error(), `"b"`) {
			t.Errorf("the cause does not name the lock: %v", cause)
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		if w.inspect(t, "a").Held {
			t.Error("a part is left")
		}

		free := w.occupy(t, "b")
		_, _, err := both.TryLock(bg)
		var member *multilock.MemberError
		if !errors.Is(err, rlock.ErrLocked) || !errors.As(err, &member) || member.Name != "b" ||
			w.inspect(t, "a").Held {
			t.Errorf("TryLock: %v, %+v", err, w.inspect(t, "a"))
		}
		got := make(chan *rlock.Hold, 1)
		go func() { _, hold := testlock.Lock(t, both, bg); got <- hold }()
		time.Sleep(settled)
		if w.inspect(t, "a").Held {
			t.Error("it holds one while it waits for the other")
		}
		free()
		testlock.Unlock(t, <-got)
	})
}

func TestSpacesAreWorldsOfTheirOwn(t *testing.T) {
	var one, other locktest.Space
	_, a := testlock.TryLock(t, one.New("x"), bg)
	_, b := testlock.TryLock(t, other.New("x"), bg)
	down := errors.New("down")
	other.Fail(down)
	_, _, err := multilock.New(one.New("y"), other.New("y")).TryLock(bg)
	testlock.WantError(t, "one of several fails", err, down)
	if one.Inspect("y").Held {
		t.Error("a part is left")
	}
	testlock.Unlock(t, a)
	testlock.WantError(t, "Unlock", b.Unlock(bg), down)
}
