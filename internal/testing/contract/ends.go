package contract

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// goexit ends a goroutine as t.FailNow does.
func goexit() { runtime.Goexit() }

// down(true) makes all servers silent, and down(false) makes them answer again.
func (w *world) down(down bool) {
	for _, net := range w.nets {
		net.BlackHole(down, false)
	}
}

// ends has tests of holders and waiters after a loss, a forced unlock, a Close or an outage.
var ends = map[string]test{
	// Proves: re-entry, notice
	"ALossEndsTheContextAndEverythingBelowIt": {Reenters, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		below, nested := testlock.Lock(t, m, ctx)
		w.lose(t, "x", hold)
		for _, ctx := range []context.Context{ctx, below} {
			<-ctx.Done()
			testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrLost)
			_, _, err := m.Lock(ctx)
			testlock.WantError(t, "a re-entry", err, rlock.ErrLost)
			_, _, err = m.Lock(context.WithoutCancel(ctx))
			testlock.WantError(t, "a detached re-entry", err, rlock.ErrLost)
		}
		if inspect(t, m).Held {
			t.Error("still held")
		}
		for _, h := range []*rlock.Hold{hold, nested} {
			testlock.WantError(t, "Err", h.Err(), rlock.ErrLost)
			testlock.WantError(t, "Extend", h.Extend(bg, time.Minute), rlock.ErrLost)
			testlock.WantError(t, "Unlock", h.Unlock(bg), rlock.ErrLost)
			testlock.WantError(t, "a second Unlock", h.Unlock(bg), rlock.ErrNotHeld)
		}
		_, next := testlock.Lock(t, m, bg)
		w.wants(t, next, hold)
		testlock.Unlock(t, next)
		w.clean(t, "x")
	}},
	"ALossIsFoundByTheNextRequestOrRenewal": {0, func(t *testing.T, w *world) {
		m, other := w.new("x"), w.rival("x")
		for what, find := range map[string]func(ctx context.Context, hold *rlock.Hold) error{
			"Unlock": func(_ context.Context, hold *rlock.Hold) error { return hold.Unlock(bg) },
			"Extend": func(_ context.Context, hold *rlock.Hold) error {
				return hold.Extend(bg, time.Minute)
			},
			"a renewal": func(ctx context.Context, _ *rlock.Hold) error {
				<-ctx.Done()
				return context.Cause(ctx)
			},
		} {
			for others := range 3 {
				ctx, hold := testlock.Lock(t, m, bg)
				force(t, m)
				for range others {
					testlock.Works(t, other)
				}
				start := time.Now()
				testlock.WantError(t, what, find(ctx, hold), rlock.ErrLost)
				if took := time.Since(start); took > 10*time.Second {
					t.Errorf("found by %s after %v", what, took)
				}
				_ = hold.Unlock(bg)
			}
		}
		w.clean(t, "x")
	}},
	"WhoeverWaitsGetsWhatAnotherLost": {Reenters | Excludes, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, ctx)
		below := begin(t, m, context.WithoutCancel(ctx)) // waits until nested is unlocked
		got := begin(t, m, bg)
		w.lose(t, "x", hold)
		testlock.WantError(t, "the wait for a re-entry", (<-below).Err, rlock.ErrLost)
		next := granted(t, got)
		testlock.WantError(t, "a late Unlock", nested.Unlock(bg), rlock.ErrLost)
		if next.Err() != nil {
			t.Error("it ended another's hold")
		}
		testlock.Unlock(t, next)
		w.clean(t, "x")
	}},
	"AForcedUnlockLetsTheNextOneIn": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		got := begin(t, w.rival("x"), bg)
		start := time.Now()
		force(t, m)
		next := granted(t, got)
		if took := time.Since(start); took > settled {
			t.Errorf("served after %v", took)
		}
		w.wants(t, next, hold)
		<-ctx.Done()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("its holder learned of it after %v", took)
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Must(t, next.Err())
		testlock.Unlock(t, next)
		time.Sleep(settled) // a minority of a RedLock's servers may get the release later
		if held, err := m.Force(bg); held || err != nil {
			t.Errorf("of a free one: %v, %v", held, err)
		}
		w.clean(t, "x")
	}},
	// The first copy of each request frees the lock, and the second copy finds it free.
	"AForcedUnlockWhoseReplyWasLostIsNotReportedAsRefused": {0, func(t *testing.T, w *world) {
		operator := w.process(t)
		m := operator.lock("x")
		if held, err := m.Force(bg); held || err != nil { // now the servers have the script
			t.Errorf("of a free one: %v, %v", held, err)
		}
		_, hold := testlock.Lock(t, w.new("x"), bg)
		for _, net := range operator.nets {
			var first sync.Once
			net.OnRequest(func(r *faultproxy.Request) (a faultproxy.Action) {
				if r.Script() != "" {
					first.Do(func() { a = faultproxy.CutReply })
				}
				return a
			})
		}
		if held, err := m.Force(bg); err == nil && !held {
			t.Error("the lock was freed")
		}
		for _, net := range operator.nets {
			net.OnRequest(nil)
		}
		if _, err := m.Force(bg); err != nil { // some kinds are forced by several requests
			t.Errorf("once more: %v", err)
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		w.clean(t, "x")
	}},
	// Proves: forced unlock
	"ForceUnlockTokenFreesOnlyTheHoldThatWasSeen": {Fences, func(t *testing.T, w *world) {
		m, operator := w.new("x"), w.process(t).lock("x")
		wants := func(what string, token int64, want bool) {
			t.Helper()
			if freed, err := operator.ForceToken(bg, token); err != nil || freed != want {
				t.Errorf("%s: %v, %v", what, freed, err)
			}
		}
		_, first := testlock.Lock(t, m, bg)
		testlock.Unlock(t, first)
		wants("a free lock", first.Token(), false)
		ctx, hold := testlock.Lock(t, m, bg)
		wants("another holder", first.Token(), false)
		wants("a token of its block that it has not used", hold.Token()+1, false)
		testlock.Must(t, hold.Extend(bg, time.Minute))
		testlock.Must(t, ctx.Err())
		wants("the holder that was seen", hold.Token(), true)
		wants("once more", hold.Token(), false)
		testlock.WantError(t, "Unlock after a forced one", hold.Unlock(bg), rlock.ErrLost)
		for _, token := range []int64{0, -1} {
			if freed, err := operator.ForceToken(bg, token); err == nil || freed {
				t.Errorf("token %d: %v, %v", token, freed, err)
			}
		}
		w.clean(t, "x")
	}},
	"UnlockTwiceTouchesNothing": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		_, h1 := testlock.Lock(t, m, bg)
		testlock.Unlock(t, h1)
		_, h2 := testlock.Lock(t, m, bg)
		testlock.WantError(t, "a second Unlock", h1.Unlock(bg), rlock.ErrNotHeld)
		testlock.WantError(t, "Extend", h1.Extend(bg, time.Minute), rlock.ErrNotHeld)
		if h2.Err() != nil || !inspect(t, m).Held {
			t.Error("the second Unlock freed another's lock")
		}
		testlock.Unlock(t, h2)
		w.clean(t, "x")
	}},
	"CloseGivesBackAtOnceWhatIsHeldAndWaitedFor": {0, func(t *testing.T, w *world) {
		p := w.process(t, rlock.WithHandover(time.Minute))
		m := p.lock("x")
		ctx, mine := testlock.Lock(t, m, bg)
		_, fixed := testlock.Lock(t, p.lock("z"), bg, rlock.WithLease(time.Hour))
		free := w.occupy(t, "y")
		var waiting []<-chan testlock.Grant
		for range 3 {
			waiting = append(waiting, begin(t, p.lock("y"), bg))
		}
		if w.kind.Has&Excludes != 0 { // the process then passes the lock on in memory
			next := begin(t, p.lock("x"), bg)
			waiting = append(waiting, begin(t, p.lock("x"), bg))
			testlock.Unlock(t, mine)
			g := <-next
			testlock.Must(t, g.Err)
			ctx, mine = g.Ctx, g.Hold
		}
		theirs := begin(t, w.rival("x"), bg)
		start := time.Now()
		testlock.Must(t, p.close())
		for _, got := range waiting {
			testlock.WantError(t, "a wait of a closed session", (<-got).Err, rlock.ErrClosed)
		}
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrClosed)
		for _, hold := range []*rlock.Hold{mine, fixed} {
			testlock.WantError(t, "Err", hold.Err(), rlock.ErrClosed)
			testlock.WantError(t, "Extend", hold.Extend(bg, time.Minute), rlock.ErrClosed)
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrClosed)
		}
		for _, l := range []Lock{m, p.lock("x")} {
			for _, ctx := range []context.Context{ctx, bg} {
				_, _, err := l.Lock(ctx)
				testlock.WantError(t, "Lock on a closed session", err, rlock.ErrClosed)
				_, _, err = l.TryLock(ctx)
				testlock.WantError(t, "TryLock on a closed session", err, rlock.ErrClosed)
			}
			_, err := l.Inspect(bg)
			testlock.WantError(t, "Inspect on a closed session", err, rlock.ErrClosed)
			_, err = l.Force(bg)
			testlock.WantError(t, "Force on a closed session", err, rlock.ErrClosed)
		}
		testlock.Must(t, p.close())
		testlock.Unlock(t, granted(t, theirs))
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
		free()
		for _, name := range []string{"x", "y", "z"} {
			w.clean(t, name)
		}
	}},
	"TheUnlockOfALostHoldLeavesTheNextOneToItsProcess": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		m := p.lock("x")
		_, lost := testlock.Lock(t, m, bg)
		force(t, m)
		testlock.WantError(t, "Extend", lost.Extend(bg, time.Minute), rlock.ErrLost)
		ctx, hold := testlock.Lock(t, m, bg)
		testlock.WantError(t, "its Unlock", lost.Unlock(bg), rlock.ErrLost)
		time.Sleep(settled) // the session may still send the request of this Unlock
		testlock.Must(t, p.close())
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrClosed)
		testlock.WantError(t, "Err", hold.Err(), rlock.ErrClosed)
		w.clean(t, "x")
	}},
	// The servers refuse a release because a right is missing. When an operator gives the right, the lock
	// must become free.
	"AReleaseThatServersRefuseIsRepeated": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		_, hold := testlock.Lock(t, p.lock("x"), bg)
		const refusal = "NOPERM this user has no permissions to run the 'evalsha' command"
		w.fail(refusal)
		if err := hold.Unlock(bg); err == nil {
			t.Error("no error of a release that was refused")
		}
		time.Sleep(time.Second)
		w.fail("")
		time.Sleep(3 * time.Second)
		w.clean(t, "x")
		_, kept := testlock.Lock(t, p.lock("x"), bg)
		w.fail(refusal)
		start := time.Now()
		if err := kept.Unlock(bg); err == nil {
			t.Error("no error of a release that was refused")
		}
		_ = p.close()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close waited for %v for what only an operator can mend", took)
		}
		w.fail("")
	}},
	"UnlockAfterCloseSaysWhatBecameOfTheHold": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		lost, gone := testlock.Lock(t, p.lock("gone"), bg)
		force(t, p.lock("gone"))
		<-lost.Done()
		_, done := testlock.Lock(t, p.lock("done"), bg)
		testlock.Unlock(t, done)
		_, kept := testlock.Lock(t, p.lock("kept"), bg)
		testlock.Must(t, p.close())
		for hold, want := range map[*rlock.Hold]error{
			gone: rlock.ErrLost, done: rlock.ErrNotHeld, kept: rlock.ErrClosed,
		} {
			testlock.WantError(t, "Unlock", hold.Unlock(bg), want)
		}
	}},
	"CloseEndsALockThatNothingElseCanEnd": {0, func(t *testing.T, w *world) {
		for what, take := range map[string]func(l Lock) error{
			"Lock":    func(l Lock) error { _, _, err := l.Lock(bg); return err },
			"TryLock": func(l Lock) error { _, _, err := l.TryLock(bg); return err },
		} {
			if what == "TryLock" && w.kind.Has&Mutexes == 0 {
				continue
			}
			p := w.process(t)
			testlock.Works(t, p.lock("x"))
			w.down(true)
			ended := make(chan error)
			go func() { ended <- take(p.lock("x")) }()
			time.Sleep(settled)
			start := time.Now()
			go func() { _ = p.close() }()
			testlock.WantError(t, what, <-ended, rlock.ErrClosed)
			// Nothing interrupts a request that is in flight, but the session sends no other request. The
			// sessions of the process are closed one after another.
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("after %v", took)
			}
			w.down(false)
			time.Sleep(time.Minute)
		}
	}},
	// Proves: renewal
	"AnOutageFailsRequestsAndLosesNoLock": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg)
		free := w.occupy(t, "y")
		got := begin(t, w.new("y"), bg)
		const outage = "LOADING nothing is answered"
		w.fail(outage)
		start := time.Now()
		failed := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), outage) || !strings.Contains(err.Error(), ` "`) {
				t.Errorf("%s: %v", what, err)
			}
		}
		given, none, err := w.new("z").TryLock(bg)
		failed("TryLock", err)
		if given != bg || none != nil {
			t.Error("it returned something")
		}
		if w.kind.Has&(Reenters|Mutexes) == Reenters|Mutexes {
			_, _, err = m.Lock(ctx)
			failed("a re-entry", err)
		}
		failed("Extend", hold.Extend(bg, time.Minute))
		if time.Since(start) > 15*time.Second || hold.Err() != nil || ctx.Err() != nil {
			t.Errorf("the hold has ended, after %v: %v", time.Since(start), hold.Err())
		}
		failed("Unlock", hold.Unlock(bg))
		testlock.WantError(t, "a second Unlock", hold.Unlock(bg), rlock.ErrNotHeld)
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrNotHeld)
		w.fail("")
		_, again := testlock.Lock(t, m, bg) // possible, because the session repeats the failed release
		w.fail(outage)
		failed("Unlock", again.Unlock(bg))
		w.fail("")
		// The rival must get the lock. The failed Unlock has ended the hold, so no session renews the lease
		// any more.
		_, theirs := testlock.Lock(t, w.rival("x"), bg, rlock.WaitAtMost(31*time.Second))
		testlock.Unlock(t, theirs)
		free()
		testlock.Unlock(t, granted(t, got))
	}},
	// Proves: wake-ups
	"AWaitOutlastsAnOutage": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		for _, during := range []bool{false, true} {
			free := w.occupy(t, "x")
			got := begin(t, p.lock("x"), bg)
			for _, net := range p.nets {
				net.Refuse(true)
			}
			time.Sleep(5 * time.Second)
			if during { // the message of this hand-over is lost
				free()
			}
			time.Sleep(5 * time.Second)
			for _, net := range p.nets {
				net.Refuse(false)
			}
			start := time.Now()
			if !during {
				time.Sleep(10 * time.Second)
				start = time.Now()
				free()
			}
			testlock.Unlock(t, granted(t, got))
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("served after %v", took)
			}
			w.clean(t, "x")
		}
	}},
	"WaitersGoOnAndHoldersLearnOfALossWhenServersForgetAll": {0, func(t *testing.T, w *world) {
		for what, cut := range map[string]func(*faultproxy.Proxy){
			"restarted": (*faultproxy.Proxy).CutAll, "flushed": func(*faultproxy.Proxy) {},
		} {
			ctx, hold := testlock.Lock(t, w.new("x"), bg)
			got := begin(t, w.rival("x"), bg)
			time.Sleep(time.Second)
			start := time.Now()
			for _, wire := range w.wires {
				wire.Restart()
			}
			for _, net := range w.nets {
				cut(net)
			}
			next := granted(t, got)
			if took := time.Since(start); took > 11*time.Second {
				t.Errorf("%s: served after %v", what, took)
			}
			<-ctx.Done()
			if took := time.Since(start); took > 11*time.Second { // holders notice losses at renewals
				t.Errorf("%s: its holder learned of it after %v", what, took)
			}
			testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrLost)
			w.wants(t, next, hold)
			testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			testlock.Must(t, next.Err())
			testlock.Unlock(t, next)
			w.clean(t, "x")
		}
	}},
	// According to the last reply to the waiter, the lock is held for twenty more minutes. The first request
	// that finds the lock gone must wake the waiter. Proves: wake-ups
	"WaitersAreWokenWhenTheLockIsFoundGone": {0, func(t *testing.T, w *world) {
		for how, lease := range map[string]time.Duration{
			"by an Unlock": 20 * time.Minute, "by a renewal": 0,
		} {
			var options []rlock.Option
			if lease > 0 {
				options = append(options, rlock.WithLease(lease))
			}
			_, hold := testlock.Lock(t, w.new("x"), bg, options...)
			testlock.Must(t, hold.Extend(bg, 20*time.Minute))
			got := begin(t, w.rival("x"), bg)
			for _, wire := range w.wires {
				wire.FlushAll()
			}
			start := time.Now()
			if lease > 0 {
				testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			}
			testlock.Unlock(t, granted(t, got))
			if took := time.Since(start); took > 11*time.Second {
				t.Errorf("%s: served after %v", how, took)
			}
			_ = hold.Unlock(bg)
			w.clean(t, "x")
		}
	}},
	// The later hold is released before the first holder's request shows the loss. Proves: notice
	"AForgottenHoldIsLostThoughALaterHoldWasReleased": {0, func(t *testing.T, w *world) {
		_, hold := testlock.Lock(t, w.new("x"), bg, rlock.WithLease(20*time.Minute))
		for _, wire := range w.wires {
			wire.FlushAll()
		}
		time.Sleep(time.Millisecond)
		testlock.Unlock(t, testlock.Take(t, w.rival("x"), rlock.WithLease(time.Minute)))
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		w.clean(t, "x")
	}},
	// Proves: tokens
	"TokensGrowWhateverServersForget": {0, func(t *testing.T, w *world) {
		_, last := testlock.Lock(t, w.new("x"), bg)
		testlock.Unlock(t, last)
		grab := func(after string) {
			t.Helper()
			_, hold := testlock.Lock(t, w.rival("x"), bg)
			w.wants(t, hold, last)
			last = hold
			testlock.Unlock(t, hold)
		}
		grab("an unlock at the same instant")
		for _, wire := range w.wires {
			wire.FlushAll()
		}
		time.Sleep(time.Millisecond)
		grab("a flush")
		time.Sleep(time.Hour)
		grab("an idle hour")
		for _, wire := range w.wires { // set the clock back while the server remembers the token
			wire.SetTime(time.Now().Add(-time.Hour))
		}
		grab("a clock that fell back")
		for _, wire := range w.wires {
			wire.SetTime(time.Time{})
		}
	}},
	"ObserversHearOfEveryHold": {Excludes, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []string
		note := testlock.Observer(func(e rlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e.Type.String())
			testlock.OnePrefix(t, e.Type.String(), e.Err)
			if e.Type == rlock.EventLost && (!errors.Is(e.Err, rlock.ErrLost) ||
				!strings.Contains(e.Err.Error(), "forced")) {
				t.Errorf("it does not say why it was lost: %v", e.Err)
			}
			if !strings.Contains(w.new("x").Name(), e.Name) || e.LockKind == "" || e.Session == "" ||
				e.At.IsZero() || e.Type == rlock.EventAcquired && e.Token == 0 {
				t.Errorf("incomplete: %+v", e)
			}
		})
		m := w.process(t, rlock.WithObserver(note)).lock("x")
		_, h1 := testlock.Lock(t, m, bg)
		_, _, err := m.TryLock(bg)
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		got := begin(t, m, bg)
		testlock.Unlock(t, h1)
		h2 := granted(t, got)
		force(t, m)
		testlock.WantError(t, "Extend", h2.Extend(bg, time.Minute), rlock.ErrLost)
		time.Sleep(settled)
		mu.Lock()
		defer mu.Unlock()
		if len(told) == 6 {
			slices.Sort(told[3:5]) // two goroutines report Released and Acquired, in any order
		}
		if got := fmt.Sprint(told); got != "[Acquired NotAcquired Waiting Acquired Released Lost]" &&
			w.kind.Servers <= 1 {
			t.Errorf("told %s", got)
		}
	}},
}
