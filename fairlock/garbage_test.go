package fairlock_test

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Somebody writes scores that are no times: waiters are served all the same, none is granted a lease without an end,
// and what is no waiter is not in their way.
func TestWaitersAreServedThoughTheirScoresWereChanged(t *testing.T) {
	testlock.EveryServer(t, func(t *testing.T, rdb *redis.Client) {
		for _, score := range []float64{math.Inf(1), math.Inf(-1), -5, 1e18, 9007199254740992} {
			testlock.Must(t, rdb.FlushAll(bg).Err())
			held := testlock.Take(t, fairlock.New(testlock.NewSession(t, rdb), "x"))
			waiters := newLine(t, rdb)
			waiters.join(fairlock.New(testlock.NewSession(t, rdb, rlock.WithLiveness(300*time.Millisecond)), "x"), 0)
			for _, key := range []string{queueKey, aliveKey} {
				waiter := rdb.ZRange(bg, queueKey, 0, 0).Val()[0]
				testlock.Must(t, rdb.ZAdd(bg, key, redis.Z{Score: score, Member: waiter}).Err())
			}
			testlock.Must(t, rdb.ZAdd(bg, aliveKey, redis.Z{Score: score, Member: "another:1"}).Err())
			testlock.Must(t, rdb.ZAdd(bg, queueKey, redis.Z{Score: -1, Member: "another:1"}).Err())
			testlock.Unlock(t, held)
			got := waiters.next()
			if got.hold.Token() <= held.Token() {
				t.Errorf("%v: token %d after %d", score, got.hold.Token(), held.Token())
			}
			if ttl := rdb.PTTL(bg, lockKey).Val(); ttl <= 0 || ttl > time.Minute {
				t.Errorf("%v: held for %v", score, ttl)
			}
			testlock.Unlock(t, got.hold)
		}
	})
}
