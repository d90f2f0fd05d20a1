package testlock

import (
	"context"
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
)

// A Maker makes a lock of one kind.
type Maker func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex

// Kinds has the kinds of locks whose type is *rlock.Mutex, except the kind of package redisson.
var Kinds = map[string]Maker{"reentrant": rlock.New, "fair": fairlock.New}

// EveryKind runs a test for each kind in Kinds.
func EveryKind(t *testing.T, test func(t *testing.T, newMutex Maker)) {
	for kind, newMutex := range Kinds {
		t.Run(kind, func(t *testing.T) { test(t, newMutex) })
	}
}

// A Mutex is a lock of any kind that only one owner can hold at a time.
type Mutex interface {
	rlock.Locker
	Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error
	Inspect(ctx context.Context) (rlock.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
	ForceUnlockToken(ctx context.Context, token int64) (bool, error)
}

// An AnyMaker makes a lock of one kind. The type of the lock need not be *rlock.Mutex.
type AnyMaker func(*rlock.Session, string, ...rlock.Option) Mutex

// Any converts a function like rlock.New to an AnyMaker.
func Any[M Mutex](newMutex func(*rlock.Session, string, ...rlock.Option) M) AnyMaker {
	return func(s *rlock.Session, name string, options ...rlock.Option) Mutex {
		return newMutex(s, name, options...)
	}
}

// AnyKinds has the same kinds as Kinds.
var AnyKinds = map[string]AnyMaker{"reentrant": Any(rlock.New), "fair": Any(fairlock.New)}
