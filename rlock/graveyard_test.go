package rlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The graveyard: what users of other lock libraries reported; each would have been
// caught here. The numbers are those of the other project's issue tracker. Those that
// stand beside their like say so: "The graveyard" in lease_test.go and faults_test.go.
// fairlock has the reports about queues.

func TestRedisson775And5698AFailedRenewalIsNotTheLastOne(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		for range 10 { // each outage begins before a renewal, and lasts for less than what is left of the lease then
			time.Sleep(9 * time.Second)
			w.Down(true)
			time.Sleep(15 * time.Second)
			w.Down(false)
			time.Sleep(10 * time.Minute)
		}
		if ctx.Err() != nil {
			t.Fatalf("lost: %v", context.Cause(ctx))
		}
		testlock.Unlock(t, hold)
	})
}

// Also #3712 and #3714: the same after the key was deleted.
func TestRedisson2515And3194AHoldAfterALostOneIsRenewed(t *testing.T) {
	for what, lose := range map[string]func(w *testlock.Wire){
		"an outage":  func(w *testlock.Wire) { w.Down(true); time.Sleep(time.Minute); w.Down(false) },
		"a deletion": func(w *testlock.Wire) { w.FlushAll(); time.Sleep(time.Minute) },
	} {
		t.Run(what, func(t *testing.T) {
			everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
				m := newMutex(testlock.NewSession(t, w.Client), "x")
				ctx, hold := testlock.Lock(t, m, bg)
				lose(w)
				if context.Cause(ctx) != rlock.ErrLost || !errors.Is(hold.Unlock(bg), rlock.ErrLost) {
					t.Fatalf("not lost: %v", context.Cause(ctx))
				}
				ctx, hold = testlock.Lock(t, m, bg)
				time.Sleep(time.Hour)
				if ctx.Err() != nil || !testlock.Inspect(t, m).Held {
					t.Fatalf("lost: %v", context.Cause(ctx))
				}
				testlock.Unlock(t, hold)
			})
		})
	}
}

// Also #2714 and #4368: an interrupted acquisition goes on being renewed.
func TestRedisson7272NothingIsRenewedAfterACanceledLockOrItsUnlock(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		testlock.Unlock(t, hold)
		rnd := rand.New(rand.NewPCG(7, 272))
		w.Net.SetDelay(time.Millisecond)
		got, canceled := 0, 0
		for range 500 { // a round trip takes 2 ms
			ctx, cancel := context.WithTimeout(bg, time.Duration(rnd.Int64N(int64(8*time.Millisecond))))
			_, hold, err := m.Lock(ctx)
			if err == nil {
				got++
				testlock.Unlock(t, hold)
			} else {
				canceled++
			}
			cancel()
		}
		if got < 20 || canceled < 20 {
			t.Errorf("%d acquired, %d canceled: this shows nothing", got, canceled)
		}
		w.Net.SetDelay(0)
		time.Sleep(time.Second)
		if st := testlock.Inspect(t, m); st.Held {
			t.Errorf("a lock that nobody holds: %+v", st)
		}
		wrote := w.Net.Count()
		time.Sleep(time.Hour)
		// A subscription's farewell at most; a renewal comes 360 times.
		if n := w.Net.Count() - wrote; n > 10 || len(w.Keys()) != 0 {
			t.Errorf("within an hour %d requests, and these keys are left: %q", n, w.Keys())
		}
	})
}

func TestRedisson4698TheHolderIsToldThatRenewalFailsAndThenThatTheLockIsLost(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var rec recorder
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithObserver(&rec)), "x")
		ctx, hold := testlock.Lock(t, m, bg)
		w.Down(true)
		<-ctx.Done()
		if context.Cause(ctx) != rlock.ErrLost {
			t.Errorf("cause: %v", context.Cause(ctx))
		}
		synctest.Wait()
		var failed, lost int
		for _, e := range rec.events {
			switch e.Kind {
			case rlock.RenewFailed:
				failed++
				if e.Name != "x" || e.Err == nil || lost > 0 {
					t.Errorf("%+v", e)
				}
			case rlock.Lost:
				lost++
				if !errors.Is(e.Err, rlock.ErrLost) || !strings.Contains(e.Err.Error(), "ran out before it was renewed") {
					t.Errorf("why: %v", e.Err)
				}
			}
		}
		if failed == 0 || lost != 1 {
			t.Errorf("%d failures and %d losses were told", failed, lost)
		}
		w.Down(false)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestWhyALockWasLostIsTold(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var rec recorder
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithObserver(&rec)), "x")
		ctx, _ := testlock.Lock(t, m, bg)
		testlock.ForceUnlock(t, m)
		<-ctx.Done()
		synctest.Wait()
		last := rec.events[len(rec.events)-1]
		if last.Kind != rlock.Lost || !errors.Is(last.Err, rlock.ErrLost) || !strings.Contains(last.Err.Error(), "forced") {
			t.Errorf("%+v", last)
		}
	})
}

