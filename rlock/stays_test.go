package rlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testlock"
)

// docs/operations.md says how long what stays after an Unlock.
func TestAfterUnlockOnlyTheTokenStaysForSomeMinutes(t *testing.T) {
	everyKind(t, func(t *testing.T, rdb *redis.Client, newMutex testlock.Maker) {
		m := newMutex(testlock.NewSession(t, rdb), "x")
		for range 3 {
			_, hold := testlock.Lock(t, m, bg)
			testlock.Unlock(t, hold)
		}
		keys := rdb.Keys(bg, "*").Val()
		if len(keys) != 1 {
			t.Fatalf("%q stay", keys)
		}
		least, most := time.Minute, 150*time.Second
		if keys[0] == "lockline:q:{x}:t" {
			least, most = 10*time.Minute, 20*time.Minute+30*time.Second
		}
		if left := rdb.PTTL(bg, keys[0]).Val(); left < least || left > most {
			t.Errorf("%s stays for %v", keys[0], left)
		}
	})
}
