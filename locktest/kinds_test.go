package locktest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/locktest"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// kinds has a function for each kind of lock. The function gets one session for each of three servers.
var kinds = map[string]func(sessions []*rlock.Session) rlock.Locker{
	"rlock":    func(s []*rlock.Session) rlock.Locker { return rlock.New(s[0], "x") },
	"fairlock": func(s []*rlock.Session) rlock.Locker { return fairlock.New(s[0], "x") },
	"redisson": func(s []*rlock.Session) rlock.Locker { return redisson.New(s[0], "x") },
	"writer":   func(s []*rlock.Session) rlock.Locker { return rwlock.New(s[0], "x") },
	"reader":   func(s []*rlock.Session) rlock.Locker { return rwlock.New(s[0], "x").RLocker() },
	"permits":  func(s []*rlock.Session) rlock.Locker { return semaphore.New(s[0], "x", 2).Locker(2) },
	"RedLock":  func(s []*rlock.Session) rlock.Locker { return testlock.RedLock("x", s...) },
	"MultiLock": func(s []*rlock.Session) rlock.Locker {
		return multilock.New(rlock.New(s[0], "x"), rlock.New(s[1], "y"))
	},
}

func rivalOf(kind string, sessions []*rlock.Session) rlock.Locker {
	if kind == "reader" { // readers do not exclude each other
		kind = "writer"
	}
	return kinds[kind](sessions)
}

func TestEveryKindOfLockIsTakenByOneProcessAndLostToAnother(t *testing.T) {
	for kind, newLock := range kinds {
		t.Run(kind, func(t *testing.T) {
			inBothTimes(t, func(t *testing.T) {
				var servers []*locktest.Server
				var mine, theirs []*rlock.Session
				for range 3 {
					server := locktest.NewServer(t)
					servers = append(servers, server)
					mine, theirs = append(mine, server.NewSession()), append(theirs, server.NewSession())
				}
				lock, rival := newLock(mine), rivalOf(kind, theirs)

				held, hold, err := lock.Lock(bg)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := rival.TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
					t.Errorf("TryLock of another process: %v", err)
				}
				waiting := make(chan error)
				go func() {
					_, hold, err := rival.Lock(bg)
					if err == nil {
						err = hold.Unlock(bg)
					}
					waiting <- err
				}()
				servers[0].Lose("x")
				if kind == "RedLock" {
					if held.Err() != nil {
						t.Error("a RedLock was lost with one server of three")
					}
					servers[1].Lose("x")
				}
				if kind != "RedLock" && kind != "MultiLock" && held.Err() == nil {
					t.Error("Lose has returned, and the context goes on")
				}
				<-held.Done()
				if cause := context.Cause(held); !errors.Is(cause, rlock.ErrLost) {
					t.Errorf("the cause is %v", cause)
				}
				if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
					t.Errorf("Unlock: %v", err)
				}
				start := time.Now()
				if err := <-waiting; err != nil {
					t.Errorf("the waiter: %v", err)
				}
				t.Log("waiter served after", time.Since(start))
			})
		})
	}
}
