//go:build nightly

package rlock_test

import (
	"runtime"
	"slices"
	"testing"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// The newcomer's request hands the lock over to the only waiter, and adds the newcomer to the queue. The
// script must add it first. Once the queue is empty, its key is gone, and a node whose slot moves refuses
// requests for missing keys.
func TestANewcomerThatHandsOnALockWhoseSlotIsAboutToMoveWaits(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	rdb := cluster.Client(t)
	_, gone := testlock.Lock(t, fairlock.New(testlock.NewSession(t, rdb), "x"), bg)
	defer runtime.KeepAlive(gone) // so that the hold is not released as forgotten
	waits := make(testlock.Waits, 2)
	wait := func() <-chan testlock.Grant {
		s := testlock.NewSession(t, rdb, rlock.WithObserver(waits))
		return testlock.Go(testlock.Bounded(t), fairlock.New(s, "x"))
	}
	first := wait()
	testlock.Receive(t, "it waits", waits)
	from := cluster.Master(t, "{x}")
	to := cluster.Nodes[(slices.Index(cluster.Nodes, from)+1)%3]
	node := from.Client(t)
	testlock.Must(t, node.Do(bg, "CLUSTER", "SETSLOT", node.ClusterKeySlot(bg, "{x}").Val(), "MIGRATING",
		to.Client(t).ClusterMyID(bg).Val()).Err())
	testlock.Must(t, node.HSet(bg, "lockline:f:{x}", "ends", 1).Err()) // the lease has ended
	newcomer := wait()
	testlock.Receive(t, "the newcomer waits", waits)
	cluster.MoveSlot(t, "{x}", to)
	testlock.Unlock(t, testlock.Granted(t, first))
	testlock.Unlock(t, testlock.Granted(t, newcomer))
}
