//go:build nightly

package rwlock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	a, b := testlock.NewSession(t, cluster.Client(t), rlock.WithHandover(0)),
		testlock.NewSession(t, cluster.Client(t), rlock.WithHandover(0))
	for i := range 12 {
		name := fmt.Sprint("lock", i)
		one, two := rwlock.New(a, name), rwlock.New(b, name)
		_, w := testlock.Lock(t, one, bg)
		reader := testlock.Go(bg, two.RLocker())
		testlock.Eventually(t, "the reader waits", func() bool {
			return len(testlock.Inspect(t, one).Queue) == 1
		})
		writer := testlock.Go(bg, one)
		testlock.Unlock(t, w)
		testlock.Served(t, reader)
		testlock.Served(t, writer)
		s1, s2 := semaphore.New(a, name, 2), semaphore.New(b, name, 2)
		_, p := testlock.Lock(t, s1.Locker(1), bg)
		both := testlock.Go(bg, s2.Locker(2))
		testlock.Eventually(t, "it waits", func() bool {
			st, err := s1.Inspect(bg)
			testlock.Must(t, err)
			return len(st.Queue) == 1
		})
		testlock.Unlock(t, p)
		testlock.Served(t, both)
	}

	t.Run("while its slot moves", func(t *testing.T) {
		one, two := rwlock.New(a, "x"), rwlock.New(b, "x")
		_, w := testlock.Lock(t, one, bg)
		reader := testlock.Go(bg, two.RLocker())
		old := cluster.Master(t, key)
		to := cluster.Nodes[0]
		if to == old {
			to = cluster.Nodes[1]
		}
		cluster.MoveSlot(t, key, to, func() { testlock.Unlock(t, w) })
		testlock.Served(t, reader)
		_, w = testlock.Lock(t, two, bg, rlock.WaitAtMost(20*time.Second))
		testlock.Unlock(t, w)
	})

	t.Run("sharded", func(t *testing.T) {
		if !cluster.Sharded() {
			t.Skip("this server has no sharded pub/sub")
		}
		one, two := rwlock.New(a, "sharded"), rwlock.New(b, "sharded")
		cycle := func() {
			_, w := testlock.Lock(t, one, bg)
			writer := testlock.Go(bg, two)
			testlock.Eventually(t, "it is to be told by SPUBLISH", func() bool {
				about := cluster.Client(t).HVals(bg, "lockline:w:{sharded}:w").Val()
				return len(about) == 1 && strings.Contains(about[0], "/+ ")
			})
			testlock.Unlock(t, w)
			testlock.Served(t, writer)
		}
		cycle()
		before := cluster.Sent(t, "publish")
		for range 5 {
			cycle()
		}
		if sent := cluster.Sent(t, "publish") - before; sent != 0 {
			t.Errorf("%d messages between the nodes", sent)
		}
	})
}
