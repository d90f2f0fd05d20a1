package rlock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Redis lost the lock while all connections stayed. Whoever waits was told that it is held for ten more minutes, and must
// be woken by the first request that finds it gone.
func TestWaitersAreWokenWhenTheLockIsFoundGone(t *testing.T) {
	t.Parallel()
	gone := map[string]func(t *testing.T, rdb *redis.Client){
		"flushed": func(t *testing.T, rdb *redis.Client) { testlock.Must(t, rdb.FlushAll(bg).Err()) },
		"deleted": func(t *testing.T, rdb *redis.Client) {
			for _, key := range rdb.Keys(bg, "*{x}").Val() {
				testlock.Must(t, rdb.Del(bg, key).Err())
			}
		},
	}
	for how, lose := range gone {
		for by, find := range map[string]func(t *testing.T, hold *rlock.Hold){
			"a renewal": func(*testing.T, *rlock.Hold) {}, // the next one
			"a release": func(t *testing.T, hold *rlock.Hold) {
				testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
			},
		} {
			t.Run(how+", found by "+by, func(t *testing.T) {
				t.Parallel()
				everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
					rdb := w.Client
					lease := 20 * time.Minute
					if by == "a renewal" {
						lease = 900 * time.Millisecond
					}
					waits := make(testlock.Waits, 1)
					a := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(lease))
					p := faultproxy.InMemory(t, w.Dial)
					b := testlock.NewSession(t, p.Client(t), rlock.WithWatchdogTimeout(lease), rlock.WithObserver(waits), rlock.WithLiveness(time.Second))
					_, hold := testlock.Lock(t, newMutex(a, "x"), bg)
					testlock.Must(t, hold.Extend(bg, 20*time.Minute))
					got := testlock.Go(testlock.Bounded(t), newMutex(b, "x"))
					<-waits
					testlock.Eventually(t, "it listens", func() bool { return len(rdb.PubSubChannels(bg, "*").Val()) == 1 })
					for n := 0; n < p.Count("EVALSHA", "EVAL"); <-time.After(100 * time.Millisecond) {
						n = p.Count("EVALSHA", "EVAL") // it asks once more when it listens
					}
					lose(t, rdb)
					find(t, hold)
					testlock.Unlock(t, testlock.Granted(t, got))
				})
			})
		}
	}
}
