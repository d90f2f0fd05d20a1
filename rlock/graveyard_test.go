package rlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/faultproxy"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// The graveyard: what users of other lock libraries reported; each would have been
// caught here. The numbers are those of the other project's issue tracker. Those that
// stand beside their like say so: "The graveyard" in lease_test.go and faults_test.go.
// fairlock has the reports about queues.

// everyKindOverAWire runs a test in fake time for each kind of lock.
func everyKindOverAWire(t *testing.T, test func(t *testing.T, w *wire, newMutex maker)) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *wire) { test(t, w, newMutex) })
		})
	}
}

func TestRedisson775And5698AFailedRenewalIsNotTheLastOne(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		m := newMutex(newSession(t, w.rdb), "x")
		ctx, hold := lock(t, m, bg)
		for range 10 { // each outage begins before a renewal, and lasts for less than what is left of the lease then
			time.Sleep(9 * time.Second)
			w.down.Store(true)
			time.Sleep(15 * time.Second)
			w.down.Store(false)
			time.Sleep(10 * time.Minute)
		}
		if ctx.Err() != nil {
			t.Fatalf("lost: %v", context.Cause(ctx))
		}
		unlock(t, hold)
	})
}

// Also #3712 and #3714: the same after the key was deleted.
func TestRedisson2515And3194AHoldAfterALostOneIsRenewed(t *testing.T) {
	for what, lose := range map[string]func(w *wire){
		"an outage":  func(w *wire) { w.down.Store(true); time.Sleep(time.Minute); w.down.Store(false) },
		"a deletion": func(w *wire) { w.FlushAll(); time.Sleep(time.Minute) },
	} {
		t.Run(what, func(t *testing.T) {
			everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
				m := newMutex(newSession(t, w.rdb), "x")
				ctx, hold := lock(t, m, bg)
				lose(w)
				if context.Cause(ctx) != rlock.ErrLost || !errors.Is(hold.Unlock(bg), rlock.ErrLost) {
					t.Fatalf("not lost: %v", context.Cause(ctx))
				}
				ctx, hold = lock(t, m, bg)
				time.Sleep(time.Hour)
				if ctx.Err() != nil || !inspect(t, m).Held {
					t.Fatalf("lost: %v", context.Cause(ctx))
				}
				unlock(t, hold)
			})
		})
	}
}

// Also #2714 and #4368: an interrupted acquisition goes on being renewed.
func TestRedisson7272NothingIsRenewedAfterACanceledLockOrItsUnlock(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		m := newMutex(newSession(t, w.rdb), "x")
		_, hold := lock(t, m, bg)
		unlock(t, hold)
		rnd := rand.New(rand.NewPCG(7, 272))
		w.delay.Store(int64(time.Millisecond))
		got, canceled := 0, 0
		for range 500 { // a round trip takes 2 ms
			ctx, cancel := context.WithTimeout(bg, time.Duration(rnd.Int64N(int64(8*time.Millisecond))))
			_, hold, err := m.Lock(ctx)
			if err == nil {
				got++
				unlock(t, hold)
			} else {
				canceled++
			}
			cancel()
		}
		if got < 50 || canceled < 50 {
			t.Errorf("%d acquired, %d canceled: this shows nothing", got, canceled)
		}
		w.delay.Store(0)
		time.Sleep(time.Second)
		if st := inspect(t, m); st.Held {
			t.Errorf("a lock that nobody holds: %+v", st)
		}
		wrote := w.wrote.Load()
		time.Sleep(time.Hour)
		// A subscription's farewell at most; a renewal comes 360 times.
		if n := w.wrote.Load() - wrote; n > 10 || len(w.Keys()) != 0 {
			t.Errorf("within an hour %d requests, and these keys are left: %q", n, w.Keys())
		}
	})
}

func TestRedisson4698TheHolderIsToldThatRenewalFailsAndThenThatTheLockIsLost(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		var rec recorder
		m := newMutex(newSession(t, w.rdb, rlock.WithObserver(&rec)), "x")
		ctx, hold := lock(t, m, bg)
		w.down.Store(true)
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
		w.down.Store(false)
		if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Error(err)
		}
	})
}

func TestWhyALockWasLostIsTold(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		var rec recorder
		m := newMutex(newSession(t, w.rdb, rlock.WithObserver(&rec)), "x")
		ctx, _ := lock(t, m, bg)
		_, err := m.ForceUnlock(bg)
		must(t, err)
		<-ctx.Done()
		synctest.Wait()
		last := rec.events[len(rec.events)-1]
		if last.Kind != rlock.Lost || !errors.Is(last.Err, rlock.ErrLost) || !strings.Contains(last.Err.Error(), "forced") {
			t.Errorf("%+v", last)
		}
	})
}

