package rlock_test

import (
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// lockers returns functions that make locks of each kind, and MultiLocks of them.
func lockers() map[string]func(s *rlock.Session, name string) rlock.Locker {
	all := map[string]func(*rlock.Session, string) rlock.Locker{}
	for kind, newMutex := range testlock.Kinds {
		all[kind] = func(s *rlock.Session, name string) rlock.Locker { return newMutex(s, name) }
		all["multilock of "+kind] = func(s *rlock.Session, name string) rlock.Locker {
			return multilock.New(newMutex(s, name), newMutex(s, name+"2"))
		}
	}
	return all
}

// queued has functions that make the lock "x", for each kind that has a queue.
var queued = map[string]func(s *rlock.Session) rlock.Locker{
	"rlock":     func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
	"fairlock":  func(s *rlock.Session) rlock.Locker { return fairlock.New(s, "x") },
	"writer":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x") },
	"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 1).Locker(1) },
}

func TestEventsAndKeysNameTheKind(t *testing.T) {
	want := map[string]rlock.Kind{"reentrant": rlock.KindReentrant, "fair": rlock.KindFair}
	for kind, newMutex := range testlock.Kinds {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				n := 0
				s := testlock.NewSession(t, w.Client,
					rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
						if n++; e.LockKind != want[kind] {
							t.Errorf("%v of a lock of kind %q", e.Type, e.LockKind)
						}
					})))
				_, hold := testlock.Lock(t, newMutex(s, "x"), bg)
				if !w.Exists("lockline:" + string(want[kind]) + ":{x}") {
					t.Error("its key has another letter")
				}
				testlock.Unlock(t, hold)
				if n != 2 {
					t.Errorf("%d events", n)
				}
			})
		})
	}
}

func TestAKindOfLockHasAName(t *testing.T) {
	names := map[rlock.Kind]string{
		protocol.Reentrant: "reentrant", protocol.Fair: "fair", protocol.RedLock: "redlock",
		protocol.Redisson:  "redisson",
		protocol.ReadWrite: "rwlock", protocol.Semaphore: "semaphore", protocol.Latch: "latch", "x": "x",
	}
	for kind, name := range names {
		if kind.String() != name {
			t.Errorf("%q is %v", string(kind), kind)
		}
	}
}
