package rwlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestWhileRedisIsFullHoldsGoOnAndAreHandedOverAndNewOnesAreRefused(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	locks := locksOf(t, rdb, 3, rlock.WithWatchdogTimeout(5*time.Second))
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %v", what, err)
		}
	}
	hold := testlock.Take(t, locks[0])
	waiting := testlock.Go(testlock.Bounded(t), locks[1].RLocker())
	testlock.Eventually(t, "it waits, and has asked again when it listened", func() bool {
		about := rdb.HVals(bg, key+":w").Val()
		return len(about) == 1 && strings.Contains(about[0], "+ ")
	})
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	testlock.Renewed(t, hold, time.Second)
	testlock.Unlock(t, hold)
	next := testlock.Granted(t, waiting)
	testlock.Renewed(t, next, time.Second)
	_, _, err := locks[2].Lock(bg)
	refused("beside one that reads", err)
	testlock.Unlock(t, next)
	_, _, err = locks[2].TryLock(bg)
	refused("where it is free", err)
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
	testlock.Works(t, locks[2])
}