func TestRedisson1626RenewalEndsWithAnUnlockThatFailed(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		m := newMutex(newSession(t, w.rdb), "x")
		_, hold := lock(t, m, bg)
		w.down.Store(true)
		if err := hold.Unlock(bg); err == nil || errors.Is(err, rlock.ErrLost) {
			t.Errorf("Unlock in an outage: %v", err)
		}
		w.down.Store(false)
		time.Sleep(31 * time.Second) // a lease, at the most
		if st := inspect(t, m); st.Held {
			t.Errorf("renewed for nobody: %+v", st)
		}
		_, _, err := m.TryLock(bg)
		must(t, err)
	})
}

// Also #372. In fake time a loop that does not wait stops the clock, and one that asks all the time is counted.
func TestRueidis602AWaiterThatLivesLongIsNotBusy(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		holder, waiter := newSession(t, w.rdb), newSession(t, w.rdb)
		_, hold := lock(t, newMutex(holder, "x"), bg)
		time.Sleep(time.Hour)
		alone := w.wrote.Load()
		got := make(chan *rlock.Hold, 1)
		go func() {
			_, h, err := newMutex(waiter, "x").Lock(bg)
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		time.Sleep(time.Hour)
		// Pings, heartbeats, and a look when the lease as it was known is over.
		n := w.wrote.Load() - 2*alone
		t.Logf("a waiter's requests within an hour: %d", n)
		if n > 3600 {
			t.Errorf("a waiter sent %d requests within an hour", n)
		}
		unlock(t, hold)
		time.Sleep(time.Second)
		select {
		case h := <-got:
			unlock(t, h)
		default:
			t.Error("not woken")
		}
	})
}

func TestRedislockALeaseThatEndsInMidWorkIsNoticed(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *wire, newMutex maker) {
		m := newMutex(newSession(t, w.rdb), "x")
		err := m.Do(bg, func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				if !inspect(t, m).Held {
					t.Error("told after somebody else could have the lock")
				}
				return context.Cause(ctx)
			case <-time.After(time.Minute): // the work
				t.Error("it went on without the lock")
				return nil
			}
		}, rlock.WithLease(10*time.Second))
		if !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Do says %v", err)
		}
		// And work that does not listen is told in the end.
		err = m.Do(bg, func(context.Context) error { time.Sleep(time.Minute); return nil }, rlock.WithLease(10*time.Second))
		if !errors.Is(err, rlock.ErrLost) {
			t.Errorf("Do says %v", err)
		}
	})
}

func TestTheSecondHolderIsNotFreedByTheFirstOnesLateUnlock(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex maker) {
		late := newSession(t, rdb)
		a, b := newMutex(late, "x"), newMutex(newSession(t, rdb), "x")
		_, first := lock(t, a, bg, rlock.WithLease(50*time.Millisecond))
		_, second := lock(t, b, bounded(t))
		if err := first.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
			t.Errorf("the late Unlock: %v", err)
		}
		must(t, late.Close()) // what it did in the background is done
		if st := inspect(t, b); !st.Held || st.Token != second.Token() {
			t.Errorf("the second holder's lock: %+v, want token %d", st, second.Token())
		}
		if _, _, err := newMutex(newSession(t, rdb), "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
			t.Errorf("taken under the second holder: %v", err)
		}
		unlock(t, second)
	})
}

// SETNX and EXPIRE as two requests leave a lock for ever if the client dies between them.
func TestNoRequestLeavesAKeyWithoutExpiry(t *testing.T) {
	for kind, newMutex := range kinds {
		t.Run(kind, func(t *testing.T) { noKeyWithoutExpiry(t, newMutex) })
	}
	t.Run("RedissonKeys", func(t *testing.T) { noKeyWithoutExpiry(t, rlock.New, rlock.RedissonKeys()) })
}

func noKeyWithoutExpiry(t *testing.T, newMutex maker, options ...rlock.SessionOption) {
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	direct := server.Client(t)
	var seen atomic.Int32
	proxy.OnReply(func(r faultproxy.Request) { // any reply may be the last that its client lives to see
		for _, key := range direct.Keys(bg, "*").Val() {
			seen.Add(1)
			if ttl := direct.PTTL(bg, key).Val(); ttl == -1 {
				t.Errorf("%s has no expiry after %.40q", key, r.Args)
			}
		}
	})
	waits := make(waitingSignal, 1)
	a := newMutex(newSession(t, proxy.Client(t), options...), "x")
	b := newMutex(newSession(t, proxy.Client(t), append(options, rlock.WithObserver(waits))...), "x")
	ctx, outer := lock(t, a, bg)
	_, inner := lock(t, a, ctx, rlock.WithLease(time.Minute))
	must(t, outer.Extend(bg, 2*time.Minute))
	leaving, leave := context.WithCancel(bg)
	defer leave()
	go func() {
		select {
		case <-waits:
			leave()
		case <-leaving.Done():
		}
	}()
	_, _, err := b.Lock(leaving)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	unlock(t, outer)
	unlock(t, inner)
	_, next := lock(t, b, bounded(t))
	_, err = a.ForceUnlock(bg)
	must(t, err)
	_ = next.Unlock(bg)
	if n := seen.Load(); n < 10 {
		t.Errorf("only %d keys were seen", n)
	}
}
