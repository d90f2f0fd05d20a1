//go:build nightly

package redisson_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// redissonChannel is watched on the server that has it.
type redissonChannel struct {
	name             string
	node             *redis.Client
	classic, sharded *redis.PubSub // sharded is nil if the server has no sharded pub/sub
}

func watchRedissonChannel(t *testing.T, cluster *testredis.Cluster, lock string) *redissonChannel {
	c := &redissonChannel{name: "redisson_lock__channel:{" + lock + "}"}
	c.node = cluster.Master(t, c.name).Client(t)
	confirmed := func(sub *redis.PubSub) *redis.PubSub {
		t.Cleanup(func() { _ = sub.Close() })
		_, err := sub.Receive(bg)
		testlock.Must(t, err)
		return sub
	}
	c.classic = confirmed(c.node.Subscribe(bg, c.name))
	if cluster.Sharded() {
		c.sharded = confirmed(c.node.SSubscribe(bg, c.name))
	}
	return c
}

// waitedAt waits until another client has subscribed to the channel, by sharded or by classic pub/sub.
func (c *redissonChannel) waitedAt(t *testing.T, cluster *testredis.Cluster, sharded bool) {
	t.Helper()
	testlock.Eventually(t, fmt.Sprintf("a subscription, sharded: %v", sharded), func() bool {
		if sharded {
			return c.node.PubSubShardNumSub(bg, c.name).Val()[c.name] == 2
		}
		var n int64
		for _, node := range cluster.Nodes {
			n += node.Client(t).PubSubNumSub(bg, c.name).Val()[c.name]
		}
		return n == 2
	})
}

// published returns the numbers of Redisson's messages on the channel, by PUBLISH and by SPUBLISH.
func (c *redissonChannel) published(t *testing.T) (classic, sharded int) {
	t.Helper()
	testlock.Must(t, c.node.Publish(bg, c.name, "end").Err())
	classic = untilEnd(t, c.classic)
	if c.sharded != nil {
		testlock.Must(t, c.node.SPublish(bg, c.name, "end").Err())
		sharded = untilEnd(t, c.sharded)
	}
	return classic, sharded
}

func untilEnd(t *testing.T, sub *redis.PubSub) (n int) {
	t.Helper()
	for {
		m, err := sub.ReceiveMessage(testlock.Bounded(t))
		testlock.Must(t, err)
		switch m.Payload {
		case "end":
			return n
		case "0":
			n++
		default:
			t.Errorf("published: %q", m.Payload)
		}
	}
}

// The lease is longer than the test's patience: a waiter that got no message would fail it.
func TestOnAClusterLocksOfRedissonAreToldOfAsRedissonDoes(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	const lease = 20 * testlock.Patience
	const all = "allcommands allchannels"
	for name, c := range map[string]struct {
		rights  string
		options []rlock.SessionOption
		sharded bool // where the servers can
	}{
		"by default":            {all, nil, true},
		"classic":               {all, []rlock.SessionOption{rlock.WithClassicPubSub()}, false},
		"no SSUBSCRIBE":         {all + " -ssubscribe", nil, false},
		"no SPUBLISH":           {all + " -spublish", nil, false},
		"these channels alone":  {"allcommands resetchannels &redisson_lock__channel:*", nil, true},
		"no command for shards": {all + " -ssubscribe -sunsubscribe -spublish", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			if !cluster.Sharded() {
				// They do not know these.
				for _, newer := range []string{" -ssubscribe", " -sunsubscribe", " -spublish"} {
					c.rights = strings.Replace(c.rights, newer, "", 1)
				}
				c.sharded = false
			}
			for _, node := range cluster.Nodes {
				args := []any{"ACL", "SETUSER", "lockline", "reset", "on", ">PASSWORD", "allkeys"}
				for rule := range strings.FieldsSeq(c.rights) {
					args = append(args, rule)
				}
				testlock.Must(t, node.Client(t).Do(bg, args...).Err())
				testlock.Must(t, node.Client(t).Do(bg, "ACL", "LOG", "RESET").Err())
			}
			options := append([]rlock.SessionOption{rlock.WithWatchdogTimeout(lease)}, c.options...)
			rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
				o.Username, o.Password = "lockline", "PASSWORD"
			})
			a, b := testlock.NewSession(t, rdb, options...), testlock.NewSession(t, rdb, options...)

			deleted := func(end func(*rlock.Hold) error) func(*testing.T, *redisson.Mutex, *rlock.Hold) {
				return func(t *testing.T, m *redisson.Mutex, hold *rlock.Hold) {
					testlock.Must(t, cluster.Client(t).Del(bg, m.Name()).Err())
					testlock.WantError(t, "its data were deleted", end(hold), rlock.ErrLost)
				}
			}
			ends := []struct {
				what string
				end  func(t *testing.T, m *redisson.Mutex, hold *rlock.Hold)
				both bool // clients of the other mode are notified, too
			}{
				{"unlocked", func(t *testing.T, _ *redisson.Mutex, hold *rlock.Hold) {
					testlock.Unlock(t, hold)
				}, false},
				{"deleted, which an unlock finds", deleted(func(hold *rlock.Hold) error {
					return hold.Unlock(bg)
				}), false},
				{"deleted, which a renewal finds", deleted(func(hold *rlock.Hold) error {
					return hold.Extend(bg, lease)
				}), false},
				{"forced", func(t *testing.T, m *redisson.Mutex, _ *rlock.Hold) {
					testlock.ForceUnlock(t, m)
				}, true},
				{"forced from its holder", func(t *testing.T, m *redisson.Mutex, _ *rlock.Hold) {
					held, err := m.ForceUnlockToken(bg, testlock.Inspect(t, m).Token)
					if err != nil || !held {
						t.Errorf("%v, %v", held, err)
					}
				}, true},
			}
			for i, end := range ends {
				lock := fmt.Sprint("x", i, strings.ReplaceAll(name, " ", ""))
				mine, other := redisson.New(a, lock), redisson.New(b, lock)
				channel := watchRedissonChannel(t, cluster, lock)
				_, hold := testlock.Lock(t, mine, bg)
				got := testlock.Go(bg, other)
				channel.waitedAt(t, cluster, c.sharded)
				before := cluster.Sent(t, "publish")
				end.end(t, mine, hold)
				next := testlock.Granted(t, got)
				if sent := cluster.Sent(t, "publish") - before; (sent == 0) != (c.sharded && !end.both) {
					t.Errorf("%s: %d messages went to other nodes", end.what, sent)
				}
				classic, sharded := channel.published(t)
				if (classic == 1) != (!c.sharded || end.both) || (sharded == 1) != c.sharded ||
					classic > 1 || sharded > 1 {
					t.Errorf("%s: %d messages by PUBLISH, %d by SPUBLISH", end.what, classic, sharded)
				}
				testlock.Unlock(t, next)
				// A hold that nobody has is unlocked, which would find a forced lock gone.
				runtime.KeepAlive(hold)
			}
			for _, node := range cluster.Nodes {
				testlock.NothingRefused(t, node.Client(t))
			}
		})
	}
}

