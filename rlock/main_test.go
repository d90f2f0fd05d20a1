package rlock_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) {
	// go-redis asks a server that is gone once a second, and only then sees that its client was closed.
	testlock.Main(m, contend, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var bg = context.Background()

// everyKindOverAWire runs a test in fake time for each kind of lock.
func everyKindOverAWire(t *testing.T, test func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker)) {
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { test(t, w, newMutex) })
	})
}

// identity is the id by which a session holds locks of a kind: its own, or that of its quorum.
func identity(t testing.TB, s *rlock.Session, newMutex testlock.Maker) string {
	t.Helper()
	m := newMutex(s, "identity")
	_, hold := testlock.Lock(t, m, bg)
	id := testlock.Inspect(t, m).Session
	testlock.Unlock(t, hold)
	return id
}
