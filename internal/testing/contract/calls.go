package contract

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// calls has tests of calls during outages, of Unlocks with any context, and of calls that wait for an Unlock.
var calls = map[string]test{
	// Proves: no trace
	"CallsEndWithTheirContextsWhileServersAreSilentAndAreUndone": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		m, tried := p.lock("x"), p.lock("w")
		testlock.Works(t, m)
		_, mine := testlock.Lock(t, p.lock("y"), bg)
		free := w.occupy(t, "z")
		waits, leave := context.WithCancel(bg)
		waiting := begin(t, p.lock("z"), waits)
		for _, net := range p.nets {
			net.Freeze()
		}
		most := 2 * patience // only the ReadTimeout of the client ends the first call
		ends := func(what string, want error, call func(ctx context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(bg, settled)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			testlock.WantError(t, what, err, want)
			if took := time.Since(start); took > most || errors.Is(err, rlock.ErrLocked) {
				t.Errorf("%s, after %v: %v", what, took, err)
			}
			most = patience / 2
		}
		ends("Lock", context.DeadlineExceeded, func(ctx context.Context) error {
			_, _, err := m.Lock(ctx)
			return err
		})
		ends("TryLock", context.DeadlineExceeded, func(ctx context.Context) error {
			_, _, err := tried.TryLock(ctx)
			return err
		})
		ends("a wait", os.ErrDeadlineExceeded, func(context.Context) error {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(settled))
			return err
		})
		ends("Unlock", context.DeadlineExceeded, mine.Unlock)
		ends("a wait that is given up", context.Canceled, func(context.Context) error {
			leave()
			return (<-waiting).Err
		})
		for _, net := range p.nets {
			net.Thaw()
		}
		time.Sleep(10 * time.Second)
		free()
		for _, name := range []string{"w", "x", "y", "z"} {
			w.clean(t, name)
		}
	}},
	"ALockRidesOutAnOutage": {0, func(t *testing.T, w *world) {
		const outage = "LOADING nothing is answered"
		m := w.new("x")
		bounded, cancel := context.WithTimeout(bg, 10*time.Second)
		defer cancel()
		for _, ctx := range []context.Context{bounded, bg} {
			w.fail(outage)
			start := time.Now()
			got := begin(t, m, ctx)
			time.Sleep(2 * time.Second)
			w.fail("")
			testlock.Unlock(t, granted(t, got))
			if took := time.Since(start); took > 4*time.Second {
				t.Errorf("%v", took)
			}
		}
		w.fail(outage)
		start := time.Now()
		_, _, err := m.Lock(bg)
		if took := time.Since(start); err == nil || !strings.Contains(err.Error(), "gave up after 1") ||
			!strings.Contains(err.Error(), outage) || took < lease || took > lease+2*time.Second {
			t.Errorf("without a bound, after %v: %v", took, err)
		}
		start = time.Now()
		_, _, err = m.Lock(bg, rlock.WaitAtMost(40*time.Second))
		if took := time.Since(start); err == nil || !strings.Contains(err.Error(), outage) ||
			took < 40*time.Second || took > 41*time.Second {
			t.Errorf("WaitAtMost, after %v: %v", took, err)
		}
		w.fail("")
		time.Sleep(time.Minute)
		w.clean(t, "x")
	}},
	"CallsEndWithTheirContextsWhereServersHaveNeverAnswered": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		for _, net := range p.nets {
			net.Freeze()
		}
		type acquire func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error)
		for what, lock := range map[string]acquire{"Lock": p.lock("x").Lock, "TryLock": p.lock("y").TryLock} {
			ctx, cancel := context.WithTimeout(bg, settled)
			start := time.Now()
			_, _, err := lock(ctx)
			cancel()
			testlock.WantError(t, what, err, context.DeadlineExceeded)
			if took := time.Since(start); took > settled+call.LeavingTime {
				t.Errorf("%s returned after %v", what, took)
			}
		}
		for _, net := range p.nets {
			net.Thaw()
		}
		time.Sleep(10 * time.Second)
		w.clean(t, "x")
		w.clean(t, "y")
	}},
	"AnUnlockWithAnyContextEndsTheHold": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		ended, cancel := context.WithCancel(bg)
		cancel()
		var none context.Context
		for _, of := range []func(held context.Context) context.Context{
			func(held context.Context) context.Context { return held },
			func(context.Context) context.Context { return ended },
			func(context.Context) context.Context { return bg },
			func(context.Context) context.Context { return none },
		} {
			held, hold := testlock.Lock(t, m, bg)
			testlock.Must(t, hold.Unlock(of(held)))
			testlock.WantError(t, "the cause", context.Cause(held), rlock.ErrNotHeld)
			if inspect(t, m).Held {
				t.Error("it is held")
			}
		}
	}},
	// Proves: close
	"ATryWaitsForAnUnlockThatIsUnderWay": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		m := p.lock("x")
		testlock.Works(t, m)
		for _, ctx := range []context.Context{bg, rlock.WithOwner(bg)} {
			_, hold := testlock.Lock(t, m, ctx)
			for _, net := range p.nets {
				net.SetDelay(50 * time.Millisecond)
			}
			ended := make(chan error, 1)
			go func() { ended <- hold.Unlock(ctx) }()
			synctest.Wait()
			_, next, err := m.TryLock(ctx)
			testlock.Must(t, err)
			testlock.Must(t, <-ended)
			testlock.Unlock(t, next)
			for _, net := range p.nets {
				net.SetDelay(0)
			}
		}
		w.clean(t, "x")
	}},
	// Proves: close
	"CloseWaitsForUnlocksThatAreUnderWay": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		var holds []*rlock.Hold
		for _, name := range []string{"x", "y", "z"} {
			_, hold := testlock.Lock(t, p.lock(name), bg)
			holds = append(holds, hold)
		}
		for _, net := range p.nets {
			net.SetDelay(50 * time.Millisecond)
		}
		ended := make(chan error, len(holds))
		for _, hold := range holds {
			go func() { ended <- hold.Unlock(bg) }()
		}
		synctest.Wait()
		testlock.Must(t, p.close())
		for _, name := range []string{"x", "y", "z"} {
			_, hold := testlock.TryLock(t, w.rival(name), bg)
			testlock.Unlock(t, hold)
		}
		for range holds {
			testlock.Must(t, <-ended)
		}
	}},
}
