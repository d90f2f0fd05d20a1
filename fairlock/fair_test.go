package fairlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestAHandOverCostsOneRequestAndAtMostTwoMessages(t *testing.T) {
	for _, c := range []struct{ each, more int }{{50, 0}, {1, 0}, {1, 3000}} {
		t.Run(fmt.Sprintf("%d wait in each session, and %d more", c.each, c.more), func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				const sessions = 10
				last := longLiveness // so that no heartbeat is sent
				holder := w.lock(last)
				hold := testlock.Take(t, holder)
				all := make([]*rlock.Mutex, sessions)
				for i := range all {
					all[i] = w.lock(last)
				}
				got := make(chan *rlock.Hold, sessions*c.each)
				ctx, cancel := context.WithCancel(bg)
				for range c.each {
					for _, m := range all {
						go func() {
							if _, h, err := m.Lock(ctx); err == nil {
								got <- h
							}
						}()
					}
				}
				time.Sleep(time.Minute + time.Second) // until no request is in flight and no renewal is due
				if n := len(testlock.Inspect(t, holder).Queue); n != sessions*c.each {
					t.Fatalf("%d wait", n)
				}
				for i := range c.more { // more waiters, behind the others
					other, later := fmt.Sprint("other:", i), time.Now().Add(time.Hour)
					_, err := w.ZAdd(queueKey, float64(later.UnixMicro()+int64(i)), other)
					testlock.Must(t, err)
					w.HSet(waitersKey, other, entry(later))
				}
				w.Net.Reset()
				hands := min(20, sessions*c.each-1)
				for range hands {
					testlock.Unlock(t, hold)
					hold = testlock.Receive(t, "granted", got)
				}
				calls := map[string]int{}
				for _, r := range w.Net.Requests() {
					if !r.Is("HELLO", "CLIENT", "PING") { // not the commands that set up connections
						calls[w.kind(r)]++
					}
				}
				if n := calls["release"]; n > hands || n == 0 || len(calls) != 1 ||
					w.Net.CountPushed() > 2*n {
					t.Errorf("%d hand-overs cost %v and %d messages", hands, calls, w.Net.CountPushed())
				}
				cancel()
				synctest.Wait()
				testlock.Unlock(t, hold)
				for len(got) > 0 { // grants while the others gave up
					testlock.Unlock(t, <-got)
				}
			})
		})
	}
}

// The lock is free, but the queue has a waiter that counts as alive. TryLock must hand the lock over to it.
// In fact this waiter is dead, so its lease must end soon. Proves: order
func TestTryLockNeverJumpsALivingQueueAndLeavesNoEntry(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		m := w.lock()
		const next = "11111111-0000-4000-8000-000000000000:1"
		testlock.Must(t, w.Client.ZAdd(bg, queueKey, redis.Z{Score: 1, Member: next}).Err())
		w.HSet(waitersKey, next, entry(time.Now().Add(2*time.Second)))
		_, _, err := m.TryLock(bg)
		var locked *rlock.LockedError
		if !errors.As(err, &locked) || locked.Holder != next {
			t.Fatalf("TryLock: %v", err)
		}
		if st := testlock.Inspect(t, m); st.Owner != next || len(st.Queue) != 0 {
			t.Errorf("it was not handed to who was next: %+v", st)
		}
		testlock.Works(t, m)
		if st := testlock.Inspect(t, m); len(st.Queue) != 0 {
			t.Errorf("an entry is left: %+v", st)
		}
	})
}

// One request reads 1,000 waiters at a time, and at most 2,000 living ones. Proves: order
func TestANewcomerDoesNotOvertakeAWaiterBehindManyOfTheDead(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		const dead, next = 2500, "s:1"
		for i := range dead + 1 {
			attempt, alive := fmt.Sprint("dead:", i), time.Now().Add(-time.Second)
			if i == dead {
				attempt, alive = next, time.Now().Add(time.Second)
			}
			_, err := w.ZAdd(queueKey, float64(i), attempt)
			testlock.Must(t, err)
			w.HSet(waitersKey, attempt, entry(alive))
		}
		_, _, err := w.lock().TryLock(bg)
		var locked *rlock.LockedError
		if !errors.As(err, &locked) || locked.Holder != next {
			t.Errorf("TryLock: %v", err)
		}
		if n := w.places(); n != 0 {
			t.Errorf("%d places are left", n)
		}
	})
}

// After a TryLock, as after a Lock, goroutines of the same session wait in the queue in Redis. Proves: order
func TestAHoldOfTryLockIsFollowedInOrder(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		m, other := w.lock(), w.lockBeside()
		_, hold := testlock.TryLock(t, m, bg)
		var waits []<-chan testlock.Grant
		for _, m := range []*rlock.Mutex{m, other, m, other, m} {
			waits = append(waits, testlock.Go(bg, m))
			testlock.Settle()
		}
		testlock.Unlock(t, hold)
		testlock.Served(t, waits...)
		w.nothingIsLeft()
	})
}

