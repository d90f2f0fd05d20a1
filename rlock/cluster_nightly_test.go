//go:build nightly

package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

func TestAFrozenMasterDelaysNoOtherMastersRenewals(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
		o.ReadTimeout, o.DialTimeout = time.Second, time.Second
	})
	// The lease must end by the server's clock before the Cluster notices the frozen master.
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(1500*time.Millisecond))
	frozen := cluster.Nodes[0]
	onFrozen, elsewhere := map[*rlock.Hold]context.Context{}, map[*rlock.Hold]context.Context{}
	for i := range 30 {
		name := fmt.Sprint("renew", i)
		ctx, h := testlock.Lock(t, rlock.New(s, name), bg)
		if cluster.Master(t, "lockline:r:{"+name+"}") == frozen {
			onFrozen[h] = ctx
		} else {
			elsewhere[h] = ctx
		}
	}
	if len(onFrozen) == 0 || len(elsewhere) == 0 {
		t.Fatal("the names do not spread")
	}
	frozen.Freeze()
	since := time.Now()
	for _, ctx := range onFrozen {
		testlock.Receive(t, "the frozen ones end at their deadline", ctx.Done())
	}
	// By now, holds that were not renewed since the freeze must be lost, too. (Soon after, the Cluster
	// refuses all requests, because a master is missing.)
	for h := range elsewhere {
		if h.Err() != nil || h.Deadline().Before(since.Add(1400*time.Millisecond)) {
			t.Errorf("%s: not renewed because another master froze: %v", h.Name(), h.Err())
		}
	}
	frozen.Thaw()
	for h := range onFrozen {
		testlock.WantError(t, "Unlock", h.Unlock(bg), rlock.ErrLost)
	}
}

// Proves: failover
func TestAcrossASentinelFailover(t *testing.T) {
	t.Parallel()
	sentinel := testredis.StartSentinel(t, 1)
	rdb := sentinel.FailoverClient(t, func(o *redis.FailoverOptions) {
		o.ReadTimeout, o.DialTimeout = 500*time.Millisecond, 500*time.Millisecond
	})
	a, b := testlock.NewSession(t, rdb), testlock.NewSession(t, rdb)
	_, hold := testlock.Lock(t, rlock.New(a, "x"), bg)
	testlock.Must(t, rdb.Do(bg, "wait", 1, 1000).Err()) // the replica has the lock, so the failover keeps it
	old := sentinel.Master(t)
	old.Freeze()
	sentinel.AwaitFailover(t, old)
	testlock.Renewed(t, hold, time.Second)
	testlock.Must(t, hold.Err())
	if _, _, err := rlock.New(b, "x").TryLock(bg); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("TryLock after the failover: %v", err)
	}
	testlock.Unlock(t, hold)
	next := testlock.Take(t, rlock.New(b, "x"))
	testlock.WantAfter(t, next, hold.Token())
	testlock.Unlock(t, next)
}

// The old master goes on running, as after a failover by an operator.
func TestNoSessionStarvesWhenSentinelsMoveTheMaster(t *testing.T) {
	t.Parallel()
	for kind, newLock := range queued {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sentinel := testredis.StartSentinel(t, 1)
			nobodyStarves(t, newLock, func() *redis.Client { return sentinel.FailoverClient(t) }, func() {
				old := sentinel.Master(t)
				sentinel.Failover(t)
				sentinel.AwaitFailover(t, old)
			})
		})
	}
}

func TestReplicasOfACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 1, 1)
	replica := cluster.Nodes[1]
	rdb := cluster.Client(t)
	_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, rdb), "x"), bg)
	if !has(t, hold, 1, testlock.Patience) {
		t.Error("with a replica")
	}
	replica.Freeze()
	if has(t, hold, 1, 300*time.Millisecond) {
		t.Error("with none")
	}
	replica.Thaw()
	testlock.Unlock(t, hold)
}

