package contract

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// quiet checks that the processes send hardly any requests within an hour, and that all keys expire.
func quiet(t *testing.T, w *world) {
	t.Helper()
	for _, net := range w.nets {
		net.Reset()
	}
	time.Sleep(time.Hour)
	for _, net := range w.nets {
		if n := net.Count(); n > 10 { // a session sends a few requests to end its subscription
			t.Errorf("%d requests within an hour", n)
		}
	}
	for _, wire := range w.wires {
		if keys := wire.Keys(); len(keys) != 0 {
			t.Errorf("left for an hour: %q", keys)
		}
	}
}

// renews checks that a new hold is renewed.
func renews(t *testing.T, l Lock) {
	t.Helper()
	_, hold := testlock.Lock(t, l, bg)
	time.Sleep(time.Hour)
	testlock.Must(t, hold.Err())
	if !inspect(t, l).Held {
		t.Error("it is not renewed")
	}
	testlock.Unlock(t, hold)
}

// leases has tests of leases and their renewal.
var leases = map[string]test{
	// Proves: renewal
	"AHoldWithoutALeaseIsRenewedForAsLongAsItsHolderLives": {0, func(t *testing.T, w *world) {
		ctx, hold := testlock.Lock(t, w.new("x"), bg)
		for range 20 {
			time.Sleep(67*time.Second + 13*time.Millisecond) // does not end at the instant of a renewal
			// The session renews the lease after each third, so at least two thirds are left. The check
			// allows for a second less, because renewals are sent in batches.
			st, left := inspect(t, w.rival("x")), time.Until(hold.Deadline())
			if ctx.Err() != nil || hold.Err() != nil || left < 2*lease/3-time.Second || !st.Held ||
				st.Remaining < left {
				t.Fatalf("%v, deadline in %v, %+v", context.Cause(ctx), left, st)
			}
		}
		for range 10 { // each outage is shorter than the rest of the lease
			time.Sleep(lease/3 - time.Second)
			w.down(true)
			time.Sleep(lease / 2)
			w.down(false)
			time.Sleep(2 * time.Minute)
			testlock.Must(t, hold.Err())
		}
		testlock.Unlock(t, hold)
		quiet(t, w)
	}},
	// Proves: exclusion
	"AHoldEndsAtItsDeadlineAndBeforeRedisFreesIt": {0, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var told []rlock.Event
		m := w.process(t, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
		}))).lock("x")
		ctx, hold := testlock.Lock(t, m, bg)
		start := time.Now()
		w.down(true)
		<-ctx.Done()
		// Requests take no time here, so the margin is exactly 1 % and 2 ms.
		want := lease - lease/100 - 2*time.Millisecond
		if took := time.Since(start); took != want {
			t.Errorf("its context ended after %v, want %v", took, want)
		}
		w.down(false)
		if !inspect(t, w.rival("x")).Held {
			t.Error("Redis freed it before its holder knew")
		}
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrLost)
		testlock.WantError(t, "Err", hold.Err(), rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		testlock.Settle() // another goroutine calls the observer
		mu.Lock()
		last := len(told) - 1
		for last > 0 && told[last].Type == rlock.EventLost { // a MultiLock has an event for each member
			if err := told[last].Err; !errors.Is(err, rlock.ErrLost) ||
				!strings.Contains(err.Error(), "ran out before it was renewed") {
				t.Errorf("why it was lost: %v", err)
			}
			last--
		}
		if e := told[last]; e.Type != rlock.EventRenewFailed || e.Err == nil || last == len(told)-1 {
			t.Errorf("no observer was told that renewal fails, and then of the loss: %+v", told)
		}
		mu.Unlock()
		renews(t, m)
		w.clean(t, "x")
	}},
	// Proves: notice, repeats
	"AFixedLeaseRunsOutAndIsNotRenewed": {0, func(t *testing.T, w *world) {
		m := w.new("x", rlock.WithLease(10*time.Second))
		ctx, hold := testlock.Lock(t, m, bg)
		start := time.Now()
		deadline := hold.Deadline()
		got := begin(t, w.rival("x", rlock.WithLease(time.Minute)), bg)
		<-ctx.Done()
		if took := time.Since(start); took >= 10*time.Second || took < 9*time.Second ||
			!time.Now().Equal(deadline) {
			t.Errorf("ended after %v, the deadline was after %v", took, deadline.Sub(start))
		}
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrLost)
		next := granted(t, got)
		if took := time.Since(start); took > 11*time.Second {
			t.Errorf("the next one got it after %v", took)
		}
		w.wants(t, next, hold)
		time.Sleep(time.Second)
		if left := time.Until(next.Deadline()); left < 55*time.Second || left > 59*time.Second {
			t.Errorf("after a second it is leased for %v", left)
		}
		testlock.WantError(t, "a late Unlock", hold.Unlock(bg), rlock.ErrLost)
		if !inspect(t, m).Held || next.Err() != nil {
			t.Error("the late Unlock has freed another's lock")
		}
		testlock.Unlock(t, next)
		time.Sleep(time.Hour) // timers of holds that have ended must change nothing
		_, hold = testlock.TryLock(t, m, bg, rlock.WithLease(time.Minute))
		if left := time.Until(hold.Deadline()); left > time.Minute || left < 59*time.Second {
			t.Errorf("the option of the call does not count: %v", left)
		}
		testlock.Unlock(t, hold)
	}},
	// Proves: order
	"ALeaseIsNotHandedOn": {Excludes, func(t *testing.T, w *world) {
		m := w.process(t, rlock.WithHandover(time.Minute)).lock("x")
		_, hold := testlock.Lock(t, m, bg)
		hand := func(got <-chan testlock.Grant, least, most time.Duration) {
			t.Helper()
			testlock.Unlock(t, hold)
			hold = granted(t, got)
			time.Sleep(2 * time.Second) // until the session has renewed the short first lease of a hand-over
			for _, left := range []time.Duration{inspect(t, m).Remaining, time.Until(hold.Deadline())} {
				if left < least || left > most {
					t.Errorf("it is leased for %v", left)
				}
			}
		}
		hand(begin(t, m, bg, rlock.WithLease(time.Hour)), 55*time.Minute, time.Hour)
		hand(begin(t, m, bg), lease/2, lease)
		testlock.Must(t, hold.Extend(bg, time.Hour))
		hand(begin(t, m, bg), lease/2, lease)

		// The lease of a waiter that gives up does not go to the next waiter either.
		ctx, cancel := context.WithCancel(bg)
		gone, after := begin(t, m, ctx, rlock.WithLease(time.Hour)), begin(t, m, bg)
		cancel()
		testlock.WantError(t, "the wait that was given up", (<-gone).Err, context.Canceled)
		hand(after, lease/2, lease)
		testlock.Unlock(t, hold)
		w.clean(t, "x")
	}},
	// Proves: wake-ups
	"AWaiterThatWaitsForLongIsNotBusy": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		free := w.occupy(t, "x")
		got := begin(t, p.lock("x"), bg)
		time.Sleep(10 * time.Minute)
		// A waiter sends pings and heartbeats, and a request at the end of each lease. A RedLock also sends
		// requests for its queue.
		for i, net := range p.nets {
			if n := net.Count(); n > 3*600 {
				t.Errorf("server %d got %d requests within ten minutes", i, n)
			}
		}
		free()
		start := time.Now()
		testlock.Unlock(t, granted(t, got))
		if took := time.Since(start); took > time.Second {
			t.Errorf("woken after %v", took)
		}
		w.clean(t, "x")
	}},
	// Proves: HoldAtLeast
	"AHoldThatLastsAtLeastSoLongLeavesItsLockTaken": {Excludes | Own, func(t *testing.T, w *world) {
		const d = 20 * time.Second
		m, other := w.new("x"), w.rival("x")
		start := time.Now()
		ctx, hold := testlock.Lock(t, m, bg, rlock.HoldAtLeast(d))
		if st := inspect(t, m); !st.Held || st.Unlocked {
			t.Errorf("before its Unlock: %+v", st)
		}
		time.Sleep(time.Second)
		testlock.Unlock(t, hold)
		if ctx.Err() == nil || !errors.Is(hold.Err(), rlock.ErrNotHeld) {
			t.Errorf("the hold has not ended: %v", hold.Err())
		}
		for what, l := range map[string]Lock{"its own process": m, "another": other} {
			_, _, err := l.TryLock(bg)
			testlock.WantError(t, what, err, rlock.ErrLocked)
			r, _ := refusal(err)
			if r.Hint != "" {
				t.Errorf("%s: no hold is left that a context could have: %v", what, err)
			}
			if !r.HeldBy().Unlocked {
				t.Errorf("%s: it only stays taken: %v", what, err)
			}
		}
		if st := inspect(t, m); !st.Held || !st.Unlocked || st.Remaining > d-time.Second+settled {
			t.Errorf("after its Unlock: %+v", st)
		}
		next := granted(t, begin(t, m, bg))
		if took := time.Since(start); took < d || took > d+time.Second {
			t.Errorf("the next one has it after %v", took)
		}
		testlock.Unlock(t, next)
		_, hold = testlock.Lock(t, m, bg, rlock.HoldAtLeast(d))
		time.Sleep(d + time.Second)
		testlock.Unlock(t, hold)
		w.clean(t, "x")
	}},
	// Proves: HoldAtLeast
	"ALockThatStaysTakenServesThoseThatHaveWaitedForIt": {Own, func(t *testing.T, w *world) {
		// The first time is shorter than the lease, and the second one is longer.
		for _, d := range []time.Duration{5 * time.Second, 25 * time.Second} {
			p := w.process(t)
			start := time.Now()
			_, hold := testlock.Lock(t, p.lock("x"), bg, rlock.HoldAtLeast(d))
			first := begin(t, w.rival("x"), bg)
			testlock.Unlock(t, hold)
			p.end(t) // the lock stays taken even after its process has ended
			next := granted(t, first)
			if took := time.Since(start); took < d || took > d+2*time.Second {
				t.Errorf("%v: served after %v", d, took)
			}
			testlock.Unlock(t, next)
			w.clean(t, "x")
		}
	}},
	"WhatStaysTakenIsFreedByForceAndByNoLateRequest": {Own, func(t *testing.T, w *world) {
		p := w.process(t)
		m := p.lock("x")
		_, hold := testlock.Lock(t, m, bg, rlock.HoldAtLeast(10*time.Second))
		testlock.Must(t, hold.Extend(bg, time.Minute))
		testlock.Unlock(t, hold)
		for i, net := range p.nets {
			for _, r := range net.Requests() {
				// No copy of an acquire is sent, because Redis may grant the lock to the same attempt again.
				if name := testlock.Script(r.Script()); name != "" && name != "acquire" {
					_, _ = w.wires[i].Net.Replay(r)
				}
			}
		}
		if st := inspect(t, m); !st.Held || st.Remaining > 10*time.Second {
			t.Errorf("after copies of all its requests: %+v", st)
		}
		force(t, m)
		w.clean(t, "x")
	}},
	"ATryThatFailsLeavesNothingTaken": {Mutexes, func(t *testing.T, w *world) {
		free := w.occupy(t, "x")
		_, _, err := w.new("x").TryLock(bg, rlock.HoldAtLeast(time.Minute))
		testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
		free()
		w.clean(t, "x")
	}},
	// Proves: re-entry
	"ReentryNeverShortensALease": {Reenters, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(time.Minute))
		_, inner := testlock.Lock(t, m, ctx, rlock.WithLease(time.Second))
		if left, st := time.Until(inner.Deadline()), inspect(t, m); left < 59*time.Second ||
			st.Remaining < 59*time.Second {
			t.Errorf("%v are left, in Redis %v", left, st.Remaining)
		}
		testlock.Unlock(t, inner)
		_, inner = testlock.Lock(t, m, ctx, rlock.WithLease(2*time.Minute))
		if left, st := time.Until(outer.Deadline()), inspect(t, m); left < 118*time.Second ||
			st.Remaining < 118*time.Second {
			t.Errorf("a longer lease was not taken: %v, in Redis %v", left, st.Remaining)
		}
		testlock.Unlock(t, inner)
		testlock.Unlock(t, outer)
	}},
	"ANestedHoldWithoutALeaseOfItsOwnIsRenewed": {Reenters | Mutexes, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(15*time.Second))
		_, inner := testlock.Lock(t, m, ctx)
		time.Sleep(10*time.Minute + 5*time.Second)
		if outer.Err() != nil || inner.Err() != nil {
			t.Fatalf("lost under a hold that is renewed: %v, %v", outer.Err(), inner.Err())
		}
		testlock.Unlock(t, inner)
		start := time.Now()
		<-ctx.Done() // since the Unlock of inner, the session does not renew the lease
		testlock.WantError(t, "Err", outer.Err(), rlock.ErrLost)
		if took := time.Since(start); took < 2*lease/3-time.Second || took > lease {
			t.Errorf("it ended after %v", took)
		}
		testlock.WantError(t, "Unlock", outer.Unlock(bg), rlock.ErrLost)
	}},
	"ExtendLengthensTheLeaseAndNeverShortensIt": {0, func(t *testing.T, w *world) {
		m := w.new("x")
		ctx, hold := testlock.Lock(t, m, bg, rlock.WithLease(10*time.Second))
		testlock.Must(t, hold.Extend(bg, time.Minute))
		testlock.Must(t, hold.Extend(bg, time.Second))
		if err := hold.Extend(bg, 0); err == nil {
			t.Error("a lease of nothing was taken")
		} else {
			testlock.OnePrefix(t, "Extend", err)
		}
		time.Sleep(59 * time.Second)
		if hold.Err() != nil || !inspect(t, m).Held {
			t.Errorf("lost before the extended lease was over: %v", hold.Err())
		}
		<-ctx.Done()
		testlock.WantError(t, "Extend of a lost hold", hold.Extend(bg, time.Minute), rlock.ErrLost)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	}},
	"TheContextEndsWithItsParentButTheHoldDoesNot": {0, func(t *testing.T, w *world) {
		type key struct{}
		parent, cancel := context.WithCancelCause(context.WithValue(bg, key{}, "value"))
		ctx, hold := testlock.Lock(t, w.new("x"), parent)
		if ctx.Value(key{}) != "value" {
			t.Error("it does not inherit values")
		}
		why := context.Canceled
		cancel(why)
		<-ctx.Done()
		time.Sleep(10 * time.Minute)
		if context.Cause(ctx) != why || hold.Err() != nil || !inspect(t, w.rival("x")).Held {
			t.Errorf("cause %v, hold %v", context.Cause(ctx), hold.Err())
		}
		testlock.WantError(t, "Extend with an ended context", hold.Extend(parent, time.Minute),
			context.Canceled)
		if err := hold.Unlock(parent); err != nil {
			t.Errorf("Unlock with an ended context: %v", err)
		}
		w.clean(t, "x")
	}},
	// Proves: dead processes
	"AWaiterGetsTheLockOfADeadHolderWhenItsLeaseEnds": {0, func(t *testing.T, w *world) {
		dying := w.process(t)
		_, dead := testlock.Lock(t, dying.lock("x"), bg)
		got := begin(t, w.rival("x"), bg)
		start := time.Now()
		for _, net := range dying.nets {
			net.BlackHole(true, true)
		}
		next := granted(t, got)
		if took := time.Since(start); took < lease-time.Second || took > lease+time.Second {
			t.Errorf("it got the lock after %v", took)
		}
		testlock.WantError(t, "the dead one's Err", dead.Err(), rlock.ErrLost)
		w.wants(t, next, dead)
		for _, net := range dying.nets {
			net.BlackHole(false, false)
		}
		testlock.WantError(t, "its late Unlock", dead.Unlock(bg), rlock.ErrLost)
		time.Sleep(time.Minute)
		testlock.Must(t, next.Err())
		testlock.Unlock(t, next)
		w.clean(t, "x")
	}},
	// Proves: exclusion
	"ARenewedLeaseIsCountedFromWhenTheRenewalLeft": {0, func(t *testing.T, w *world) {
		p := w.process(t)
		_, hold := testlock.Lock(t, p.lock("x"), bg)
		const delay = 200 * time.Millisecond
		for _, net := range p.nets {
			net.SetDelay(delay)
		}
		time.Sleep(lease / 6) // until the first renewal, the lease counts from the grant
		for range 250 {       // some of these instants come just after the reply of a renewal
			time.Sleep(100 * time.Millisecond)
			if left := time.Until(hold.Deadline()); left > lease-lease/100-2*time.Millisecond-2*delay {
				t.Errorf("considered valid for %v", left)
			}
			if st := inspect(t, w.rival("x")); hold.Deadline().After(time.Now().Add(st.Remaining)) {
				t.Errorf("considered valid until %v, Redis frees it in %v",
					time.Until(hold.Deadline()), st.Remaining)
			}
		}
		testlock.Unlock(t, hold)
	}},
}
