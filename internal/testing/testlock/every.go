package testlock

import (
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Maker makes a lock of some kind.
type Maker func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex

// Kinds are the kinds of locks. Its RedLock is of one server.
var Kinds = map[string]Maker{"reentrant": rlock.New, "fair": fairlock.New, "redlock": redLock}

// redLock waits for its server as long as its lease allows, since there is no other to ask.
func redLock(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	for timeout := Patience / 3; timeout > 10*time.Millisecond; timeout /= 2 {
		if q, err := multilock.NewQuorum([]*rlock.Session{s}, multilock.WithServerTimeout(timeout)); err == nil {
			return q.New(name, options...)
		}
	}
	return multilock.NewRedLock(name, s) // tells why
}

// EveryKind runs a test for each kind of lock: they promise the same.
func EveryKind(t *testing.T, test func(t *testing.T, newMutex Maker)) {
	for kind, newMutex := range Kinds {
		t.Run(kind, func(t *testing.T) { test(t, newMutex) })
	}
}