func TestAFrozenMasterHoldsUpNoPipelineToAnother(t *testing.T) {
	oneProcessor(t)
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	s := testlock.Batching(testlock.NewSession(t, rdb), 0)
	var frozen, others []*rlock.Mutex
	for i := 0; len(frozen) < 20 || len(others) < 20; i++ {
		name := fmt.Sprint("own", i)
		node, err := rdb.MasterForKey(bg, "lockline:r:{"+name+"}")
		testlock.Must(t, err)
		if node.Options().Addr == cluster.Nodes[0].Addr {
			frozen = append(frozen, rlock.New(s, name))
		} else {
			others = append(others, rlock.New(s, name))
		}
	}
	for _, m := range []*rlock.Mutex{frozen[0], others[0]} {
		_, h := testlock.Lock(t, m, bg)
		testlock.Unlock(t, h)
	}
	cluster.Nodes[0].Freeze()
	defer cluster.Nodes[0].Thaw()
	ctx, cancel := context.WithCancel(bg)
	var stuck, wg sync.WaitGroup
	for i := range 20 {
		stuck.Go(func() {
			if _, _, err := frozen[i].Lock(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("on the frozen master: %v", err)
			}
		})
		wg.Go(func() {
			_, h := testlock.Lock(t, others[i], ctx)
			testlock.Unlock(t, h)
		})
	}
	wg.Wait() // while the master stays frozen
	cancel()
	stuck.Wait()
}

// Proves: rights
func TestTheDocumentedRightsOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 2, 0)
	rules := testlock.DocumentedRights(t)
	set := func(rules []string) {
		for _, node := range cluster.Nodes {
			setUser(t, node.Client(t), rules)
		}
	}
	refused := func() (all []string) {
		for _, node := range cluster.Nodes {
			all = append(all, denied(t, node.Client(t))...)
		}
		return all
	}
	try := func() error { // the other tests cover the needs of a single server
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
			o.Username, o.Password = "lockline", "PASSWORD"
		})
		if err := everything(testlock.Bounded(t), rdb, testlock.Any(rlock.New), "x", beats); err != nil {
			return err
		}
		_, hold, err := rlock.New(testlock.NewSession(t, rdb), "x").Lock(testlock.Bounded(t))
		if err != nil {
			return err
		}
		const key = "lockline:r:{x}"
		to := cluster.Nodes[1-slices.Index(cluster.Nodes, cluster.Master(t, key))]
		cluster.MoveSlot(t, key, to, func() { err = hold.Unlock(testlock.Bounded(t)) })
		return err
	}
	needed, more := slices.Concat(rules.Server, rules.Cluster), []string(nil)
	if cluster.Sharded() {
		more = rules.Sharded
	}
	set(slices.Concat(needed, more))
	if err := try(); err != nil {
		t.Error(err)
	}
	if refused := refused(); refused != nil {
		t.Errorf("refused: %q", refused)
	}
	for _, more := range [][]string{nil, more} {
		possible := more != nil
		set(slices.Concat(needed, more, rules.Redisson))
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
			o.Username, o.Password = "lockline", "PASSWORD"
		})
		shared := testlock.Any(redisson.New)
		if err := everything(testlock.Bounded(t), rdb, shared, "orders:1", time.Second); err != nil {
			t.Errorf("with Redisson's keys, sharded %v: %v", possible, err)
		}
		if refused := refused(); refused != nil {
			t.Errorf("with Redisson's keys, sharded %v: refused: %q", possible, refused)
		}
		used := slices.ContainsFunc(cluster.Nodes, func(node *testredis.Server) bool {
			return called(node.Client(t), "spublish")
		})
		if used != possible {
			t.Errorf("with Redisson's keys, sharded %v: SPUBLISH was used: %v", possible, used)
		}
	}
	// leaveOut gives all rights except one. It returns whether the server has refused that right to try, and
	// the error of try.
	leaveOut := func(rule string, try func() error) (refusal bool, err error) {
		set(slices.DeleteFunc(slices.Concat(needed, more), func(r string) bool { return r == rule }))
		err = try()
		name := strings.TrimPrefix(rule, "+")
		command, _, _ := strings.Cut(name, "|") // Redis 6.2 logs commands without their subcommands
		refused := refused()
		return slices.Contains(refused, name) || slices.Contains(refused, command), err
	}
	for _, rule := range rules.Cluster {
		if refused, err := leaveOut(rule, try); !refused {
			t.Errorf("without %s, it was not refused; %v", rule, err)
		}
	}
	for _, rule := range more {
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) {
			o.Username, o.Password = "lockline", "PASSWORD"
		})
		wait := time.Second
		if rule == "+sunsubscribe" {
			wait = 8 * time.Second // SUNSUBSCRIBE comes later
		}
		sharded := func() error { return shardedWaits(testlock.Bounded(t), rdb, wait) }
		refused, err := leaveOut(rule, sharded)
		used := slices.ContainsFunc(cluster.Nodes, func(node *testredis.Server) bool {
			return called(node.Client(t), "ssubscribe")
		})
		// Without the rights to SSUBSCRIBE and SPUBLISH, neither is tried.
		if want := rule != "+ssubscribe" && rule != "+spublish"; refused != want ||
			used != want || err != nil {
			t.Errorf("without %s: refused: %v, SSUBSCRIBE used: %v; %v", rule, refused, used, err)
		}
	}
}

