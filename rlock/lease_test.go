package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: tokens
func TestTheTokenIsRememberedForLongerThanTheLockIsHeld(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		time.Sleep(3 * time.Hour)
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l <= 0 || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		testlock.Must(t, hold.Extend(bg, 24*time.Hour))
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l != 24*time.Hour || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		testlock.Unlock(t, hold)
	})
}
