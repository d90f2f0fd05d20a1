package session

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/internal/wire"
)

func TestAModeOfPubSubIsRefusedWhereItCannotBe(t *testing.T) {
	one := redis.NewClient(&redis.Options{})
	defer one.Close()
	several := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"nowhere"}})
	defer several.Close()
	noCluster := redis.NewFailoverClusterClient(&redis.FailoverOptions{SentinelAddrs: []string{"nowhere"}})
	defer noCluster.Close()
	for _, c := range []struct {
		client  wire.Client
		mode    PubSub
		refused string // "" if not
		hub     bool
	}{
		{one, PubSubAuto, "", false},
		{one, PubSubClassic, "", false},
		{one, PubSubSharded, "no client of a Cluster", false},
		{several, PubSubAuto, "", true},
		{several, PubSubClassic, "", false},
		{several, PubSubSharded, "", true},
		{several, 3, "no mode 3", false},
		{noCluster, PubSubAuto, "", false},
		{noCluster, PubSubSharded, "no client of a Cluster", false},
	} {
		cfg := sound
		cfg.PubSub = c.mode
		s, err := New(c.client, cfg)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), "WithPubSub") || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%T, mode %d: %v", c.client, c.mode, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%T, mode %d: %v", c.client, c.mode, err)
		}
		if (s.ShardedHub != nil) != c.hub {
			t.Errorf("%T, mode %d: a sharded hub: %v", c.client, c.mode, s.ShardedHub)
		}
		if c.mode != PubSubAuto || c.client != several { // else it asks
			if got, _ := s.Sharded(bounded(t), "k"); got != c.hub {
				t.Errorf("%T, mode %d: sharded: %v", c.client, c.mode, got)
			}
		}
		end(t, s)
	}
}

func TestASessionAsksEachServerOnceWhetherItCanShard(t *testing.T) {
	cluster := testredis.StartCluster(t, 3, 0)
	capable := cluster.Sharded()
	keys := []string{"a", "b", "c", "d", "e", "f"} // on all masters

	open := func(t *testing.T, user string) *Session {
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.Username, o.Password = user, "secret" })
		cfg := sound
		s, err := New(rdb, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, s) })
		return s
	}
	// asked counts the SSUBSCRIBEs that a server has seen, refused ones, too.
	asked := func(t *testing.T, node *testredis.Server) (n int) {
		info, err := node.Client(t).Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(info) {
			if stats, ok := strings.CutPrefix(line, "cmdstat_ssubscribe:"); ok {
				var calls, refused int
				if _, err := fmt.Sscanf(strings.NewReplacer(",", " ", "=", " ").Replace(stats), "calls %d usec %f usec_per_call %f rejected_calls %d", &calls, new(float64), new(float64), &refused); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				n += calls + refused
			}
		}
		return n
	}
	for name, c := range map[string]struct {
		rules    string
		possible bool
	}{
		"all rights":                 {"allchannels +@all", true},
		"the prefix' channels alone": {"resetchannels &p:* +@all", true},
		"other channels":             {"resetchannels &q:* +@all", false},
		"no SSUBSCRIBE":              {"allchannels +@all -ssubscribe", false},
		"no SPUBLISH":                {"allchannels +@all -spublish", false},
	} {
		t.Run(name, func(t *testing.T) {
			if !capable {
				for _, newer := range []string{" -ssubscribe", " -spublish"} { // which it does not know
					c.rules, c.possible = strings.TrimSuffix(c.rules, newer), false
				}
			}
			for _, node := range cluster.Nodes {
				args := []any{"ACL", "SETUSER", "user", "reset", "on", ">secret", "allkeys"}
				for rule := range strings.FieldsSeq(c.rules) {
					args = append(args, rule)
				}
				if err := node.Client(t).Do(t.Context(), args...).Err(); err != nil {
					t.Fatal(err)
				}
				if err := node.Client(t).ConfigResetStat(t.Context()).Err(); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, "user")
			answers := make(chan bool)
			for range 4 {
				go func() {
					possible, _ := s.Sharded(bounded(t), keys[0])
					answers <- possible
				}()
			}
			for range 4 {
				if got := <-answers; got != c.possible {
					t.Errorf("sharded: %v", got)
				}
			}
			for _, key := range keys {
				if got, _ := s.Sharded(bounded(t), key); got != c.possible {
					t.Errorf("%s: sharded: %v", key, got)
				}
			}
			for _, node := range cluster.Nodes {
				list := node.Client(t).Do(t.Context(), "CLIENT", "LIST", "TYPE", "PUBSUB").Val().(string)
				if strings.Contains(list, "user=user") {
					t.Errorf("it stays subscribed: %s", list)
				}
				if n := asked(t, node); capable && n != 1 {
					t.Errorf("a server was asked %d times", n)
				}
			}
		})
	}
}

func TestAnOutageIsNoAnswerToWhetherAServerCanShard(t *testing.T) {
	cluster := testredis.StartCluster(t, 1, 0)
	node := cluster.Nodes[0]
	if !cluster.Sharded() {
		t.Skip("this server is older than Redis 7")
	}
	sessions := map[time.Duration]*Session{}
	for _, timeout := range []time.Duration{100 * time.Millisecond, time.Minute} {
		rdb := cluster.Client(t, func(o *redis.ClusterOptions) { o.ReadTimeout = timeout })
		err := rdb.Ping(t.Context()).Err()
		for try := 1; err != nil && try < 20; try++ { // until it has the map
			err = rdb.Ping(t.Context()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(rdb, sound)
		if err != nil {
			t.Fatal(err)
		}
		defer end(t, s)
		sessions[timeout] = s
	}
	node.Freeze()
	if _, known := sessions[100*time.Millisecond].Sharded(bounded(t), "k"); known {
		t.Error("a frozen server has answered")
	}
	left := make(chan bool)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, known := sessions[time.Minute].Sharded(ctx, "k")
		left <- known
	}()
	select {
	case possible := <-left:
		if possible {
			t.Error("a frozen server has answered")
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits on, though its context has ended")
	}
	node.Thaw()
	for _, s := range sessions {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if possible, known := s.Sharded(bounded(t), "k"); possible && known {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("it has not been asked again")
			}
		}
	}
}

// clusterOf is a Cluster's client that knows one node.
type clusterOf struct {
	wire.Client
	node *redis.Client
}

func (c clusterOf) MasterForKey(context.Context, string) (*redis.Client, error) { return c.node, nil }
func (clusterOf) ReloadState(context.Context)                                   {}

func TestShardedSubscriptionsEndWithTheSession(t *testing.T) {
	dialed := make(chan struct{}, 1)
	node := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialed <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	defer node.Close()
	s, err := New(clusterOf{node, node}, sound)
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	s.ShardedHub.Subscribe("x")
	<-dialed
	end(t, s)
	goleak.VerifyNone(t, before)
}