// shardedWaits makes a session give up the wait for one lock, and then wait for another lock in the same
// slot, for the time wait.
func shardedWaits(ctx context.Context, rdb rlock.Client, wait time.Duration) (err error) {
	var sessions []*rlock.Session
	for range 2 {
		s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet))
		if err != nil {
			return err
		}
		defer s.Close()
		sessions = append(sessions, s)
	}
	_, first, err := rlock.New(sessions[0], "x").Lock(ctx)
	if err != nil {
		return err
	}
	defer first.Unlock(bg)
	_, second, err := fairlock.New(sessions[0], "x").Lock(ctx)
	if err != nil {
		return err
	}
	_, _, err = rlock.New(sessions[1], "x").Lock(ctx, rlock.WaitAtMost(time.Second))
	if !errors.Is(err, rlock.ErrLocked) {
		return fmt.Errorf("a wait that ran out: %w", err)
	}
	_, _, err = fairlock.New(sessions[1], "x").Lock(ctx, rlock.WaitAtMost(wait))
	if !errors.Is(err, rlock.ErrLocked) {
		return fmt.Errorf("a wait that ran out: %w", err)
	}
	return second.Unlock(ctx)
}

// A session that lingers must learn that another session wants the lock. For each lock, it subscribes to a
// channel on the node of the lock.
func TestALockIsKeptOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	for mode, option := range map[string]rlock.SessionOption{
		"auto": nil, "classic": rlock.WithClassicPubSub(),
	} {
		keeper := testlock.NewSession(t, cluster.Client(t), rlock.WithLinger(time.Minute), option)
		other := testlock.NewSession(t, cluster.Client(t))
		for i := range 6 {
			name := fmt.Sprint("kept", mode, i)
			m := rlock.New(keeper, name)
			testlock.Eventually(t, "it is kept", func() bool {
				testlock.Must(t, testlock.Cycle(bg, m))
				return testlock.Inspect(t, m).Lingers
			})
			_, hold := testlock.Lock(t, rlock.New(other, name), bg, rlock.WaitAtMost(20*time.Second))
			testlock.Unlock(t, hold)
		}
	}
}

// With classic pub/sub, each node passes a message on to all other nodes, so a session may subscribe on any
// node. It must not depend on a node that has died.
func TestAMasterThatDiedForGoodDelaysNoHandOverOfAnotherMastersLocks(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	for _, node := range cluster.Nodes {
		testlock.Must(t, node.Client(t).ConfigSet(bg, "cluster-require-full-coverage", "no").Err())
	}
	dies := cluster.Nodes[2]
	holders := testlock.NewSession(t, cluster.Client(t), rlock.WithClassicPubSub())
	sessions := map[string]*rlock.Session{} // by the name of the lock that each waits for
	for i := 0; len(sessions) < 12; i++ {
		name := fmt.Sprint("alive", i)
		if cluster.Master(t, "lockline:r:{"+name+"}") != dies {
			sessions[name] = testlock.NewSession(t, cluster.Client(t), rlock.WithClassicPubSub())
		}
	}
	const most = 2 * time.Second // a heartbeat comes after 6 s
	handOver := func(name string) time.Duration {
		t.Helper()
		hold := testlock.Take(t, rlock.New(holders, name))
		got := testlock.Go(testlock.Bounded(t), rlock.New(sessions[name], name))
		for len(testlock.Inspect(t, rlock.New(holders, name)).Queue) == 0 {
			time.Sleep(time.Millisecond)
		}
		start := time.Now()
		testlock.Unlock(t, hold)
		next := testlock.Granted(t, got)
		took := time.Since(start)
		testlock.Unlock(t, next)
		return took
	}
	for name := range sessions {
		handOver(name)
	}
	dies.Kill()
	var longest time.Duration
	for round := range 3 {
		for name := range sessions {
			took := handOver(name)
			longest = max(longest, took)
			if took > most {
				t.Errorf("round %d, lock %s: handed over after %v", round, name, took)
			}
		}
	}
	t.Logf("the longest of 36 hand-overs took %v", longest)
}
