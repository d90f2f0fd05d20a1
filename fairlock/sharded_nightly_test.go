//go:build nightly

package fairlock_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// startSharded starts a Cluster. It skips the test if the servers have no sharded pub/sub.
func startSharded(
	t *testing.T, masters, replicas int, mod ...func(*redis.ClusterOptions),
) (*testredis.Cluster, *redis.ClusterClient) {
	t.Helper()
	c := testredis.StartCluster(t, masters, replicas)
	if !c.Sharded() {
		t.Skip("this server is older than Redis 7")
	}
	return c, c.Client(t, mod...)
}

// shardedListeners returns how many sessions have a sharded subscription for lock x on this server.
func shardedListeners(node *redis.Client, letter string) int {
	return len(node.PubSubShardChannels(bg, "lockline:s:"+letter+":{x}:*").Val())
}

func TestWaitersOnAClusterAreToldByShardedPubSub(t *testing.T) {
	t.Parallel()
	cluster, rdb := startSharded(t, 3, 0)
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		names := []string{"a", "b", "c", "d", "e", "f"} // these keys are on all masters
		one, two := testlock.NewSession(t, rdb, longLiveness), testlock.NewSession(t, rdb, longLiveness)
		before := cluster.Sent(t, "publish")
		for range 3 {
			for _, name := range names {
				hold := testlock.Take(t, newMutex(one, name))
				got := testlock.Go(testlock.Bounded(t), newMutex(two, name))
				testlock.Eventually(t, "it waits, and listens", func() bool {
					for _, entry := range rdb.HVals(bg, "lockline:"+letter+":{"+name+"}:w").Val() {
						return strings.HasSuffix(strings.Fields(entry)[3], "/+")
					}
					return false
				})
				testlock.Unlock(t, hold)
				testlock.Unlock(t, testlock.Granted(t, got))
			}
		}
		if n := cluster.Sent(t, "publish"); n != before {
			t.Errorf("%d messages went over the bus", n-before)
		}
	})
}

// Proves: dead processes
func TestTheDeadOnAClusterCostTheLivingNoTime(t *testing.T) {
	const dead = 20
	t.Parallel()
	cluster, rdb := startSharded(t, 3, 0)
	var addrs []string
	for _, node := range cluster.Nodes {
		addrs = append(addrs, node.Addr)
	}
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		node := cluster.Master(t, "{x}").Client(t)
		hold := testlock.Take(t, newMutex(testlock.NewSession(t, rdb, longLiveness), "x"))
		process, _ := waiters(t, letter, strings.Join(addrs, ","), testlock.Prefix(rdb), dead, 1)
		testlock.Eventually(t, "all wait, and listen", func() bool { return marked(rdb, letter) == dead })
		got := testlock.Go(testlock.Bounded(t), newMutex(testlock.NewSession(t, rdb, longLiveness), "x"))
		testlock.Eventually(t, "one behind them", func() bool { return marked(rdb, letter) == dead+1 })
		testlock.Must(t, process.Process.Kill())
		testlock.Eventually(t, "the server knows", func() bool { return shardedListeners(node, letter) == 1 })
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, got))
		if n := waiting(rdb, letter); n != dead {
			t.Errorf("%d keep their places, of %d that may live", n, dead)
		}
	})
}

// Sessions with sharded and with classic pub/sub may wait for the same lock.
func TestSessionsThatAreToldDifferentlyShareALock(t *testing.T) {
	t.Parallel()
	_, rdb := startSharded(t, 3, 0)
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		session := func(classic bool) *rlock.Session {
			var option rlock.SessionOption
			if classic {
				option = rlock.WithClassicPubSub()
			}
			return testlock.NewSession(t, rdb, longLiveness, option)
		}
		last := testlock.Take(t, newMutex(session(true), "x"))
		var waiters []<-chan testlock.Grant
		for i, classic := range []bool{false, true, false, true, false} {
			s := session(classic)
			waiters = append(waiters, testlock.Go(testlock.Bounded(t), newMutex(s, "x")))
			testlock.Eventually(t, "it waits, and listens", func() bool {
				if waiting(rdb, letter) != int64(i+1) {
					return false
				}
				if classic { // the subscription may be on any node
					var n atomic.Int32
					_ = rdb.ForEachMaster(bg, func(ctx context.Context, node *redis.Client) error {
						n.Add(int32(len(node.PubSubChannels(ctx, "lockline:s:"+s.ID()).Val())))
						return nil
					})
					return n.Load() == 1
				}
				return marked(rdb, letter) == map[int]int64{0: 1, 2: 2, 4: 3}[i]
			})
		}
		for _, w := range waiters {
			testlock.Unlock(t, last)
			last = testlock.Granted(t, w)
		}
		testlock.Unlock(t, last)
	})
}