// A session lets others go first by the number of notified clients. PUBLISH counts only the clients of one
// node.
func TestOnAClusterAReleaseKnowsAllWhoWereToldOfIt(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	if !cluster.Sharded() {
		t.Skip("these servers have no sharded pub/sub")
	}
	options := []rlock.SessionOption{rlock.WithWatchdogTimeout(20 * testlock.Patience)}
	rdb := cluster.Client(t)
	m := testlock.Warm(t, redisson.New(testlock.NewSession(t, rdb, options...), "x"))
	channel := watchRedissonChannel(t, cluster, "x")
	testlock.Must(t, channel.sharded.Close())
	_, hold := testlock.Lock(t, m, bg)
	const waiters = 3
	ended := make(chan error, waiters)
	for range waiters {
		other := redisson.New(testlock.NewSession(t, cluster.Client(t), options...), "x")
		go func() { ended <- testlock.Cycle(bg, other) }()
	}
	testlock.Eventually(t, "all wait", func() bool {
		return channel.node.PubSubShardNumSub(bg, channel.name).Val()[channel.name] == waiters
	})
	replies := make(chan string, 1)
	rdb.AddHook(testlock.Hook{Command: func(
		ctx context.Context, cmd redis.Cmder, next redis.ProcessHook,
	) error {
		err := next(ctx, cmd)
		if reply, ok := cmd.(interface{ Val() string }); ok &&
			testlock.Script(fmt.Sprint(cmd.Args()[1])) == "release" && err == nil {
			replies <- reply.Val()
		}
		return err
	}})
	testlock.Unlock(t, hold)
	if reply := testlock.Receive(t, "the reply", replies); reply != fmt.Sprint("R ", waiters) {
		t.Errorf("%q", reply)
	}
	for range waiters {
		testlock.Must(t, testlock.Receive(t, "a cycle", ended))
	}
}

// While a slot moves, a release runs on its new master, but waiters are subscribed at the old one. They are
// notified when the slot has moved, at the latest.
func TestAReleaseOfALockOfRedissonWhileItsSlotMovesWakesItsWaiter(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 2, 0)
	rdb := cluster.Client(t)
	options := []rlock.SessionOption{rlock.WithWatchdogTimeout(20 * testlock.Patience)}
	a, b := redisson.New(testlock.NewSession(t, rdb, options...), "x"),
		redisson.New(testlock.NewSession(t, rdb, options...), "x")
	// Otherwise some keys of a release would not exist.
	testlock.Must(t, rdb.Set(bg, "redisson_lock_token:{x}", "1", 0).Err())
	channel := watchRedissonChannel(t, cluster, "x")
	_, hold := testlock.Lock(t, a, bg)
	got := testlock.Go(bg, b)
	channel.waitedAt(t, cluster, cluster.Sharded())
	to := cluster.Nodes[1-slices.Index(cluster.Nodes, cluster.Master(t, "x"))]
	cluster.MoveSlot(t, "x", to, func() { testlock.Unlock(t, hold) })
	testlock.Unlock(t, testlock.Granted(t, got))
}
