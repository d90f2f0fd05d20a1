package rlock_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestValuesThatLocklineDidNotWriteAreRefusedOrRepairedByARealServer(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, at place, of func(*testing.T, string, *redis.Client) *vandal) {
		t.Parallel()
		rdb := testlock.Shared(t)
		for _, value := range oddReal {
			of(t, testlock.Prefix(rdb)+value, rdb).suffer(at, value)
		}
	})
}

// With this value as a number, the key would seem to live for ages, so nothing would extend its life. The Lua
// of miniredis does not read the value as a number.
func TestALifetimeInAFormThatLocklineDoesNotWriteIsRefused(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	m := rlock.New(testlock.NewSession(t, rdb), "x")
	testlock.Unlock(t, testlock.Take(t, m))
	testlock.Must(t, rdb.HSet(bg, testlock.Prefix(rdb)+":r:{x}", "lives", "5e15").Err())
	if _, _, err := m.TryLock(bg); err == nil || !strings.Contains(err.Error(), "lives") {
		t.Errorf("TryLock: %v", err)
	}
}

// A lock whose time to live is too long for a time.Duration must count as held. Waiters must not send
// requests all the time.
func TestALockThatLivesLongerThanADurationIsHeldByOthers(t *testing.T) {
	t.Parallel()
	testlock.EveryKind(t, func(t *testing.T, newMutex testlock.Maker) {
		t.Parallel()
		rdb := testlock.Shared(t)
		m := newMutex(testlock.NewSession(t, rdb), "x")
		for _, ms := range []int64{9e15, math.MaxInt64/1_000_000 + 1} {
			_, hold := testlock.Lock(t, newMutex(testlock.NewSession(t, rdb), "x"), bg)
			keys := rdb.Keys(bg, testlock.Prefix(rdb)+":?:{x}").Val()
			if len(keys) != 1 {
				t.Fatal(keys)
			}
			// A lock of package redisson ends with its key. All others have the end of the lease in their
			// hash.
			if rdb.HExists(bg, keys[0], "ends").Val() {
				testlock.Must(t, rdb.HSet(bg, keys[0], "ends", "9000000000000000").Err())
			}
			testlock.Must(t, rdb.Do(bg, "PEXPIRE", keys[0], ms).Err())
			_, _, err := m.Lock(bg, rlock.WaitAtMost(100*time.Millisecond))
			testlock.WantError(t, "Lock", err, rlock.ErrLocked)
			if st := testlock.Inspect(t, m); !st.Held || st.Remaining < 365*24*time.Hour {
				t.Errorf("%d ms: %+v", ms, st)
			}
			got := testlock.Go(bg, m)
			testlock.Unlock(t, hold)
			testlock.Unlock(t, testlock.Granted(t, got))
		}
	})
}
