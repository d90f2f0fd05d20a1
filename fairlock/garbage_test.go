package fairlock_test

import (
	"math"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

// Somebody writes scores that are no times: waiters are served all the same, none is granted a lease without an end,
// and what is no waiter is not in their way.
func TestWaitersAreServedThoughTheirScoresWereChanged(t *testing.T) {
	test := func(t *testing.T, rdb *redis.Client) {
		for _, score := range []float64{math.Inf(1), math.Inf(-1), -5, 1e18, 9007199254740992} {
			must(t, rdb.FlushAll(bg).Err())
			held := lock(t, fairlock.New(newSession(t, rdb), "x"))
			waiters := newLine(t, rdb)
			waiters.join(fairlock.New(newSession(t, rdb, rlock.WithLiveness(300*time.Millisecond)), "x"), 0)
			for _, key := range []string{queueKey, aliveKey} {
				waiter := rdb.ZRange(bg, queueKey, 0, 0).Val()[0]
				must(t, rdb.ZAdd(bg, key, redis.Z{Score: score, Member: waiter}).Err())
			}
			must(t, rdb.ZAdd(bg, aliveKey, redis.Z{Score: score, Member: "another:1"}).Err())
			must(t, rdb.ZAdd(bg, queueKey, redis.Z{Score: -1, Member: "another:1"}).Err())
			unlock(t, held)
			got := waiters.next()
			if got.hold.Token() <= held.Token() {
				t.Errorf("%v: token %d after %d", score, got.hold.Token(), held.Token())
			}
			if ttl := rdb.PTTL(bg, lockKey).Val(); ttl <= 0 || ttl > time.Minute {
				t.Errorf("%v: held for %v", score, ttl)
			}
			unlock(t, got.hold)
		}
	}
	t.Run("embedded", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, rdb)
	})
	t.Run("real", func(t *testing.T) { test(t, testredis.Start(t).Client(t)) })
}
