package fairlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// A full server refuses a script's write only if it is the first one. So a script whose first write is
// accepted, such as an HDEL, could grant a lock there.
func TestAFullServerRenewsReleasesAndHandsOverButGrantsNothing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		rdb := server.Client(t)
		lease := rlock.WithWatchdogTimeout(5 * time.Second)
		one, two := testlock.NewSession(t, rdb, lease), testlock.NewSession(t, rdb, lease)
		testlock.Works(t, newMutex(one, "released"))
		lost := testlock.Take(t, newMutex(one, "lost"))
		testlock.Must(t, rdb.HSet(bg, "lockline:"+letter+":{lost}", "ends", 1).Err())
		hold := testlock.Take(t, newMutex(one, "x"))
		waits := testlock.Go(testlock.Bounded(t), newMutex(two, "x"))
		testlock.Eventually(t, "it waits, and listens", func() bool { return marked(rdb, letter) == 1 })

		testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
		testlock.Renewed(t, hold, time.Second)
		testlock.Unlock(t, hold)
		next := testlock.Granted(t, waits)
		testlock.Renewed(t, next, time.Second)
		for _, name := range []string{"new", "released", "lost"} {
			before := rdb.HGetAll(bg, "lockline:"+letter+":{"+name+"}").String()
			_, _, err := newMutex(two, name).TryLock(bg)
			if err == nil || errors.Is(err, rlock.ErrLocked) || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("%s: %v", name, err)
			}
			if after := rdb.HGetAll(bg, "lockline:"+letter+":{"+name+"}").String(); after != before {
				t.Errorf("%s: %s, after %s", name, after, before)
			}
		}
		testlock.Unlock(t, next)
		_ = lost.Unlock(bg)
		testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
		testlock.Works(t, newMutex(two, "lost"))
	})
}

// A waiter whose heartbeats are refused loses its place when the waiter timeout ends.
func TestAHeartbeatKeepsThePlaceOfAWaiterOnAFullServer(t *testing.T) {
	t.Parallel()
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		t.Parallel()
		rdb := testredis.Start(t).Client(t)
		alive := rlock.WithWaiterTimeout(5 * time.Second)
		one, two := testlock.NewSession(t, rdb, alive), testlock.NewSession(t, rdb, alive)
		hold := testlock.Take(t, newMutex(one, "x"))
		waits := testlock.Go(testlock.Bounded(t), newMutex(two, "x"))
		testlock.Eventually(t, "it waits, and listens", func() bool { return marked(rdb, letter) == 1 })
		aliveUntil := func() string {
			entries := rdb.HVals(bg, testlock.Prefix(rdb)+":"+letter+":{x}:w").Val()
			until, _, _ := strings.Cut(strings.Join(entries, ""), " ")
			return until
		}
		testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
		for range 2 {
			before := aliveUntil()
			testlock.Eventually(t, "a heartbeat is accepted", func() bool { return aliveUntil() > before })
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, waits))
	})
}
