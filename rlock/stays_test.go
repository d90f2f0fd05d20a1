package rlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
		everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
			m := newMutex(testlock.NewSession(t, rdb, c.options...), "x")
			for range 3 {
				_, hold := testlock.Lock(t, m, bg)
				testlock.Unlock(t, hold)
			}
			keys := rdb.Keys(bg, "*").Val()
			if len(keys) != 1 {
				t.Fatalf("%q stay", keys)
			}
			retention := c.retention
			if keys[0] == "lockline:q:{x}:t" {
				retention = max(retention, 10*time.Minute)
			}
			if left := rdb.PTTL(bg, keys[0]).Val(); left < retention || left > lease+2*retention {
				t.Errorf("%s stays for %v", keys[0], left)
			}
		})
	}
}
