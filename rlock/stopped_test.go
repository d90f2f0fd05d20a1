package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// stop has the effect of SIGSTOP on the network of a process: its connections stay open, but nothing is sent
// on them any more.
func stop(net *faultproxy.Proxy) {
	net.Freeze()
	net.BlackHole(false, true)
}

// For Redis, the waiters of a stopped process are alive. If such a waiter is first in the queue, the lock is
// granted to it for a first lease of 2 s. If this waiter should send a request at the end of the holder's
// lease, the next waiter sends it 250 ms later. Proves: dead processes
func TestAStoppedProcessDelaysOthersByItsLeaseAndAFirstLeaseOfItsWaiter(t *testing.T) {
	const lease = 4 * time.Second
	type locker = func(s *rlock.Session) rlock.Locker
	write := queued["writer"]
	read := func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x").RLocker() }
	permits := func(n int) locker {
		return func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 3).Locker(n) }
	}
	// Each kind has the lock that the stopped process holds, the lock that its waiters want, and the lock
	// that the other process wants.
	kinds := map[string][3]locker{
		"rlock":                  {queued["rlock"], queued["rlock"], queued["rlock"]},
		"a writer after readers": {read, write, write},
		"a reader after readers": {read, write, read},
		"a writer after writers": {write, write, write},
		"a reader after writers": {write, write, read},
		"one permit":             {permits(3), permits(3), permits(1)},
		"all permits":            {permits(1), permits(3), permits(3)},
	}
	// At first, a session has a hold. The words "own" and "another" are waiters of the stopped process: one
	// of this session, and one of another session.
	orders := map[string]time.Duration{
		"idle stop other":         0,
		"other stop":              0,
		"other own stop":          0,
		"idle stop other another": 0,
		"own stop other":          2 * time.Second,
		"idle stop another other": 2*time.Second + 250*time.Millisecond,
	}
	for kind, of := range kinds {
		for order, late := range orders {
			if kind == "a reader after readers" && !strings.Contains(order, "own stop other") &&
				!strings.Contains(order, "another other") {
				continue // the reader of the other process would share the lock
			}
			t.Run(kind+", "+order, func(t *testing.T) {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					one, two := faultproxy.InMemory(t, w.Dial), faultproxy.InMemory(t, w.Dial)
					session := func(net *faultproxy.Proxy) *rlock.Session {
						s := testlock.NewSession(t, net.Client(t),
							rlock.WithLinger(time.Hour), rlock.WithWatchdogTimeout(lease))
						testlock.Works(t, of[0](s)) // so that the session subscribes
						time.Sleep(lease)
						return s
					}
					another, stopped := session(two), session(one)
					ctx, cancel := context.WithCancel(bg)
					hold := testlock.Take(t, of[0](stopped))
					other := of[2](testlock.NewSession(t, w.Client))
					var left []<-chan testlock.Grant
					var got <-chan testlock.Grant
					for _, step := range strings.Fields(order) {
						switch step {
						case "idle":
							testlock.Unlock(t, hold)
						case "own": // a hold with a fixed lease is not passed on in memory
							left = append(left,
								testlock.Join(ctx, of[1](stopped), rlock.WithLease(time.Minute)))
						case "stop":
							stop(one)
						case "another":
							left = append(left, testlock.Join(ctx, of[1](another)))
							stop(two)
						case "other":
							got = testlock.Join(bg, other)
						}
					}
					var locked *rlock.LockedError
					if _, _, err := other.TryLock(bg); !errors.As(err, &locked) {
						t.Fatalf("it is not taken: %v", err)
					}
					end := time.Now().Add(locked.Remaining)
					mine := testlock.Granted(t, got)
					if took := time.Since(end); took < late || took > late+5*time.Millisecond {
						t.Errorf("it has it %v after the end of the lease, want %v", took, late)
					}
					testlock.Unlock(t, mine)
					cancel()
					for _, net := range []*faultproxy.Proxy{one, two} {
						net.BlackHole(false, false)
						net.Thaw()
					}
					for _, got := range left {
						<-got
					}
					_ = hold.Unlock(bg)
				})
			})
		}
	}
}
