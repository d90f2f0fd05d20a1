package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// Proves: notice
func TestWaitersGoOnAndHoldersLearnOfALoss(t *testing.T) {
	t.Parallel()
	do := func(t *testing.T, rdb *redis.Client, commands ...string) {
		for _, command := range commands {
			var args []any
			for word := range strings.FieldsSeq(command) {
				args = append(args, word)
			}
			testlock.Must(t, rdb.Do(bg, args...).Err())
		}
	}
	const noClients = "client kill type normal skipme yes"
	for what, c := range map[string]struct {
		happens func(t *testing.T, server *testredis.Server, rdb *redis.Client)
		lost    bool
	}{
		"restart": {func(t *testing.T, s *testredis.Server, _ *redis.Client) { s.Restart(t) }, true},
		"flush": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			do(t, rdb, "flushall")
		}, true},
		"script flush": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			do(t, rdb, "script flush")
		}, false},
		"pubsub killed": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			do(t, rdb, "client kill type pubsub")
		}, false},
		"all clients killed": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			do(t, rdb, noClients, "client kill type pubsub")
		}, false},
		"pause": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			do(t, rdb, "client pause 500 all")
		}, false},
		"read only": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			refusesAGrant(t, rdb, func() { do(t, rdb, "replicaof 127.0.0.1 1") }, func() {
				do(t, rdb, "replicaof no one")
			})
		}, true},
		"replicas missing": {func(t *testing.T, _ *testredis.Server, rdb *redis.Client) {
			refusesAGrant(t, rdb, func() { do(t, rdb, "config set min-replicas-to-write 1") },
				func() { do(t, rdb, "config set min-replicas-to-write 0") })
		}, true},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			waits := make(testlock.Waits, 1)
			lease := rlock.WithWatchdogTimeout(6 * time.Second)
			a := testlock.NewSession(t, server.Client(t), lease)
			b := testlock.NewSession(t, server.Client(t), lease, rlock.WithObserver(waits))
			ctx, hold := testlock.Lock(t, rlock.New(a, "x"), bg)
			got := testlock.Go(testlock.Bounded(t), rlock.New(b, "x"))
			testlock.Receive(t, "waiting", waits)
			c.happens(t, server, server.Client(t))
			if c.lost {
				testlock.Receive(t, "the holder learns of it", ctx.Done())
				if context.Cause(ctx) != rlock.ErrLost {
					t.Errorf("cause: %v", context.Cause(ctx))
				}
			} else {
				testlock.Renewed(t, hold, 0)
				testlock.Unlock(t, hold)
			}
			next := testlock.Granted(t, got)
			testlock.WantAfter(t, next, hold.Token())
			testlock.Unlock(t, next)
		})
	}
}

// refusesAGrant frees lock x, and wakes its waiters while the server refuses writes, which begin and end
// switch on and off.
func refusesAGrant(t *testing.T, rdb *redis.Client, begin, end func()) {
	testlock.Must(t, rdb.Del(bg, lockKey).Err())
	begin()
	testlock.Must(t, rdb.ConfigResetStat(bg).Err())
	testlock.Must(t, rdb.Publish(bg, lockKey, "0").Err())
	testlock.Eventually(t, "refused", func() bool {
		return !strings.Contains(rdb.Info(bg, "stats").Val(), "total_error_replies:0\r\n")
	})
	end()
}

func TestAFullServerEndsNoWait(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb, rlock.WithWaiterTimeout(5*time.Second)),
		"x"))
	testlock.Eventually(t, "it waits", func() bool { return seen(rdb) == 1 })
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	testlock.Must(t, rdb.ConfigResetStat(bg).Err())
	testlock.Eventually(t, "heartbeats are refused", func() bool {
		return !strings.Contains(rdb.Info(bg, "stats").Val(), "total_error_replies:0\r\n")
	})
	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "0").Err())
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
}

// The user of this session may not call PUBSUB, so its scripts do not know whether a waiter has a
// subscription. They must not skip the waiter.
func TestAWaiterIsNotPassedOverWhereItIsNotKnownWhetherItListens(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	user := testlock.User(t, server, "without", "+@all", "-pubsub", "~*", "&*")
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, user), "x"), bg)
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb), "x"))
	testlock.Eventually(t, "it waits", func() bool { return seen(rdb) == 1 })
	testlock.Unlock(t, hold)
	if owner := testlock.Inspect(t, rlock.New(testlock.NewSession(t, rdb), "x")); !owner.Held {
		t.Error("the lock was handed to nobody")
	}
	testlock.Unlock(t, testlock.Granted(t, got))
}

// The queue has more dead waiters than one request skips. The first of them is granted the lock, and its
// lease must end. Then living waiters are served.
func TestManyOfTheDeadHideNobodyThatLives(t *testing.T) {
	t.Parallel()
	const dead = 1001
	rdb := testlock.Shared(t)
	lock := testlock.Prefix(rdb) + ":r:{x}"
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	now := time.Now().UnixMicro()
	_, err := rdb.Pipelined(bg, func(p redis.Pipeliner) error {
		for i := range dead {
			owner := fmt.Sprintf("dead%d:1", i)
			p.ZAdd(bg, lock+":q", redis.Z{Score: float64(now - 2000000 + int64(i)), Member: owner})
			p.HSet(bg, lock+":w", owner, fmt.Sprint(now+3600_000000, " 1 30000 abc+ me"))
		}
		return nil
	})
	testlock.Must(t, err)
	got := testlock.Go(bg, rlock.New(testlock.NewSession(t, rdb), "x"))
	testlock.Eventually(t, "it waits", func() bool { return rdb.ZCard(bg, lock+":q").Val() == dead+1 })
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
}

func TestAFullPoolIsAnErrorForNewcomersAndNotTheEndOfAHold(t *testing.T) {
	t.Parallel()
	if !reflect.ValueOf(redis.Options{}).FieldByName("PipelinePoolSize").IsValid() {
		t.Skip("go-redis before 9.22 has one pool: renewals wait for its connections, too")
	}
	rdb := testlock.Shared(t, func(o *redis.Options) { o.PoolSize, o.PoolTimeout = 1, 50*time.Millisecond })
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(6*time.Second))
	_, hold := testlock.Lock(t, rlock.New(s, "x"), bg)
	other := rlock.New(testlock.NewSession(t, rdb), "y")
	conn := rdb.Conn() // takes the only connection
	testlock.Must(t, conn.Ping(bg).Err())
	if _, _, err := other.TryLock(bg); !errors.Is(err, redis.ErrPoolTimeout) {
		t.Errorf("TryLock with a full pool: %v", err)
	}
	testlock.Renewed(t, hold, 0) // go-redis has other connections for pipelines
	testlock.Must(t, conn.Close())
	testlock.Unlock(t, hold)
	testlock.Works(t, other)
}
