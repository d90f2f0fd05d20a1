package testlock

import (
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
)

// Maker makes a lock of some kind.
type Maker func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex

// Kinds are the kinds of Mutexes.
var Kinds = map[string]Maker{"reentrant": rlock.New, "fair": fairlock.New}

// EveryKind runs a test for each kind of Mutex: they promise the same.
func EveryKind(t *testing.T, test func(t *testing.T, newMutex Maker)) {
	for kind, newMutex := range Kinds {
		t.Run(kind, func(t *testing.T) { test(t, newMutex) })
	}
}
