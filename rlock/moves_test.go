package rlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// A managed Redis fails over behind one address. The old server lives on and keeps the connections that it has, so that a
// subscription stays where nothing is published any more (go-redis 790 and 2229, spring-data-redis 3431).
func TestAWaiterIsServedThoughItsSubscriptionStayedAtAServerThatIsNotTheLocksAnyMore(t *testing.T) {
	for kind, newLock := range map[string]func(s *rlock.Session) rlock.Locker{
		"rlock":     func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
		"fairlock":  func(s *rlock.Session) rlock.Locker { return fairlock.New(s, "x") },
		"writer":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
		"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 1).Locker(1) },
	} {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, old *testlock.Wire) {
				after := testlock.NewWire(t)
				log := &testlock.Log{}
				stays, newcomer := testlock.NewSession(t, old.Client, rlock.WithLogger(log.Logger())), testlock.NewSession(t, after.Client)
				_, hold := testlock.Lock(t, newLock(testlock.NewSession(t, old.Client)), bg)
				waits, leave := context.WithCancel(bg)
				got := testlock.Go(waits, newLock(stays)) // whose session listens from now on
				time.Sleep(time.Second)
				leave()
				testlock.WantError(t, "the wait", testlock.Receive(t, "its end", got).Err, context.Canceled)
				old.Net.LeadTo(after.Dial)
				old.Net.CutRequests()

				// Its next wait is at the new server, and its subscription at the old one: within a heartbeat it is mended.
				_, first := testlock.Lock(t, newLock(newcomer), bg)
				got = testlock.Go(bg, newLock(stays))
				time.Sleep(7 * time.Second)
				testlock.Unlock(t, first)
				start := time.Now()
				testlock.Unlock(t, testlock.Granted(t, got))
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("served after %v", took)
				}
				if n := log.Count("pubsub: connection replaced"); n != 1 {
					t.Errorf("logged %d times", n)
				}
				_ = hold.Unlock(bg) // the new server does not know it
			})
		})
	}
}
