package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// A right that was taken away, or a key of another type, is mended by an operator, and the lock is to be free then.
func TestAReleaseThatRedisRefusesIsRepeated(t *testing.T) {
	for kind, newLock := range map[string]func(s *rlock.Session) rlock.Locker{
		"rlock":     func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
		"fairlock":  func(s *rlock.Session) rlock.Locker { return fairlock.New(s, "x") },
		"writer":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
		"reader":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x").RLocker() },
		"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 1).Locker(1) },
		"redlock":   func(s *rlock.Session) rlock.Locker { return multilock.NewRedLock("x", s) },
	} {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				s := testlock.NewSession(t, w.Client)
				_, hold := testlock.Lock(t, newLock(s), bg)
				_, kept := testlock.Lock(t, rlock.New(s, "kept"), bg)
				testlock.Must(t, kept.Extend(bg, time.Hour))
				w.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
				if err := hold.Unlock(bg); err == nil {
					t.Error("no error of a release that was refused")
				}
				time.Sleep(time.Second)
				w.SetError("")
				time.Sleep(3 * time.Second)
				testlock.Unlock(t, testlock.Take(t, newLock(testlock.NewSession(t, w.Client)), rlock.WaitAtMost(0)))

				w.SetError("NOPERM")
				start := time.Now()
				if err := kept.Unlock(bg); err == nil {
					t.Error("no error of a release that was refused")
				}
				_ = s.Close()
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("Close waited for %v for what only an operator can mend", took)
				}
				w.SetError("")
			})
		})
	}
}
