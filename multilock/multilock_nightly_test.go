//go:build nightly

package multilock_test

import (
	"strings"
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

func TestRandomOverlappingSetsAllGetThroughUnderLoad(t *testing.T) {
	t.Parallel()
	contention(t, 6, 60)
}

func TestOnAClusterSeveralLocksAreTakenInAnySlots(t *testing.T) {
	t.Parallel()
	rdb := testredis.StartCluster(t, 3, 0).Client(t)
	for _, prefix := range []string{"lockline", "{app}"} {
		s := testlock.NewSession(t, rdb, rlock.WithPrefix(prefix))
		ms, members := namesOf(s, 12)
		l := testlock.Warm(t, multilock.New(append(members, fairlock.New(s, "fair"))...))
		_, hold := testlock.Lock(t, l, bg)
		if free(t, ms...) {
			t.Errorf("%s: not held", prefix)
		}
		testlock.Unlock(t, hold)
		if !free(t, ms...) {
			t.Errorf("%s: something is left", prefix)
		}
	}
}

// Some managed services offer Clusters with a single shard. Users may connect to such a Cluster with a plain
// client.
func TestAOneShardClusterBehindAPlainClientRefusesNothing(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 1, 0)
	rdb := cluster.Nodes[0].Client(t)
	ms, members := namesOf(testlock.NewSession(t, rdb), 12)
	hold := testlock.Take(t, multilock.New(members...))
	if free(t, ms...) {
		t.Error("not held")
	}
	testlock.Unlock(t, hold)
	if errs := rdb.Info(bg, "errorstats").Val(); strings.Contains(errs, "CROSSSLOT") || !free(t, ms...) {
		t.Errorf("refused requests: %s", errs)
	}
}
