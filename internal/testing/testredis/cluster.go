package testredis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const slots = 16384

// A Cluster is a Redis Cluster.
type Cluster struct {
	Nodes []*Server // first all masters, then the first replica of each master, and so on

	sharded bool
}

// StartCluster starts a Cluster and returns when every node serves and knows all others, and every replica is
// in sync.
func StartCluster(t testing.TB, masters, replicasPerMaster int) *Cluster {
	t.Helper()
	c := &Cluster{}
	var clients []*redis.Client
	for range masters * (1 + replicasPerMaster) {
		s := Start(t,
			"--cluster-enabled", "yes",
			"--cluster-node-timeout", "2000", // ms without a reply, until a failover begins
			"--cluster-announce-ip", "127.0.0.1",
			"--repl-diskless-sync-delay", "0", // by default, the master waits for further replicas for 5 s
			"--repl-ping-replica-period", "1") // by default, nodes hide replicas for up to 10 s
		c.Nodes = append(c.Nodes, s)
		clients = append(clients, s.Client(t))
	}

	// redis-cli --cluster create would do the following, too, but it waits for a confirmation, and is slower.
	ctx := t.Context()
	for i, client := range clients {
		if i < masters {
			must(t, client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
		}
		// With different epochs, the nodes have no conflict when they meet.
		must(t, client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
	}
	for i, client := range clients {
		for _, other := range c.Nodes[:i] { // every two nodes meet, because gossip would take seconds
			must(t, client.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(other.port)).Err())
		}
	}
	for i, client := range clients[masters:] {
		master := clients[i%masters].ClusterMyID(ctx).Val()
		await(t, func() string { // CLUSTER REPLICATE fails until the two nodes have met
			if err := client.ClusterReplicate(ctx, master).Err(); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	for _, client := range clients {
		await(t, func() string { return unready(ctx, client, masters, replicasPerMaster) })
	}
	err := clients[0].Do(ctx, "SPUBLISH").Err() // without arguments, SPUBLISH always fails
	c.sharded = !strings.HasPrefix(err.Error(), "ERR unknown command")
	return c
}

// unready returns "" if the node is ready. Otherwise, it returns a text that shows the reason.
func unready(ctx context.Context, node *redis.Client, masters, replicasPerMaster int) string {
	info, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return err.Error()
	}
	if !strings.Contains(info, "cluster_state:ok") {
		return info
	}
	ranges, err := node.Do(ctx, "CLUSTER", "SLOTS").Slice() // Redis 6.2 has no CLUSTER SHARDS
	if err != nil {
		return err.Error()
	}
	if len(ranges) != masters {
		return fmt.Sprintf("slots: %v", ranges)
	}
	for _, slots := range ranges {
		if fields, _ := slots.([]any); len(fields) != 2+1+replicasPerMaster { // first slot, last slot, nodes
			return fmt.Sprintf("nodes of some slots: %v", fields)
		}
	}
	return outOfSync(ctx, node)
}

// outOfSync returns "" if the node is a master, or a replica in sync. Otherwise, it returns a text that shows
// the reason.
func outOfSync(ctx context.Context, node *redis.Client) string {
	info, err := node.Info(ctx, "replication").Result()
	switch {
	case err != nil:
		return err.Error()
	case strings.Contains(info, "role:master"), strings.Contains(info, "master_link_status:up"):
		return ""
	}
	return info
}

// Client returns a client of the whole Cluster. The client has the default options of go-redis, changed by
// mod. It is closed when the test ends.
func (c *Cluster) Client(t testing.TB, mod ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	opt := &redis.ClusterOptions{}
	for _, s := range c.Nodes {
		opt.Addrs = append(opt.Addrs, s.Addr)
	}
	for _, m := range mod {
		m(opt)
	}
	client := redis.NewClusterClient(opt)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Sharded reports whether the servers have sharded pub/sub, as Redis 7 or newer and Valkey do.
func (c *Cluster) Sharded() bool { return c.sharded }

// Sent returns the number of messages of a kind that the nodes have sent to each other since their start.
func (c *Cluster) Sent(t testing.TB, kind string) (n int) {
	t.Helper()
	for _, s := range c.Nodes {
		client := s.Client(t)
		info, err := client.ClusterInfo(t.Context()).Result()
		must(t, err)
		for line := range strings.Lines(info) {
			if count, ok := strings.CutPrefix(strings.TrimSpace(line),
				"cluster_stats_messages_"+kind+"_sent:"); ok {
				i, err := strconv.Atoi(count)
				must(t, err)
				n += i
			}
		}
	}
	return n
}

// Master returns the node that serves key now.
func (c *Cluster) Master(t testing.TB, key string) *Server {
	t.Helper()
	client := c.Client(t)
	defer func() { _ = client.Close() }()
	node, err := client.MasterForKey(t.Context(), key)
	must(t, err)
	return find(t, c.Nodes, node.Options().Addr)
}

// MoveSlot moves the slot of key, with all keys of the slot, to another master. Meanwhile, the nodes redirect
// clients for single keys, as when redis-cli moves a slot. MoveSlot calls the functions of during when all
// keys have moved, but the slot still belongs to the old master.
func (c *Cluster) MoveSlot(t testing.TB, key string, to *Server, during ...func()) {
	t.Helper()
	ctx := t.Context()
	from := c.Master(t, key)
	source, target := from.Client(t), to.Client(t)
	slot := source.ClusterKeySlot(ctx, key).Val()
	sourceID, targetID := source.ClusterMyID(ctx).Val(), target.ClusterMyID(ctx).Val()
	must(t, target.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", sourceID).Err())
	must(t, source.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID).Err())
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, int(slot), 1).Result()
		must(t, err)
		if len(keys) == 0 {
			break
		}
		// If the key has expired, the reply is NOKEY, which is no error.
		must(t, source.Do(ctx, "MIGRATE", "127.0.0.1", to.port, keys[0], 0, 5000).Err())
	}
	for _, f := range during {
		f()
	}
	for _, s := range append([]*Server{to, from}, c.Nodes...) { // begin with the new and the old master
		client := s.Client(t)
		// Replicas get the change from their master.
		if info := client.Info(ctx, "replication").Val(); strings.Contains(info, "role:master") {
			must(t, client.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", targetID).Err())
		}
	}
}

func find(t testing.TB, servers []*Server, addr string) *Server {
	t.Helper()
	for _, s := range servers {
		if s.Addr == addr {
			return s
		}
	}
	t.Fatalf("testredis: no server at %s", addr)
	return nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("testredis: %v", err)
	}
}
