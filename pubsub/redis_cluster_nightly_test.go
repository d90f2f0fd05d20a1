//go:build nightly

package pubsub_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/pubsub"
)

// startSharded starts a Cluster. It skips the test if the servers have no sharded pub/sub.
func startSharded(t *testing.T, masters, replicas int) (*testredis.Cluster, *redis.ClusterClient) {
	t.Helper()
	c := testredis.StartCluster(t, masters, replicas)
	if !c.Sharded() {
		t.Skip("this server is older than Redis 7")
	}
	return c, c.Client(t, func(o *redis.ClusterOptions) {
		o.DialTimeout, o.ReadTimeout = time.Second, time.Second
	})
}

func newClusterHub(t *testing.T, rdb *redis.ClusterClient) *pubsub.Hub {
	h := pubsub.NewShardedHub(pubsub.Masters(rdb), pubsub.Options{PingInterval: 500 * time.Millisecond})
	t.Cleanup(h.Close)
	return h
}

// A feed publishes the numbers from 1 on a channel. It repeats each number until Redis has accepted it.
type feed struct {
	channel string
	mu      sync.Mutex
	last    int // last number that was or is being published
}

func (f *feed) publish(ctx context.Context, rdb *redis.ClusterClient) {
	f.mu.Lock()
	f.last++
	n := f.last
	f.mu.Unlock()
	for ctx.Err() == nil && rdb.SPublish(ctx, f.channel, strconv.Itoa(n)).Err() != nil {
		time.Sleep(10 * time.Millisecond)
	}
}

func (f *feed) number() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// A follower listens to a feed. It fails the test if a number is missing without a "resubscribed" in between.
type follower struct {
	feed  *feed
	sub   *pubsub.Subscription
	knows int
	gaps  int
}

func (f *follower) take(t *testing.T) {
	messages, resubscribed := f.sub.Take()
	if resubscribed {
		f.gaps++
	}
	for _, m := range messages {
		n, err := strconv.Atoi(m)
		if err != nil {
			t.Errorf("%s: %q", f.feed.channel, m)
		}
		if n > f.knows+1 && !resubscribed {
			t.Errorf("%s: %d follows on %d, and there was no gap", f.feed.channel, n, f.knows)
		}
		f.knows = max(f.knows, n)
	}
	if resubscribed {
		f.knows = f.feed.number()
	}
}

// A load publishes on channels, and follows them with a hub.
type load struct {
	t         *testing.T
	rdb       *redis.ClusterClient
	followers []*follower
	stop      context.CancelFunc
	publisher sync.WaitGroup
	listeners sync.WaitGroup
	done      chan struct{}
}

func startLoad(t *testing.T, rdb *redis.ClusterClient, h *pubsub.Hub, channels []string) *load {
	ctx, stop := context.WithCancel(t.Context())
	w := &load{t: t, rdb: rdb, stop: stop, done: make(chan struct{})}
	for _, name := range channels {
		f := &follower{feed: &feed{channel: name}, sub: h.Subscribe(name)}
		awaitResubscribed(t, f.sub)
		w.followers = append(w.followers, f)
		w.publisher.Go(func() {
			for ctx.Err() == nil {
				f.feed.publish(t.Context(), rdb)
				time.Sleep(2 * time.Millisecond)
			}
		})
		w.listeners.Go(func() {
			for {
				select {
				case <-f.sub.C():
					f.take(t)
				case <-w.done:
					return
				}
			}
		})
	}
	t.Cleanup(stop)
	return w
}

// end publishes once more on each channel, and waits until each follower has that number.
func (w *load) end() {
	w.stop()
	w.publisher.Wait()
	close(w.done)
	w.listeners.Wait()
	for _, f := range w.followers {
		f.feed.publish(w.t.Context(), w.rdb)
		for timeout := time.After(30 * time.Second); f.knows < f.feed.number(); {
			select {
			case <-f.sub.C():
				f.take(w.t)
			case <-timeout:
				w.t.Fatalf("%s: knows %d of %d", f.feed.channel, f.knows, f.feed.number())
			}
		}
	}
}

func numbered(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// subscribers fails the test unless the nodes get these numbers of subscription connections. It waits until
// the connections of earlier tests have ended.
func subscribers(t *testing.T, c *testredis.Cluster, want ...int) {
	t.Helper()
	got := make([]int, len(want))
	deadline := time.Now().Add(30 * time.Second)
	for ; !slices.Equal(got, want); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("subscription connections of the nodes: %v, want %v", got, want)
		}
		for i, s := range c.Nodes {
			list, err := s.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "PUBSUB").Text()
			if err != nil {
				t.Fatal(err)
			}
			got[i] = strings.Count(list, "\n")
		}
	}
}

