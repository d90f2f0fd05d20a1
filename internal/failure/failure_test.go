package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// ended returns a context that has ended. cause is the reason, or nil.
func ended(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

func TestEachTextSaysLocklineOnce(t *testing.T) {
	lost, closed := Named("x", ErrLost), Named("y", ErrClosed)
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New(UnlockedText("", "x")), `lockline: lock not held: this context belonged to a hold of ` +
			`lock "x" that was unlocked; go on with the context that this hold was acquired with`},
		{Named("y", OfContext(ended(errors.New(UnlockedText("semaphore", "x"))))), `lockline: lock "y": ` +
			`context canceled: lock not held: this context belonged to a hold of semaphore "x" ` +
			`that was unlocked; go on with the context that this hold was acquired with`},
		{lost, `lockline: lock "x": lock lost`},
		{Named("x", io.EOF), `lockline: lock "x": EOF`},
		{Named("x", fmt.Errorf("%w (look there)", ErrLost)), `lockline: lock "x": lock lost (look there)`},
		{Within("there", lost), `lockline: there: lock "x": lock lost`},
		{Within("there", io.EOF), "lockline: there: EOF"},
		{Named("z", Within("there", ErrLost)), `lockline: lock "z": there: lock lost`},
		{Join(lost, closed), `lockline: lock "x": lock lost; lock "y": session closed`},
		{Join(io.EOF, lost, closed), `EOF; lockline: lock "x": lock lost; lock "y": session closed`},
		{Join(lost, io.EOF, closed), `lockline: lock "x": lock lost; EOF; lock "y": session closed`},
		{Join(lost, Join(closed, ErrNotHeld)),
			`lockline: lock "x": lock lost; lock "y": session closed; lock not held`},
		{Within("there", Join(lost, closed)),
			`lockline: there: lock "x": lock lost; lock "y": session closed`},
		{Named("x", OfContext(ended(lost))), `lockline: lock "x": context canceled: lock "x": lock lost`},
		{OfWait(ended(closed), false, "", "x", &LockedError{Name: "x", Holder: "a:1"}),
			`lockline: lock "x": context canceled: lock "y": session closed; locked by a:1`},
		{OfWait(ended(nil), false, "", "x", &LockedError{Name: "x", Hint: " (it is yours)"}),
			`lockline: lock "x": context canceled (it is yours)`},
		{&LockedError{Name: "x"}, `lockline: lock "x": locked`},
		{&LockedError{What: "semaphore", Name: "x"}, `lockline: semaphore "x": not enough permits are free`},
		{&LockedError{What: "semaphore", Name: "x", Holder: "a:1"},
			`lockline: semaphore "x": not enough permits are free; some are held by a:1`},
		{&LockedError{Name: "x", Holder: "a:1", About: "12@h/3:v1.2.0 till/3:a"},
			`lockline: lock "x": locked by a:1 (12@h till/3:a)`},
		{&LockedError{Name: "x", Holder: "a:1", About: "12@h/3"}, `lockline: lock "x": locked by a:1 (12@h)`},
		{&LockedError{Name: "x", Holder: "a:1", About: "12@h/3:v1.2.0 \tjob 9"},
			`lockline: lock "x": locked by a:1 (12@h, note "job 9")`},
		{&LockedError{Name: "x", Holder: "a:1", About: "12@h", Remaining: 28697845971, Hint: SelfHint},
			`lockline: lock "x": locked by a:1 (12@h); its lease ends in 28.698s, ` +
				"unless it is renewed or released" + SelfHint},
		{&LockedError{Name: "x", Holder: "a:1~", About: "12@h", Remaining: 3 * time.Second},
			`lockline: lock "x": locked by a:1 (12@h), unlocked, and stays taken for ` +
				`another 3s (HoldAtLeast)`},
		{&LockedError{What: "semaphore", Name: "x", Holder: "a:1", Hint: SelfPermitsHint(2)},
			`lockline: semaphore "x": not enough permits are free; some are held by a:1 ` +
				"(permits that this same session holds: 2; if their holder called this Acquire, " +
				"it waits for itself)"},
	} {
		if got := c.err.Error(); got != c.want || strings.Count(got, prefix) > 1 {
			t.Errorf("%s\nwant %s", got, c.want)
		}
	}
}

func TestWordsBeforeAnErrorHideNothingOfIt(t *testing.T) {
	locked := &LockedError{Name: "x", Holder: "a:1"}
	for _, err := range []error{Named("x", locked), Within("there", locked),
		Join(io.EOF, locked), Within("there", Join(io.EOF, Named("x", locked)))} {
		var found *LockedError
		if !errors.Is(err, ErrLocked) || !errors.As(err, &found) || found != locked ||
			errors.Is(err, ErrLost) {
			t.Errorf("%v: %+v", err, found)
		}
	}
	if !errors.Is(ErrUnlocked, ErrNotHeld) {
		t.Error("an error does not match its kind")
	}
}

func TestJoinedErrorsAreEachFound(t *testing.T) {
	if err := Join(); err != nil {
		t.Errorf("of nothing: %v", err)
	}
	if err := Join(nil, nil); err != nil {
		t.Errorf("of nil: %v", err)
	}
	if err := Join(nil, io.EOF, nil); err != io.EOF {
		t.Errorf("of one: %v", err)
	}
	if err := Join(nil, io.EOF, nil, ErrLost); !errors.Is(err, io.EOF) || !errors.Is(err, ErrLost) ||
		errors.Is(err, ErrClosed) {
		t.Errorf("of two: %v", err)
	}
}

