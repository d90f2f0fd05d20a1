package rlock_test

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// docs/operations.md says which keys stay after an Unlock, and for how long.
// Proves: no trace
func TestAfterUnlockOnlyTheTokenStaysAndForAMinuteAtMost(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client), "x")
		for range 3 {
			testlock.Works(t, m)
		}
		keys := w.Keys()
		if len(keys) != 1 {
			t.Fatalf("%q stay", keys)
		}
		retention := 15 * time.Second
		if keys[0] == "lockline:q:{x}" {
			retention = 10 * time.Minute
		}
		if left := w.TTL(keys[0]); left < retention || left > lease+2*retention {
			t.Errorf("%s stays for %v", keys[0], left)
		}
	})
}

// If SETNX and EXPIRE were two requests, a client that died between them would leave the lock taken forever.
// Proves: no trace
func TestNoRequestLeavesAKeyWithoutExpiry(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		noKeyWithoutExpiry(t, w, testlock.Any(newMutex))
	})
	t.Run("redisson", func(t *testing.T) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			noKeyWithoutExpiry(t, w, testlock.Any(redisson.New))
		})
	})
}

func noKeyWithoutExpiry(
	t *testing.T, w *testlock.Wire, newMutex testlock.AnyMaker, options ...rlock.SessionOption,
) {
	var seen atomic.Int64
	w.Net.OnReply(func(r faultproxy.Request) { // the client may die after any reply
		for _, key := range w.Keys() {
			seen.Add(1)
			if w.TTL(key) == 0 {
				t.Errorf("%s has no expiry after %.40q", key, r.Args)
			}
		}
	})
	w.Net.SetDelay(time.Millisecond) // so that replies arrive one after another
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
	if n := seen.Load(); n < 10 {
		t.Errorf("only %d keys were seen", n)
	}
}

// Simulation has found this case. Waiters noticed the free lock only at their next heartbeat.
func TestWhatIsGoneAndWasToStayIsHandedOver(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m, other := rlock.New(testlock.NewSession(t, w.Client), "x"),
			rlock.New(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg, rlock.HoldAtLeast(time.Hour))
		testlock.Keep(t, hold)
		got := testlock.Go(bg, other)
		time.Sleep(time.Second)
		w.Del("lockline:r:{x}")
		start := time.Now()
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		g := <-got
		testlock.Must(t, g.Err)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("handed over after %v", took)
		}
		testlock.Unlock(t, g.Hold)
	})
}

// The session could pass the lock on in memory, but must not do so before the time of HoldAtLeast is over.
// Proves: HoldAtLeast
func TestAGoroutineOfTheSameSessionDoesNotGetWhatStaysTaken(t *testing.T) {
	const atLeast = 2 * time.Second
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithHandover(time.Hour)), "x")
		start := time.Now()
		_, hold := testlock.Lock(t, m, bg, rlock.HoldAtLeast(atLeast))
		next := testlock.Join(bg, m)
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, next))
		if took := time.Since(start); took < atLeast || took > atLeast+time.Second {
			t.Errorf("served after %v", took)
		}
	})
}

// A session's clock follows the server that answered last. This may be another node of a Cluster, whose clock
// differs from the clock of the lock's node. Proves: HoldAtLeast
func TestALockStaysTakenByTheClockOfItsServer(t *testing.T) {
	const atLeast = 2 * time.Second
	for kind, newLocker := range queued {
		t.Run(kind, func(t *testing.T) {
			for _, seconds := range []time.Duration{-5, -1, 1, 5} {
				ahead := seconds * time.Second
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					s := testlock.NewSession(t, w.Client)
					other := newLocker(testlock.NewSession(t, w.Client))
					_, hold := testlock.Lock(t, newLocker(s), bg, rlock.HoldAtLeast(atLeast))
					time.Sleep(500 * time.Millisecond)
					inner.Session(s).Clock.Sync(time.Now().Add(ahead).UnixMicro(), time.Now())
					start := time.Now()
					testlock.Unlock(t, hold)
					testlock.Must(t, testlock.Cycle(bg, other))
					took := time.Since(start)
					if took < 1499*time.Millisecond || took > 1600*time.Millisecond {
						t.Errorf("a node's clock is %v ahead: it stayed taken for another %v", ahead, took)
					}
				})
			}
		})
	}
}

// The release changes the owner field. So a second copy of it, or a late one, cannot extend the time for
// which the lock stays taken.
func TestASecondCopyOfAnUnlockDoesNotProlongHoldAtLeast(t *testing.T) {
	for kind, newLocker := range queued {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				l := newLocker(testlock.NewSession(t, w.Client))
				other := newLocker(testlock.NewSession(t, w.Client))
				_, hold := testlock.Lock(t, l, bg, rlock.HoldAtLeast(2*time.Second))
				w.Net.OnRequest(onFirst(faultproxy.CutReply, func(r *faultproxy.Request) bool {
					return testlock.Remains(r)
				}))
				start := time.Now()
				testlock.Unlock(t, hold) // sends a second copy
				time.Sleep(time.Second)
				var copies int
				for _, r := range w.Net.Requests() {
					if testlock.Remains(&r) {
						copies++
						if reply, err := w.Net.Replay(r); err != nil || !strings.HasPrefix(reply, "R") {
							t.Errorf("a late copy: %q, %v", reply, err)
						}
					}
				}
				if copies < 2 {
					t.Errorf("%d copies were sent", copies)
				}
				testlock.Must(t, testlock.Cycle(bg, other))
				if took := time.Since(start); took < 1999*time.Millisecond || took > 2100*time.Millisecond {
					t.Errorf("it stayed taken for %v", took)
				}
			})
		})
	}
}

func TestWhoeverIsRefusedIsToldThatTheLockOnlyStaysTaken(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		label := rlock.WithLabel("the first one")
		one, other := testlock.NewSession(t, w.Client, label), testlock.NewSession(t, w.Client)
		testlock.Unlock(t, testlock.Take(t, rlock.New(one, "x"), rlock.HoldAtLeast(3*time.Second)))
		_, _, err := rlock.New(other, "x").TryLock(bg)
		var locked *rlock.LockedError
		if !errors.As(err, &locked) || !strings.Contains(err.Error(), "locked by "+one.ID()+":1 (") ||
			!strings.Contains(err.Error(), ", unlocked, and stays taken for another 3s (HoldAtLeast)") {
			t.Fatalf("%v", err)
		}
		host, _ := os.Hostname()
		if by := locked.HeldBy(); by.Session != one.ID() || by.PID != os.Getpid() || by.Host != host ||
			by.Label != "the first one" || by.Owner != locked.Holder || by.Remaining != locked.Remaining {
			t.Errorf("held by %+v", by)
		}
		_, _, err = rlock.New(other, "x").Lock(bg, rlock.WaitAtMost(time.Second))
		if err == nil || !strings.Contains(err.Error(), "stays taken for another 2s") {
			t.Errorf("after a wait: %v", err)
		}
	})
}