func TestOnAClusterShardedChannels(t *testing.T) {
	t.Parallel()
	cluster, rdb := startSharded(t, 3, 0)

	t.Run("share a connection for each master, and stay off the cluster bus", func(t *testing.T) {
		h := newClusterHub(t, rdb)
		subs := map[string]*pubsub.Subscription{}
		for _, name := range numbered("many", 300) {
			subs[name] = h.Subscribe(name)
		}
		for _, s := range subs {
			awaitResubscribed(t, s)
		}
		subscribers(t, cluster, 1, 1, 1)
		before := cluster.Sent(t, "publish")
		for name, s := range subs {
			if err := rdb.SPublish(t.Context(), name, "to "+name).Err(); err != nil {
				t.Fatal(err)
			}
			awaitMessage(t, s, "to "+name)
		}
		expect(t, "messages between nodes", cluster.Sent(t, "publish"), before)
		if err := rdb.Publish(t.Context(), "classic", "1").Err(); err != nil {
			t.Fatal(err)
		}
		expect(t, "messages between nodes by PUBLISH", cluster.Sent(t, "publish"), before+2)
	})

	t.Run("with one tag leave other masters without a connection", func(t *testing.T) {
		h := newClusterHub(t, rdb)
		for _, name := range numbered("{tag}", 20) {
			awaitResubscribed(t, h.Subscribe(name))
		}
		want := make([]int, 3)
		want[slices.Index(cluster.Nodes, cluster.Master(t, "{tag}"))] = 1
		subscribers(t, cluster, want...)
	})

	t.Run("follow slots that move", func(t *testing.T) {
		h := newClusterHub(t, rdb)
		names := numbered("moving", 12)
		w := startLoad(t, rdb, h, names)
		for round := range 12 {
			name := names[round%4]
			from := slices.Index(cluster.Nodes, cluster.Master(t, name))
			cluster.MoveSlot(t, name, cluster.Nodes[(from+1+round%2)%3])
			time.Sleep(100 * time.Millisecond)
		}
		w.end()
		for i, f := range w.followers {
			if moved := i < 4; moved != (f.gaps > 0) {
				t.Errorf("%s: %d gaps; moved: %v", f.feed.channel, f.gaps, moved)
			}
		}
		subscribers(t, cluster, 1, 1, 1)
	})

	t.Run("follow a slot whose client's map is wrong from the beginning", func(t *testing.T) {
		from := slices.Index(cluster.Nodes, cluster.Master(t, "late"))
		old := cluster.Client(t, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = time.Hour })
		if err := old.Ping(t.Context()).Err(); err != nil { // loads the map
			t.Fatal(err)
		}
		cluster.MoveSlot(t, "late", cluster.Nodes[(from+1)%3])
		s := newClusterHub(t, old).Subscribe("late")
		awaitResubscribed(t, s)
		if err := rdb.SPublish(t.Context(), "late", "1").Err(); err != nil {
			t.Fatal(err)
		}
		awaitMessage(t, s, "1")
	})

	t.Run("outlive a slot that nobody serves", func(t *testing.T) {
		node := cluster.Master(t, "unserved").Client(t)
		slot := node.ClusterKeySlot(t.Context(), "unserved").Val()
		h := newClusterHub(t, rdb)
		s := h.Subscribe("unserved")
		awaitResubscribed(t, s)
		if err := node.Do(t.Context(), "CLUSTER", "DELSLOTS", slot).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		if err := node.Do(t.Context(), "CLUSTER", "ADDSLOTS", slot).Err(); err != nil {
			t.Fatal(err)
		}
		awaitResubscribed(t, s)
		for _, s := range cluster.Nodes { // the next test needs all slots
			for !strings.Contains(s.Client(t).ClusterInfo(t.Context()).Val(), "cluster_state:ok") {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err := rdb.SPublish(t.Context(), "unserved", "1").Err(); err != nil {
			t.Fatal(err)
		}
		awaitMessage(t, s, "1")
	})
}

func TestShardedChannelsOutliveAMaster(t *testing.T) {
	t.Parallel()
	cluster, rdb := startSharded(t, 3, 1)
	h := newClusterHub(t, rdb)
	w := startLoad(t, rdb, h, numbered("x", 12))
	master := cluster.Master(t, "x0")
	replica := cluster.Nodes[3+slices.Index(cluster.Nodes, master)]

	// First comes a failover on request, after which the old master goes on as a replica.
	if err := replica.Client(t).Do(t.Context(), "CLUSTER", "FAILOVER").Err(); err != nil {
		t.Fatal(err)
	}
	for cluster.Master(t, "x0") != replica {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Second)
	replica.Kill()
	for cluster.Master(t, "x0") == replica {
		time.Sleep(50 * time.Millisecond)
	}
	w.end()
	gone, kept := 0, 0
	for _, f := range w.followers {
		switch at := cluster.Master(t, f.feed.channel); {
		case at == master && f.gaps == 0:
			t.Errorf("%s: no gap, though its master was killed", f.feed.channel)
		case at == master:
			gone++
		case f.gaps == 0:
			kept++
		}
	}
	t.Logf("%d channels of the killed master; %d others of %d had no gap", gone, kept, len(w.followers)-gone)
	if gone == 0 || kept == 0 {
		t.Error("that is not what the test is about")
	}
}