// reply is an error that a server answers with.
type reply string

func (e reply) Error() string { return string(e) }
func (reply) RedisError()     {}

func TestAWaitThatEndsInAnOutageSaysWhetherRedisAnswered(t *testing.T) {
	ran := Of("semaphore", "x", ErrNoAnswer)
	for _, c := range []struct {
		err, last error
		want      string
	}{
		{ran, nil, ran.Error()},
		{ran, errors.New("EOF"), ran.Error() + "; the last request failed: EOF"},
		{ran, fmt.Errorf("%w (hint)", reply("READONLY x")), `lockline: semaphore "x": ` +
			"Redis refused the last request before the wait was over: READONLY x (hint)"},
		{ErrClosed, reply("READONLY x"), "lockline: session closed; the last request failed: READONLY x"},
	} {
		got := Troubled(c.err, c.last)
		if got.Error() != c.want || errors.Is(got, ErrNoAnswer) != (c.err == ran) ||
			errors.As(got, new(reply)) {
			t.Errorf("%v", got)
		}
	}
}

// The last failed request may have belonged to another caller, which gave up.
func TestAnOutageIsNoCanceledWait(t *testing.T) {
	err := Outage(time.Now(), fmt.Errorf("x: %w", context.Canceled))
	if errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "context canceled") {
		t.Error(err)
	}
	if err := Outage(time.Now(), io.EOF); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}

func TestAWaitWithoutAnAnswerSaysHowLongItWas(t *testing.T) {
	ran, over := Of("semaphore", "x", ErrNoAnswer), OfWait(ended(nil), false, "", "x", nil)
	for _, c := range []struct {
		err            error
		waited, atMost time.Duration
		want           string
	}{
		{ran, time.Second, 2 * time.Millisecond, `lockline: semaphore "x": ` +
			"no answer from Redis within 2ms, the wait that WaitAtMost allows"},
		{ran, time.Second, 0, `lockline: semaphore "x": no answer from Redis within 1s (why)`},
		{over, 2 * time.Second, 0,
			`lockline: lock "x": context canceled; no answer from Redis within 2s (why)`},
		{over, time.Microsecond, time.Hour,
			`lockline: lock "x": context canceled; no answer from Redis within 1ms`},
		{Named("x", ErrClosed), time.Second, 0, `lockline: lock "x": session closed`},
	} {
		hint := ""
		if c.atMost == 0 {
			hint = " (why)"
		}
		got := Unanswered(c.err, c.waited, c.atMost, hint)
		if got.Error() != c.want || errors.Is(got, os.ErrDeadlineExceeded) != (c.err == ran) ||
			errors.Is(got, context.Canceled) != (c.err == over) {
			t.Errorf("%v", got)
		}
	}
}

func TestAnEndedWaitKnowsTheHolderAndIsNoErrLocked(t *testing.T) {
	locked := &LockedError{Name: "x", Holder: "a:1"}
	err := OfWait(ended(ErrClosed), false, "", "x", locked)
	for _, err := range []error{err, Within("there", err), fmt.Errorf("users say: %w", err)} {
		var found *LockedError
		if !errors.As(err, &found) || found != locked {
			t.Errorf("%v: %+v", err, found)
		}
		if errors.Is(err, ErrLocked) || !errors.Is(err, context.Canceled) || !errors.Is(err, ErrClosed) {
			t.Errorf("%v matches something else", err)
		}
	}
}

// publicLocked stands for the public type to which a LockedError is converted.
type publicLocked LockedError

func (e *publicLocked) Error() string { return (*LockedError)(e).Error() }

func TestUsersFindInAnEndedWaitTheTypeThatTheyKnow(t *testing.T) {
	defer func(before func(error) error) { Public = before }(Public)
	Public = func(err error) error { return (*publicLocked)(err.(*LockedError)) }
	var public *publicLocked
	err := OfWait(ended(nil), false, "", "x", &LockedError{Name: "x", Holder: "a:1"})
	if !errors.As(err, &public) || public.Holder != "a:1" {
		t.Errorf("%v: %+v", err, public)
	}
}

// reasons is an error that Go cannot compare.
type reasons []string

func (r reasons) Error() string { return r[0] }

// odd is a context of a user's own type, whose error Go cannot compare.
type odd struct{ context.Context }

func (odd) Err() error { return reasons{"shut down"} }

func TestAnEndedContextMayHaveAnErrorThatGoCannotCompare(t *testing.T) {
	for _, ctx := range []context.Context{odd{context.Background()}, ended(reasons{"shut down"})} {
		err := OfContext(ctx)
		if !errors.As(err, new(reasons)) || !strings.Contains(err.Error(), "shut down") {
			t.Errorf("%v", err)
		}
	}
}

func TestAnEndedContextIsMatchedByItsErrorAndItsCause(t *testing.T) {
	if err := OfContext(ended(nil)); err != context.Canceled {
		t.Errorf("without a cause: %#v", err)
	}
	timeout, cancel := context.WithDeadlineCause(context.Background(), time.Now(), ErrLost)
	defer cancel()
	for _, c := range []struct {
		ctx  context.Context
		is   error
		text string
	}{
		{ended(ErrLost), context.Canceled, "context canceled: lock lost"},
		{timeout, context.DeadlineExceeded, "context deadline exceeded: lock lost"},
	} {
		if err := OfContext(c.ctx); !errors.Is(err, c.is) || !errors.Is(err, ErrLost) ||
			err.Error() != c.text {
			t.Errorf("%v", err)
		}
	}
}