// The hold of a TryLock is not passed on to a goroutine of its session that has begun to wait while the
// TryLock was in flight. So this goroutine does not overtake others. Proves: order
func TestAHoldOfTryLockIsNotPassedOnToOneThatCameMeanwhile(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		m, other := w.lock(), w.lockBeside()
		w.Net.SetDelay(time.Millisecond) // requests of other take no time
		tried := make(chan *rlock.Hold)
		go func() {
			_, hold := testlock.TryLock(t, m, bg)
			tried <- hold
		}()
		time.Sleep(100 * time.Microsecond)
		own := testlock.Go(bg, m)
		time.Sleep(1400 * time.Microsecond) // Redis has granted the TryLock, and the reply is in flight
		waits := []<-chan testlock.Grant{testlock.Go(bg, other), own, testlock.Go(bg, m)}
		testlock.Unlock(t, <-tried)
		testlock.Served(t, waits...)
	})
}

func TestInspectShowsTheQueueInOrderWithAges(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a, b := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client, rlock.WithLabel("till 3"))
		hold := testlock.Take(t, fairlock.New(a, "x"))
		first := testlock.Join(bg, fairlock.New(b, "x"))
		time.Sleep(30 * time.Millisecond)
		second := testlock.Join(bg, fairlock.New(a, "x"))
		st := testlock.Inspect(t, fairlock.New(b, "x"))
		if len(st.Queue) != 2 || st.Queue[0].Session != b.ID() || st.Queue[1].Session != a.ID() ||
			st.Session != a.ID() {
			t.Fatalf("%+v", st)
		}
		if st.Queue[0].Age < 30*time.Millisecond || st.Queue[0].Age > 41*time.Millisecond ||
			st.Queue[1].Age > 6*time.Millisecond || st.Queue[1].Age < 0 {
			t.Errorf("ages %v, %v", st.Queue[0].Age, st.Queue[1].Age)
		}
		if w := st.Queue[0]; w.Label != "till 3" || w.PID != os.Getpid() || w.Host == "" {
			t.Errorf("who waits: %+v", w)
		}
		testlock.Unlock(t, hold)
		got := testlock.Granted(t, first)
		if st = testlock.Inspect(t, fairlock.New(a, "x")); st.Label != "till 3" || st.PID != os.Getpid() ||
			st.Session != b.ID() {
			t.Errorf("who was handed the lock: %+v", st)
		}
		testlock.Unlock(t, got)
		testlock.Served(t, second)
	})
}

func TestAFairAndAReentrantLockOfOneNameAreTwoLocks(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		testlock.Unlock(t, testlock.Take(t, fairlock.New(s, "x")), testlock.Take(t, rlock.New(s, "x")))
	})
}

// Proves: wake-ups
func TestAGrantWhoseMessageWasLostIsLearnedByHeartbeat(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		const liveness = 3 * time.Second
		release := w.holdRaw("22222222-0000-4000-8000-000000000000:1")
		waits := testlock.Join(bg, w.lock(rlock.WithWaiterTimeout(liveness)))
		time.Sleep(time.Second) // so that a heartbeat comes long before the lease ends
		release("a channel that nobody listens to")
		hold := testlock.Granted(t, waits)
		time.Sleep(2 * liveness) // the hold is renewed, also after the waiter timeout
		testlock.Must(t, hold.Err())
		testlock.Unlock(t, hold)
	})
}

// The process of a waiter is frozen, but its connection is open, so the lock may be handed over to it. The
// next waiter sends a request when this first lease ends, whatever the waiter timeout. This also holds if the
// next waiter is of the session that unlocks. Proves: dead processes
func TestAFrozenWaiterCostsItsFirstLease(t *testing.T) {
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		for _, same := range []bool{false, true} {
			if same && letter == "r" {
				continue // goroutines of the unlocking session go first
			}
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				holder := testlock.NewSession(t, w.Client, longLiveness,
					rlock.WithWatchdogTimeout(10*time.Minute))
				next := holder
				if !same {
					next = testlock.NewSession(t, w.Client, longLiveness)
				}
				hold := testlock.Take(t, newMutex(holder, "x"))
				net := faultproxy.InMemory(t, w.Dial)
				ctx, cancel := context.WithCancel(bg)
				frozen := testlock.Join(ctx, newMutex(testlock.NewSession(t, net.Client(t), longLiveness),
					"x"))
				waits := testlock.Join(bg, newMutex(next, "x"))
				net.BlackHole(true, true)
				start := time.Now()
				testlock.Unlock(t, hold)
				testlock.Served(t, waits)
				if took := time.Since(start); took < time.Second || took > 3*time.Second {
					t.Errorf("of the same session %v: it cost %v", same, took)
				}
				cancel()
				testlock.WantError(t, "the frozen one's Lock", (<-frozen).Err, context.Canceled)
			})
		}
	})
}