func TestWithoutTheRightToShardedPubSubWaitersAreToldByTheClassicOne(t *testing.T) {
	t.Parallel()
	for _, without := range []string{"-ssubscribe", "-spublish"} {
		t.Run(without, func(t *testing.T) {
			cluster, rdb := startSharded(t, 1, 0, func(o *redis.ClusterOptions) {
				o.Username, o.Password = "poor", "secret"
			})
			admin := cluster.Nodes[0].Client(t)
			testlock.Must(t, admin.Do(bg, "ACL", "SETUSER", "poor", "on", ">secret", "allkeys", "allchannels",
				"+@all", without).Err())
			everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
				hold := testlock.Take(t, newMutex(testlock.NewSession(t, rdb, longLiveness), "x"))
				s := testlock.NewSession(t, rdb, longLiveness)
				got := testlock.Go(testlock.Bounded(t), newMutex(s, "x"))
				testlock.Eventually(t, "it waits, and listens", func() bool {
					return waiting(admin, letter) == 1 &&
						len(admin.PubSubChannels(bg, "lockline:s:"+s.ID()).Val()) == 1
				})
				testlock.Unlock(t, hold)
				testlock.Unlock(t, testlock.Granted(t, got))
			})
		})
	}
}

// wait makes a session wait for lock x of each kind. It returns when Redis knows that the session has a
// subscription.
func wait(
	t *testing.T, rdb *redis.ClusterClient,
) (holds map[string]*rlock.Hold, got map[string]<-chan testlock.Grant) {
	t.Helper()
	holder, waiter := testlock.NewSession(t, rdb, longLiveness), testlock.NewSession(t, rdb, longLiveness)
	holds, got = map[string]*rlock.Hold{}, map[string]<-chan testlock.Grant{}
	for letter, newMutex := range queuedKinds {
		holds[letter] = testlock.Take(t, newMutex(holder, "x"))
		got[letter] = testlock.Go(testlock.Bounded(t), newMutex(waiter, "x"))
		testlock.Eventually(t, "it waits, and listens", func() bool { return marked(rdb, letter) == 1 })
	}
	return holds, got
}

// Proves: failover
func TestAWaiterIsToldThoughItsSlotHasMoved(t *testing.T) {
	t.Parallel()
	cluster, rdb := startSharded(t, 2, 0)
	holds, got := wait(t, rdb)
	to := cluster.Nodes[0]
	if to == cluster.Master(t, "{x}") {
		to = cluster.Nodes[1]
	}
	cluster.MoveSlot(t, "{x}", to)
	node := to.Client(t)
	for letter := range queuedKinds {
		testlock.Eventually(t, "it listens there", func() bool { return shardedListeners(node, letter) == 1 })
		testlock.Unlock(t, holds[letter])
		testlock.Unlock(t, testlock.Granted(t, got[letter]))
	}
}

// Proves: failover
func TestAWaiterIsToldByTheReplicaThatTookOver(t *testing.T) {
	t.Parallel()
	cluster, rdb := startSharded(t, 3, 1, func(o *redis.ClusterOptions) {
		o.ReadTimeout, o.DialTimeout, o.ClusterStateReloadInterval = time.Second, time.Second,
			500*time.Millisecond
	})
	holds, got := wait(t, rdb)
	old := cluster.Master(t, "{x}")
	testlock.Must(t, old.Client(t).Wait(bg, 1, 10*time.Second).Err())
	old.Kill()
	admin := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.ClusterStateReloadInterval = 100 * time.Millisecond
	})
	var node *redis.Client
	testlock.Eventually(t, "a replica takes over", func() bool {
		var err error
		node, err = admin.MasterForKey(bg, "{x}")
		return err == nil && node.Options().Addr != old.Addr && node.Ping(bg).Err() == nil
	})
	for letter := range queuedKinds {
		testlock.Eventually(t, "it listens there", func() bool { return shardedListeners(node, letter) == 1 })
		testlock.Unlock(t, holds[letter])
		testlock.Unlock(t, testlock.Granted(t, got[letter]))
	}
}
