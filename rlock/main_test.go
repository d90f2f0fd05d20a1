package rlock_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
)

func TestMain(m *testing.M) {
	testlock.Main(m, contend)
}

var bg = context.Background()

// everyKindOverAWire runs a test for each kind of lock, in fake time, with a server in memory.
func everyKindOverAWire(t *testing.T, test func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker)) {
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { test(t, w, newMutex) })
	})
}
