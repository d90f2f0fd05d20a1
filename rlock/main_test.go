package rlock_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestMain(m *testing.M) {
	// go-redis dials a server that is gone once a second. Only then does it notice that its client was
	// closed.
	testlock.Main(m, contend,
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

var bg = context.Background()

// everyKindOverAWire runs a test for each kind of lock, in fake time, with a server in memory.
func everyKindOverAWire(t *testing.T, test func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker)) {
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { test(t, w, newMutex) })
	})
}
