package contract

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// linger has tests of locks that a session keeps although no goroutine holds them.
var linger = map[string]test{
	"ALockThatIsKeptTakesNoRequests": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		l, last := p.lock("x"), inspect(t, w.rival("x")).Token
		p.nets[0].Reset()
		for i := range 100 {
			hold := testlock.Take(t, l)
			if i%2 == 0 {
				testlock.Unlock(t, hold)
				_, hold = testlock.TryLock(t, l, bg)
			}
			if w.kind.Has&Fences != 0 {
				testlock.WantAfter(t, hold, last)
				last = hold.Token()
			}
			if err := hold.Err(); err != nil {
				t.Error(err)
			}
			testlock.Unlock(t, hold)
		}
		if n := p.nets[0].Count("EVALSHA"); n != 0 {
			t.Errorf("%d requests", n)
		}
		time.Sleep(keeps)
		w.clean(t, "x")
	}},
	"ItsTokensRunOut": {Lingers | Fences, func(t *testing.T, w *world) {
		p := w.keeper(t)
		l, last := p.lock("x"), inspect(t, w.rival("x")).Token
		p.nets[0].Reset()
		for range 3000 {
			hold := testlock.Take(t, l)
			testlock.WantAfter(t, hold, last)
			last = hold.Token()
			testlock.Unlock(t, hold)
			time.Sleep(2 * time.Microsecond) // otherwise the tokens would grow faster than the clock
		}
		if n := p.nets[0].Count("EVALSHA"); n > 8 {
			t.Errorf("%d requests", n)
		}
		time.Sleep(keeps)
		w.clean(t, "x")
	}},
	"WhoeverIsRefusedHasItAtOnce": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		for _, idle := range []bool{true, false} {
			hold := testlock.Take(t, p.lock("x"))
			if idle {
				testlock.Unlock(t, hold)
			}
			start := time.Now()
			got := testlock.Go(bg, w.rival("x"))
			time.Sleep(settled)
			if !idle {
				testlock.Unlock(t, hold)
			}
			testlock.Unlock(t, granted(t, got))
			if took := time.Since(start); took > 2*settled {
				t.Errorf("idle: %v: after %v", idle, took)
			}
			w.notKept(t, p)
			time.Sleep(wanted)
			w.kept(t, p)
		}
	}},
	"ATryIsRefusedAndALaterOneIsNot": {Lingers, func(t *testing.T, w *world) {
		w.keeper(t)
		_, _, err := w.rival("x").TryLock(bg)
		testlock.WantError(t, "a try", err, rlock.ErrLocked)
		w.clean(t, "x")
	}},
	"TwoThatAskAtOnceBothHaveItSoon": {Lingers, func(t *testing.T, w *world) {
		p, q := w.process(t, rlock.WithLinger(keeps)), w.process(t, rlock.WithLinger(keeps))
		for range 20 {
			one, other := testlock.Go(bg, p.lock("x")), testlock.Go(bg, q.rival("x"))
			start := time.Now()
			for one != nil || other != nil {
				select {
				case g := <-one:
					testlock.Unlock(t, g.Hold)
					one = nil
				case g := <-other:
					testlock.Unlock(t, g.Hold)
					other = nil
				}
			}
			if took := time.Since(start); took > settled {
				t.Errorf("after %v", took)
			}
			time.Sleep(keeps + wanted)
		}
	}},
	"AMessageThatIsLostCostsTheRestOfItsTime": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		start := time.Now()
		p.nets[0].BlackHole(true, true)
		got := begin(t, w.rival("x"), bg)
		p.nets[0].BlackHole(false, false)
		testlock.Unlock(t, granted(t, got))
		if took := time.Since(start); took > keeps+settled {
			t.Errorf("after %v", took)
		}
	}},
	"AConnectionThatBreaksEndsIt": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		p.nets[0].CutAll()
		time.Sleep(time.Second)
		w.clean(t, "x")
		w.kept(t, p)
	}},
	"AForcedUnlockEndsIt": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		force(t, w.new("x"))
		time.Sleep(settled)
		w.clean(t, "x")
		got := testlock.Go(bg, p.lock("x"))
		testlock.Unlock(t, granted(t, got))
	}},
	"ALeaseThatIsLostMeanwhileIsNobodysLoss": {Lingers, func(t *testing.T, w *world) {
		lost := 0
		p := w.process(t, rlock.WithLinger(time.Hour),
			rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
				if e.Type == rlock.EventLost {
					lost++
				}
			})))
		w.kept(t, p)
		w.wires[0].FlushAll()
		time.Sleep(30 * time.Second)
		w.clean(t, "x")
		w.kept(t, p)
		if lost != 0 {
			t.Errorf("%d losses", lost)
		}
	}},
	"ItIsRenewedMeanwhile": {Lingers, func(t *testing.T, w *world) {
		p := w.process(t, rlock.WithLinger(time.Hour))
		w.kept(t, p)
		time.Sleep(10 * time.Minute)
		p.nets[0].Reset()
		hold := testlock.Take(t, p.lock("x"))
		if n := p.nets[0].Count("EVALSHA"); n != 0 || time.Until(hold.Deadline()) < lease/2 {
			t.Errorf("%d requests, %v left", n, time.Until(hold.Deadline()))
		}
		if st := inspect(t, w.rival("x")); w.kind.Has&Counts != 0 && st.Count != 1 {
			t.Errorf("%+v", st)
		}
		testlock.Unlock(t, hold)
	}},
	"CloseReleasesIt": {Lingers, func(t *testing.T, w *world) {
		testlock.Must(t, w.keeper(t).close())
		w.clean(t, "x")
	}},
	"AnotherLeaseIsAnotherGrant": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		for _, call := range []func(rlock.Locker) *rlock.Hold{
			func(l rlock.Locker) *rlock.Hold {
				_, hold := testlock.TryLock(t, l, bg, rlock.WithLease(5*time.Second))
				return hold
			},
			func(l rlock.Locker) *rlock.Hold { return testlock.Take(t, l, rlock.WithLease(5*time.Second)) },
		} {
			hold := call(p.lock("x"))
			if left := time.Until(hold.Deadline()); left > 5*time.Second {
				t.Errorf("%v left", left)
			}
			testlock.Unlock(t, hold)
			w.clean(t, "x")
			w.kept(t, p)
		}
	}},
	"WhatStaysTakenIsNotKept": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		testlock.Unlock(t, testlock.Take(t, p.lock("x"), rlock.HoldAtLeast(time.Minute)))
		time.Sleep(settled)
		if st := inspect(t, w.rival("x")); !st.Held || st.Owner[len(st.Owner)-1] != '~' {
			t.Errorf("%+v", st)
		}
		_, _, err := w.rival("x").TryLock(bg)
		testlock.WantError(t, "another session", err, rlock.ErrLocked)
		time.Sleep(time.Minute)
		w.clean(t, "x")
	}},
	"AnOutageOfTheReleaseIsRiddenOut": {Lingers, func(t *testing.T, w *world) {
		p := w.keeper(t)
		p.nets[0].BlackHole(true, true)
		time.Sleep(keeps + 3*time.Second) // shorter than the lease
		p.nets[0].BlackHole(false, false)
		time.Sleep(5 * time.Second)
		w.clean(t, "x")
	}},
}

const (
	keeps  = 10 * time.Second  // time for which a session keeps an idle lock
	wanted = 101 * time.Second // longer than the time for which a session keeps no lock after a refusal
)

// keeper returns a process that keeps the lock "x".
func (w *world) keeper(t *testing.T) *process {
	t.Helper()
	p := w.process(t, rlock.WithLinger(keeps))
	w.kept(t, p)
	return p
}

// kept makes a process take the lock "x", unlock it and keep it.
func (w *world) kept(t *testing.T, p *process) {
	t.Helper()
	for range 2 { // the session needs a subscription to keep a lock, and has one after the first Lock
		testlock.Unlock(t, testlock.Take(t, p.lock("x")))
		time.Sleep(settled)
	}
	if st := inspect(t, w.rival("x")); !st.Held || !st.Lingers {
		t.Errorf("it is not kept: %+v", st)
	}
}

// notKept checks that a process does not keep the lock after its Unlock.
func (w *world) notKept(t *testing.T, p *process) {
	t.Helper()
	testlock.Unlock(t, testlock.Take(t, p.lock("x")))
	time.Sleep(settled)
	if st := inspect(t, w.rival("x")); st.Held {
		t.Errorf("it is kept: %+v", st)
	}
}