func TestRedisson1626RenewalEndsWithAnUnlockThatFailed(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		w.Down(true)
		if err := hold.Unlock(bg); err == nil || errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock in an outage: %v", err)
		}
		w.Down(false)
		time.Sleep(31 * time.Second) // a lease, at the most
		if st := testlock.Inspect(t, m); st.Held {
			t.Errorf("renewed for nobody: %+v", st)
		}
		testlock.TryLock(t, m, bg)
	})
}

// Also #372. In fake time a loop that does not wait stops the clock, and one that asks all the time is counted.
func TestRueidis602AWaiterThatLivesLongIsNotBusy(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		holder, waiter := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		_, hold := testlock.Lock(t, newMutex(holder, "x"), bg)
		time.Sleep(10 * time.Minute)
		alone := w.Net.Count()
		got := testlock.Go(bg, newMutex(waiter, "x"))
		time.Sleep(10 * time.Minute)
		// Pings, heartbeats, and a look when the lease as it was known is over. A RedLock's first in line also renews its place,
		// of two seconds.
		n := w.Net.Count() - 2*alone
		if n > 3*600 {
			t.Errorf("a waiter sent %d requests within ten minutes", n)
		}
		testlock.Unlock(t, hold)
		time.Sleep(time.Second)
		select {
		case g := <-got:
			testlock.Must(t, g.Err)
			testlock.Unlock(t, g.Hold)
		default:
			t.Error("not woken")
		}
	})
}

func TestRedislockALeaseThatEndsInMidWorkIsNoticed(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		err := m.Do(bg, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				if !testlock.Inspect(t, m).Held {
					t.Error("told after somebody else could have the lock")
				}
				return context.Cause(ctx)
			case <-time.After(time.Minute): // the work
				t.Error("it went on without the lock")
				return nil
			}
		}, rlock.WithLease(10*time.Second))
		testlock.WantError(t, "Do", err, rlock.ErrLost)
		// And work that does not listen is told in the end.
		err = m.Do(bg, func(context.Context) error { time.Sleep(time.Minute); return nil }, rlock.WithLease(10*time.Second))
		testlock.WantError(t, "Do", err, rlock.ErrLost)
	})
}

func TestTheSecondHolderIsNotFreedByTheFirstOnesLateUnlock(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		a, b := newMutex(testlock.NewSession(t, w.Client), "x"), newMutex(testlock.NewSession(t, w.Client), "x")
		_, first := testlock.Lock(t, a, bg, rlock.WithLease(10*time.Second))
		second := testlock.Take(t, b)
		testlock.WantError(t, "the late Unlock", first.Unlock(bg), rlock.ErrLost)
		time.Sleep(time.Minute) // what it did in the background is done
		if st := testlock.Inspect(t, b); !st.Held || st.Token != second.Token() {
			t.Errorf("the second holder's lock: %+v, want token %d", st, second.Token())
		}
		if _, _, err := a.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("taken under the second holder: %v", err)
		}
		testlock.Unlock(t, second)
	})
}

// SETNX and EXPIRE as two requests leave a lock forever if the client dies between them.
func TestNoRequestLeavesAKeyWithoutExpiry(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) { noKeyWithoutExpiry(t, w, newMutex) })
	t.Run("RedissonKeys", func(t *testing.T) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { noKeyWithoutExpiry(t, w, rlock.New, rlock.RedissonKeys()) })
	})
}

func noKeyWithoutExpiry(t *testing.T, w *testlock.Wire, newMutex testlock.Maker, options ...rlock.SessionOption) {
	seen := 0
	w.Net.OnReply(func(r faultproxy.Request) { // any reply may be the last that its client lives to see
		for _, key := range w.Keys() {
			seen++
			if w.TTL(key) == 0 {
				t.Errorf("%s has no expiry after %.40q", key, r.Args)
			}
		}
	})
	w.Net.SetDelay(time.Millisecond) // so that replies come one after the other
	a := newMutex(testlock.NewSession(t, w.Client, options...), "x")
	b := newMutex(testlock.NewSession(t, w.Client, options...), "x")
	ctx, outer := testlock.Lock(t, a, bg)
	_, inner := testlock.Lock(t, a, ctx, rlock.WithLease(time.Minute))
	testlock.Must(t, outer.Extend(bg, 2*time.Minute))
	_, _, err := b.Lock(bg, rlock.WaitAtMost(time.Second))
	testlock.WantError(t, "Lock", err, rlock.ErrLocked)
	testlock.Unlock(t, outer)
	testlock.Unlock(t, inner)
	next := testlock.Take(t, b)
	testlock.ForceUnlock(t, a)
	_ = next.Unlock(bg)
	if seen < 10 {
		t.Errorf("only %d keys were seen", seen)
	}
}
