package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// docs/operations.md says how long what stays after an Unlock.
func TestAfterUnlockOnlyTheTokenStaysAndForAMinuteAtMost(t *testing.T) {
	const lease = 30 * time.Second // the default
	for _, c := range []struct {
		options   []rlock.SessionOption
		retention time.Duration
	}{
		{nil, 15 * time.Second},
		{[]rlock.SessionOption{rlock.WithTokenRetention(time.Hour)}, time.Hour},
	} {
		everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
			m := newMutex(testlock.NewSession(t, w.Client, c.options...), "x")
			for range 3 {
				testlock.Works(t, m)
			}
			keys := w.Keys()
			if len(keys) != 1 {
				t.Fatalf("%q stay", keys)
			}
			retention := c.retention
			if keys[0] == "lockline:q:{x}:t" {
				retention = max(retention, 10*time.Minute)
			}
			if left := w.TTL(keys[0]); left < retention || left > lease+2*retention {
				t.Errorf("%s stays for %v", keys[0], left)
			}
		})
	}
}
