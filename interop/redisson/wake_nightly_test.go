//go:build nightly

package redisson

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// asked counts the scripts of one side that the server has answered, for each lock.
type asked struct {
	mu sync.Mutex // guards n
	n  map[string]int
}

func countAsked(p *faultproxy.Proxy) *asked {
	a := &asked{n: map[string]int{}}
	p.OnReply(func(r faultproxy.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if r.Script() != "" && len(r.Args) > 3 {
			a.n[r.Args[3]]++ // the script's first key, which is the name of the lock
		}
	})
	return a
}

func (a *asked) of(name string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n[name]
}

func median(all []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// lease is longer than any test waits, so no lock becomes free because its lease ends.
const lease = 5 * patience

// A waiter sends only three requests: the first one, another one after it has subscribed, and a third one
// when a message has notified it. If no message notified the waiter, it would wait for the whole lease. With
// the message, it waits for a small part of that.
// Proves: Redisson
func TestEachSideWakesTheOtherAtOnceAndAWaiterSendsNothingMeanwhile(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	goProxy, jvmProxy := faultproxy.New(t, server.Addr), faultproxy.New(t, server.Addr)
	goAsked, jvmAsked := countAsked(goProxy), countAsked(jvmProxy)
	s := testlock.NewSession(t, goProxy.Client(t), rlock.WithWatchdogTimeout(lease))
	a := dial(t, lease, jvmProxy.Addr()).thread("a")
	_, hold := testlock.Lock(t, redisson.New(s, "first"), bg) // now the server has the scripts
	testlock.Unlock(t, hold)

	const rounds = 10
	var toGo, toJVM []time.Duration
	for i := range rounds {
		name := fmt.Sprint("x", i)
		m := redisson.New(s, name)
		long := time.Duration(0)
		if i == 0 {
			long = time.Second // long enough to see whether a waiter polls
		}

		a.do("lock", name)
		waiting := waiter(m)
		eventually(t, "Go waits", func() bool { return goAsked.of(name) == 2 })
		<-time.After(long)
		freed := time.Now()
		a.do("unlock", name)
		g := granted(t, waiting)
		toGo = append(toGo, g.at.Sub(freed))
		if n := goAsked.of(name); n != 3 {
			t.Errorf("Go has sent %d requests for a lock that it waited for", n)
		}

		before := jvmAsked.of(name)
		locked := a.start("lock", name)
		eventually(t, "the JVM waits", func() bool { return jvmAsked.of(name) == before+2 })
		<-time.After(long)
		freed = time.Now()
		testlock.Unlock(t, g.hold)
		got := receive(t, "lock in the JVM", locked)
		testlock.Must(t, got.err)
		toJVM = append(toJVM, got.at.Sub(freed))
		if n := jvmAsked.of(name) - before; n != 3 {
			t.Errorf("the JVM has sent %d requests for a lock that it waited for", n)
		}
		a.do("unlock", name)
	}
	for side, took := range map[string][]time.Duration{"Go": toGo, "the JVM": toJVM} {
		t.Logf("hand-over to %s: median %v of %d", side, median(took), rounds)
		if median(took) > lease/100 {
			t.Errorf("hand-overs to %s take %v", side, took)
		}
	}
}

// turns is an observer that counts how often a session gets the lock.
type turns struct{ atomic.Int32 }

func (c *turns) Observe(_ context.Context, e rlock.Event) {
	if e.Type == rlock.EventAcquired {
		c.Add(1)
	}
}

// Eight goroutines lock and unlock the lock without a pause. A thread of the JVM that wants the lock, too,
// must get it after a few of their turns.
func TestATurnDoesNotStarveTheJVM(t *testing.T) {
	needJVM(t)
	server := testredis.Start(t)
	var counted turns
	m := redisson.New(testlock.NewSession(t, server.Client(t), rlock.WithObserver(&counted)), "x")
	a := dial(t, lease, server.Addr).thread("a")
	ctx, stop := context.WithCancel(bg)
	defer stop()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := testlock.Cycle(bg, m); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer wg.Wait()
	defer stop()
	var passed []int32
	for range 30 {
		before := counted.Load()
		a.do("lock", "x")
		passed = append(passed, counted.Load()-before)
		a.do("unlock", "x")
	}
	slices.Sort(passed)
	t.Logf("turns of Go that passed before each of the JVM's: %v", passed)
	if median := passed[len(passed)/2]; median > 20 { // enough for a slow machine
		t.Errorf("half of the JVM's turns were behind %d turns of Go or more: %v", median, passed)
	}
}

// First, both sides have their default mode of pub/sub. Then, sharded pub/sub is switched off on both sides.
// Proves: Redisson
func TestOnAClusterEachSideWakesTheOther(t *testing.T) {
	needJVM(t)
	cluster := testredis.StartCluster(t, 3, 0)
	t.Run("by default", func(t *testing.T) { eachSideWakesTheOther(t, cluster, "-", nil) })
	t.Run("without shards", func(t *testing.T) {
		eachSideWakesTheOther(t, cluster, "OFF", rlock.WithClassicPubSub())
	})
}

// eachSideWakesTheOther fails the test unless a release by each side wakes a waiter of the other side. A side
// publishes as its own mode says, sharded or not, so theirs and ours must be the same mode.
func eachSideWakesTheOther(
	t *testing.T, cluster *testredis.Cluster, theirs string, ours rlock.SessionOption,
) {
	var addrs []string
	var nodes []*redis.Client
	for _, node := range cluster.Nodes {
		addrs = append(addrs, node.Addr)
		nodes = append(nodes, node.Client(t))
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { _ = rdb.Close() })
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(lease), ours)
	a := dialMode(t, lease, theirs, addrs...).thread("a")
	for i := range 4 { // the names are in several slots
		name := func(letter string) string { return fmt.Sprint(letter, i, theirs) }
		x, y, u, v := name("x"), name("y"), name("u"), name("v")
		a.do("lock", x)
		waiting := waiter(redisson.New(s, x))
		subscribed(t, x, nodes...)
		a.do("unlock", x)
		testlock.Unlock(t, granted(t, waiting).hold)

		_, hold := testlock.Lock(t, redisson.New(s, y), bg)
		locked := a.start("lock", y)
		subscribed(t, y, nodes...)
		testlock.Unlock(t, hold)
		testlock.Must(t, receive(t, "lock in the JVM", locked).err)
		a.do("unlock", y)

		a.do("lock", u)
		waiting = waiter(redisson.New(s, u))
		subscribed(t, u, nodes...)
		a.do("forceUnlock", u)
		testlock.Unlock(t, granted(t, waiting).hold)

		_, hold = testlock.Lock(t, redisson.New(s, v), bg)
		locked = a.start("lock", v)
		subscribed(t, v, nodes...)
		testlock.ForceUnlock(t, redisson.New(s, v))
		testlock.Must(t, receive(t, "lock in the JVM", locked).err)
		a.do("unlock", v)
		testlock.WantError(t, "the unlock of a lock that was forced", hold.Unlock(bg), rlock.ErrLost)
	}
}