// The outage is longer than the first lease of the new holder. But the session has renewed that lease to a
// whole one before the outage.
func TestAnOutageSoonAfterAHandOverLosesNoLock(t *testing.T) {
	everyQueue(t, func(t *testing.T, _ string, newMutex testlock.Maker) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			hold := testlock.Take(t, newMutex(testlock.NewSession(t, w.Client), "x"))
			got := testlock.Join(bg, newMutex(testlock.NewSession(t, w.Client), "x"))
			testlock.Unlock(t, hold)
			next := testlock.Granted(t, got)
			time.Sleep(150 * time.Millisecond)
			w.Down(true)
			time.Sleep(5 * time.Second)
			w.Down(false)
			testlock.Must(t, next.Err())
			testlock.Unlock(t, next)
		})
	})
}

// The frozen session has several waiters in a row. Each is granted the lock in turn, and its first lease must
// end. No waiter of this session sends a request when such a lease ends, so the waiter behind them must do
// it.
func TestAFrozenSessionCostsAFirstLeaseForEachOfItsPlaces(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		const places = 3
		net := faultproxy.InMemory(t, w.Dial)
		m := fairlock.New(testlock.NewSession(t, net.Client(t), longLiveness), "x")
		hold := testlock.Take(t, fairlock.New(testlock.NewSession(t, w.Client, longLiveness), "x"))
		ctx, cancel := context.WithCancel(bg)
		var frozen []<-chan testlock.Grant
		for range places {
			frozen = append(frozen, testlock.Join(ctx, m))
		}
		waits := testlock.Join(bg, fairlock.New(testlock.NewSession(t, w.Client, longLiveness), "x"))
		net.BlackHole(true, true)
		start := time.Now()
		testlock.Unlock(t, hold)
		testlock.Served(t, waits)
		if took := time.Since(start); took > places*3*time.Second {
			t.Errorf("it cost %v", took)
		}
		cancel()
		for _, got := range frozen {
			testlock.WantError(t, "a frozen one's Lock", (<-got).Err, context.Canceled)
		}
	})
}

func TestOneWhoseConnectionBrokeIsPassedOverAndKeepsItsPlace(t *testing.T) {
	everyQueue(t, func(t *testing.T, _ string, newMutex testlock.Maker) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			lock := func(rdb rlock.Client) *rlock.Mutex {
				return newMutex(testlock.NewSession(t, rdb, longLiveness), "x")
			}
			holder, net := lock(w.Client), faultproxy.InMemory(t, w.Dial)
			hold := testlock.Take(t, holder)
			first := testlock.Join(bg, lock(net.Client(t)))
			second := testlock.Join(bg, lock(w.Client))
			net.Refuse(true)
			synctest.Wait()
			testlock.Unlock(t, hold)
			hold = testlock.Granted(t, second)
			third := testlock.Join(bg, holder)
			net.Refuse(false)
			testlock.Eventually(t, "the first listens again", func() bool {
				return len(w.PubSubChannels("*")) == 3
			})
			testlock.Unlock(t, hold)
			testlock.Served(t, first, third)
		})
	})
}

func TestNoMessageIsSentWhereNobodyWaits(t *testing.T) {
	everyQueue(t, func(t *testing.T, _ string, newMutex testlock.Maker) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			all := w.Client.PSubscribe(bg, "*")
			defer func() { _ = all.Close() }()
			_, err := all.Receive(bg)
			testlock.Must(t, err)
			for range 10 {
				testlock.Warm(t, newMutex(testlock.NewSession(t, w.Client), "x"))
			}
			if n := w.Net.CountPushed(); n != 0 {
				t.Errorf("%d messages", n)
			}
		})
	})
}

// For the server, the sessions of frozen waiters have subscriptions. Each of these waiters may be granted the
// lock, and its first lease must end. But once the waiter timeout has ended, all of them are removed. Proves:
// dead processes
func TestManyFrozenWaitersCostOneLivenessTimeTogether(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		const frozen = 20
		hold := testlock.Take(t, w.lock())
		net := faultproxy.InMemory(t, w.Dial)
		ctx, cancel := context.WithCancel(bg)
		var all []<-chan testlock.Grant
		for range frozen {
			all = append(all, testlock.Join(ctx, w.lockOf(net.Client(t))))
		}
		waits := testlock.Join(bg, w.lock())
		net.BlackHole(true, true)
		start := time.Now()
		testlock.Unlock(t, hold)
		testlock.Served(t, waits)
		// The waiter timeout is 10 s, and heartbeats come every 6 s.
		if took := time.Since(start); took > 16*time.Second {
			t.Errorf("it waited %v for %d", took, frozen)
		}
		cancel()
		for _, got := range all {
			testlock.WantError(t, "a frozen one's Lock", (<-got).Err, context.Canceled)
		}
	})
}
