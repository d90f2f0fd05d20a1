package session

import (
	"context"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/wire"
)

func TestOnlyClientsOfAClusterHaveShardedPubSub(t *testing.T) {
	one := redis.NewClient(&redis.Options{})
	defer one.Close()
	several := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"nowhere"}})
	defer several.Close()
	noCluster := redis.NewFailoverClusterClient(&redis.FailoverOptions{SentinelAddrs: []string{"nowhere"}})
	defer noCluster.Close()
	for _, c := range []struct {
		client  wire.Client
		classic bool
		hub     bool
	}{
		{one, false, false},
		{one, true, false},
		{several, false, true},
		{several, true, false},
		{noCluster, false, false},
		{noCluster, true, false},
	} {
		cfg := sound
		cfg.Classic = c.classic
		s, err := New(c.client, cfg)
		if err != nil {
			t.Fatalf("%T, classic %v: %v", c.client, c.classic, err)
		}
		if (s.ShardedHub != nil) != c.hub {
			t.Errorf("%T, classic %v: a sharded hub: %v", c.client, c.classic, s.ShardedHub)
		}
		end(t, s)
	}
}

// clusterOf is the client of a Cluster. Each node has the keys that end with the number of the node.
type clusterOf struct {
	wire.Client
	nodes []*redis.Client
}

func (c clusterOf) MasterForKey(_ context.Context, key string) (*redis.Client, error) {
	return c.nodes[int(key[len(key)-1]-'0')%len(c.nodes)], nil
}

func (clusterOf) ReloadState(context.Context) {}

func TestShardedSubscriptionsEndWithTheSession(t *testing.T) {
	dialed := make(chan struct{}, 1)
	node := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dialed <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	defer node.Close()
	s, err := New(clusterOf{node, []*redis.Client{node}}, sound)
	if err != nil {
		t.Fatal(err)
	}
	before := goleak.IgnoreCurrent()
	s.ShardedHub.Subscribe("x0")
	<-dialed
	end(t, s)
	goleak.VerifyNone(t, before)
}
