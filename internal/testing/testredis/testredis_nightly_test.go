//go:build nightly

package testredis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestEveryKeyOfAClusterIsServed(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	c := StartCluster(t, 3, 1)
	t.Logf("up after %v", time.Since(begin))

	client := c.Client(t)
	owners := map[*Server]bool{}
	for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
		must(t, client.Set(t.Context(), k, k, 0).Err())
		owners[c.Master(t, k)] = true
	}
	if len(owners) != 3 {
		t.Errorf("keys live on %d masters", len(owners))
	}
}

func TestAReplicaTakesOverInACluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3, 1)
	old := c.Master(t, "k")
	old.Kill()
	// By default, go-redis sends requests to a dead master for up to a minute.
	client := c.Client(t, func(o *redis.ClusterOptions) {
		o.ClusterStateReloadInterval = 100 * time.Millisecond
	})
	await(t, func() string {
		if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			return err.Error()
		}
		return ""
	})
	if c.Master(t, "k") == old {
		t.Error("the dead master still owns the key")
	}
}

func TestAReplicaTakesOverFromAFrozenMasterOfSentinel(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	s := StartSentinel(t, 2)
	t.Logf("up after %v", time.Since(begin))
	client := s.FailoverClient(t)
	must(t, client.Set(t.Context(), "k", "before", 0).Err())

	old := s.Master(t)
	if old != s.Nodes[0] {
		t.Errorf("the first master is %s", old.Addr)
	}
	begin = time.Now()
	old.Freeze()
	if s.AwaitFailover(t, old) == old {
		t.Error("no failover")
	}
	t.Logf("failover after %v", time.Since(begin))
	await(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := client.Set(ctx, "k", "after", 0).Err(); err != nil {
			return err.Error()
		}
		return ""
	})
}
