package rwlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestWhileRedisIsFullHoldsGoOnAndAreHandedOverAndNewOnesAreRefused(t *testing.T) {
	t.Parallel()
	rdb, locks := open(t, 3, rlock.WithWatchdogTimeout(long))
	_, hold := lock(t, bg, locks[0])
	waiting := begin(bg, locks[1].RLocker())
	testlock.Eventually(t, "it waits, and has asked again when it listened", func() bool {
		about := rdb.HVals(bg, key+":d").Val()
		return len(about) == 1 && strings.Contains(about[0], "+ ")
	})
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	testlock.Renewed(t, hold, time.Second)
	unlock(t, hold)
	next := await(t, waiting).hold
	testlock.Renewed(t, next, time.Second)
	if _, _, err := locks[2].Lock(bg); err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("beside one that reads: %v", err)
	}
	unlock(t, next)
	if _, _, err := locks[2].TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("where it is free: %v", err)
	}
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
	_, hold = lock(t, bg, locks[2])
	unlock(t, hold)
}

func TestALongLeaseKeepsItsDataWhileOthersRenewTheirs(t *testing.T) {
	t.Parallel()
	rdb, locks := open(t, 2, rlock.WithWatchdogTimeout(long))
	_, long := lock(t, bg, locks[0].RLocker(), rlock.WithLease(time.Hour))
	_, short := lock(t, bg, locks[1].RLocker())
	testlock.Renewed(t, short, time.Second)
	unlock(t, short)
	for _, k := range []string{key, key + ":h"} {
		if left := rdb.PTTL(bg, k).Val(); left < 59*time.Minute {
			t.Errorf("%s is kept for %v", k, left)
		}
	}
	unlock(t, long)
}
