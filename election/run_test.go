package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// ran starts Run in a goroutine, and returns a channel that receives its error.
func ran(
	e *election.Election, ctx context.Context, value string, fn func(context.Context) error,
) chan error {
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, value, fn) }()
	return ended
}

func TestRunLeadsUntilItsFunctionReturnsAndThenTheNextOneLeads(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		one, two := newElection(t, w.Client), newElection(t, w.Client)
		done := errors.New("done")
		release := make(chan struct{})
		first := ran(one, bg, "one", func(context.Context) error { <-release; return done })
		testlock.Settle()
		second := ran(two, bg, "two", func(ctx context.Context) error {
			leader, _, err := two.Leader(ctx)
			if leader.Value != "two" {
				t.Errorf("while two leads: %+v", leader)
			}
			return err
		})
		testlock.Settle()
		if n := candidates(t, one); n != 2 {
			t.Errorf("%d candidates, with the leader", n)
		}
		close(release)
		if err := testlock.Receive(t, "the first Run", first); !errors.Is(err, done) {
			t.Error(err)
		}
		testlock.Must(t, testlock.Receive(t, "the second Run", second))
		wantLeader(t, one, 0, "")
	})
}

// The function returns nil, as a function may that only waits for its context.
func TestRunCampaignsAgainAfterALoss(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		e := election.New(s, "x")
		leads := make(chan context.Context, 10)
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		ended := ran(e, ctx, "one", func(ctx context.Context) error {
			leads <- ctx
			<-ctx.Done()
			return nil
		})
		for range 3 {
			leading := testlock.Receive(t, "a leadership", leads)
			testlock.ForceUnlock(t, fairlock.New(s, "x"))
			testlock.Receive(t, "the end of the leadership", leading.Done())
			testlock.WantError(t, "the context", context.Cause(leading), rlock.ErrLost)
		}
		testlock.Receive(t, "a leadership", leads)
		cancel() // now Run returns the result of the function
		testlock.Must(t, testlock.Receive(t, "the end of Run", ended))
		wantLeader(t, e, 0, "")
	})
}

// The context of Run descends from the hold of another lock. The loss of that hold ends the context of the
// function, but not the leadership.
func TestRunReturnsTheResultThoughAnOuterLockWasLost(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		outer := rlock.New(testlock.NewSession(t, w.Client), "outer")
		held, _ := testlock.Lock(t, outer, bg)
		done := errors.New("done")
		leads := make(chan context.Context, 1)
		ended := ran(e, held, "one", func(ctx context.Context) error {
			leads <- ctx
			<-ctx.Done()
			return done
		})
		leading := testlock.Receive(t, "a leadership", leads)
		testlock.ForceUnlock(t, outer)
		err := testlock.Receive(t, "the end of Run", ended)
		testlock.WantError(t, "the context", context.Cause(leading), rlock.ErrLost)
		if err != done {
			t.Errorf("Run returned %v", err)
		}
		wantLeader(t, e, 0, "")
	})
}

func TestRunRidesOutAnOutageThatIsLongerThanALease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		w.Net.Refuse(true)
		w.Net.CutAll()
		ended := ran(e, bg, "one", func(context.Context) error { return nil })
		time.Sleep(5 * time.Minute)
		w.Net.Refuse(false)
		testlock.Must(t, testlock.Receive(t, "the end of Run", ended))
	})
}

// Resign is called with the context of the leadership, because code often has no other context.
func TestResignWithTheContextOfTheLeadershipWaitsForTheAnswer(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		leading, l := lead(t, newElection(t, w.Client), "one")
		w.Net.SetDelay(100 * time.Millisecond)
		testlock.Must(t, l.Resign(leading))
	})
}

func TestRunEndsWithItsContextAndItsSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, l := lead(t, newElection(t, w.Client), "other")
		s := testlock.NewSession(t, w.Client)
		e := election.New(s, "x")
		never := func(context.Context) error { t.Error("it leads"); return nil }
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(bg)
		ended := ran(e, ctx, "one", never)
		testlock.Settle()
		cancel(why)
		err := testlock.Receive(t, "the end of Run", ended)
		testlock.WantError(t, "Run", err, why)
		testlock.WantError(t, "Run", err, context.Canceled)

		ended = ran(e, bg, "one", never)
		testlock.Settle()
		testlock.Must(t, s.Close())
		testlock.WantError(t, "Run", testlock.Receive(t, "the end of Run", ended), rlock.ErrClosed)
		resign(t, l)
	})
}

func TestARunWhoseFunctionPanicsResigns(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		func() {
			defer func() {
				if p := recover(); p != "panic" {
					t.Errorf("recovered %v", p)
				}
			}()
			_ = e.Run(bg, "one", func(context.Context) error { panic("panic") })
		}()
		wantLeader(t, e, 0, "")
	})
}

func TestARunBelowARunKeepsTheLeadership(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		inner := errors.New("inner")
		err := e.Run(bg, "one", func(ctx context.Context) error {
			err := e.Run(ctx, "two", func(ctx context.Context) error {
				if leader, _, _ := e.Leader(ctx); leader.Value != "two" {
					t.Errorf("inside: %+v", leader)
				}
				return inner
			})
			if ctx.Err() != nil {
				t.Error("the inner Run resigned")
			}
			return err
		})
		testlock.WantError(t, "Run", err, inner)
		wantLeader(t, e, 0, "")
	})
}

func TestMistakesAndRefusalsEndARunAtOnce(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		fn := func(context.Context) error { t.Error("it leads"); return nil }
		lost, l := lead(t, e, "x")
		testlock.ForceUnlock(t, fairlock.New(testlock.NewSession(t, w.Client), "x"))
		_ = l.Proclaim(bg, "finds out")
		_ = w.Client.Set(bg, "lockline:f:{odd}", "of another program", 0)
		odd := election.New(testlock.NewSession(t, w.Client), "odd")
		long := strings.Repeat("x", election.MaxValue+1)
		for text, run := range map[string]func() error{
			"the function is nil": func() error { return e.Run(bg, "x", nil) },
			"the context is nil":  func() error { return e.Run(context.Context(nil), "x", fn) },
			"the session is nil":  func() error { return election.New(nil, "x").Run(bg, "x", fn) },
			"nil or a zero value": func() error { return (*election.Election)(nil).Run(bg, "x", fn) },
			"bytes, over":         func() error { return e.Run(bg, long, fn) },
			"WRONGTYPE":           func() error { return odd.Run(bg, "x", fn) },
			"lost":                func() error { return e.Run(context.WithoutCancel(lost), "x", fn) },
		} {
			begun := time.Now()
			err := run()
			took := time.Since(begun)
			if err == nil || !strings.Contains(err.Error(), text) || took > time.Second {
				t.Errorf("%q, after %v: %v", text, took, err)
			}
		}
	})
}
