package rlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// says fails the test unless err matches target, and its text has one prefix and ends with these words.
func says(t *testing.T, what string, err, target error, words string) {
	t.Helper()
	if !errors.Is(err, target) || !strings.HasSuffix(err.Error(), words) ||
		strings.Count(err.Error(), "lockline: ") != 1 {
		t.Errorf("%s: %v", what, err)
	}
}

func TestTheErrorOfAHoldThatHasEndedSaysWhy(t *testing.T) {
	kinds := map[string]func(s *rlock.Session) rlock.Locker{
		"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 3).Locker(2) },
		"reader":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x").RLocker() },
		"writer":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
		"Redisson":  func(s *rlock.Session) rlock.Locker { return redisson.New(s, "x") },
	}
	for name, newMutex := range testlock.Kinds {
		kinds[name] = func(s *rlock.Session) rlock.Locker { return newMutex(s, "x") }
	}
	const (
		gone = "lock lost: it is not in Redis any more: its lease ran out there, it was forced, " +
			"or data was lost"
		fixed  = "lock lost: its fixed lease ran out before Unlock"
		before = "lock not held: it was unlocked before"
	)
	for kind, lock := range kinds {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				l := lock(testlock.NewSession(t, w.Client))
				_, hold := testlock.Lock(t, l, bg)
				w.FlushAll()
				says(t, "Unlock of a lock that is gone", hold.Unlock(bg), rlock.ErrLost, gone)

				_, hold = testlock.Lock(t, l, bg)
				w.FlushAll()
				says(t, "Extend of a lock that is gone", hold.Extend(bg, time.Minute), rlock.ErrLost, gone)
				says(t, "Unlock after that", hold.Unlock(bg), rlock.ErrLost, gone)

				err := rlock.Do(bg, l, func(context.Context) error {
					time.Sleep(6 * time.Second)
					return nil
				}, rlock.WithLease(5*time.Second))
				says(t, "Do that took longer than its fixed lease", err, rlock.ErrLost, fixed)

				_, hold, err = l.Lock(bg, rlock.WithLease(5*time.Second))
				testlock.Must(t, err)
				time.Sleep(6 * time.Second)
				says(t, "Extend after a fixed lease", hold.Extend(bg, time.Minute), rlock.ErrLost, fixed)
				says(t, "Unlock after a fixed lease", hold.Unlock(bg), rlock.ErrLost, fixed)

				_, hold = testlock.Lock(t, l, bg)
				testlock.Must(t, hold.Unlock(bg))
				says(t, "a second Unlock", hold.Unlock(bg), rlock.ErrNotHeld, before)
				says(t, "Extend after Unlock", hold.Extend(bg, time.Minute), rlock.ErrNotHeld, before)
			})
		})
	}
}

// If code defers Unlock before it checks the error of Lock, Unlock is called on a nil Hold.
func TestANilHoldSaysThatItsLockFailed(t *testing.T) {
	var hold *rlock.Hold
	for name, err := range map[string]error{
		"Unlock": hold.Unlock(bg), "Extend": hold.Extend(bg, time.Minute),
		"WaitReplicas": hold.WaitReplicas(bg, 1),
	} {
		says(t, name, err, rlock.ErrNotHeld, "the Hold is nil, because the call that should have "+
			"returned it failed: check the error of that call first")
	}
}

// The error of such a waiter may name a former holder, because the session was not notified of the release.
func TestAWaiterThatMayNotSubscribeSaysSo(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		testlock.Keep(t, testlock.Take(t, rlock.New(testlock.NewSession(t, w.Client), "x")))
		waiter := rlock.New(testlock.NewSession(t, w.Client), "x")
		for _, refused := range []bool{true, false} {
			w.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
				if refused && cmd == "SUBSCRIBE" {
					c.WriteError("NOPERM this user has no permissions to run the 'subscribe' command")
				}
				return refused && cmd == "SUBSCRIBE"
			})
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			_, _, err := waiter.Lock(ctx)
			cancel()
			const words = "(Redis refuses the subscription of this session, which notices a freed lock " +
				"only at its next heartbeat: NOPERM this user has no permissions to run " +
				"the 'subscribe' command (give "
			if !errors.As(err, new(*rlock.LockedError)) || strings.Contains(err.Error(), words) != refused {
				t.Errorf("refused %v: %v", refused, err)
			}
		}
	})
}
