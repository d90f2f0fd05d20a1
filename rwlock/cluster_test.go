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

const key = "lockline:w:{x}"

func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	a, b := testlock.NewSession(t, cluster.Client(t), rlock.WithStreak(0)), testlock.NewSession(t, cluster.Client(t), rlock.WithStreak(0))
	for i := range 12 {
		name := fmt.Sprint("lock", i)
		one, two := rwlock.New(a, name), rwlock.New(b, name)
		_, w := lock(t, bg, one)
		reader := begin(bg, two.RLocker())
		queue(t, one, 1)
		writer := begin(bg, one)
		queue(t, one, 2)
		unlock(t, w)
		unlock(t, await(t, reader).hold)
		unlock(t, await(t, writer).hold)
		s1, s2 := semaphore.New(a, name, 2), semaphore.New(b, name, 2)
		_, p := lock(t, bg, s1.Locker(1))
		both := begin(bg, s2.Locker(2))
		testlock.Eventually(t, "it waits", func() bool {
			st, err := s1.Inspect(bg)
			testlock.Must(t, err)
			return len(st.Queue) == 1
		})
		unlock(t, p)
		unlock(t, await(t, both).hold)
	}

	t.Run("while its slot moves", func(t *testing.T) {
		one, two := rwlock.New(a, "x"), rwlock.New(b, "x")
		_, w := lock(t, bg, one)
		reader := begin(bg, two.RLocker())
		queue(t, one, 1)
		old := cluster.Master(t, key)
		to := cluster.Nodes[0]
		if to == old {
			to = cluster.Nodes[1]
		}
		cluster.MoveSlot(t, key, to, func() { unlock(t, w) })
		unlock(t, await(t, reader).hold)
		_, w = lock(t, bg, two, rlock.WaitAtMost(20*time.Second))
		unlock(t, w)
	})

	t.Run("sharded", func(t *testing.T) {
		if !cluster.Sharded() {
			t.Skip("this server has no sharded pub/sub")
		}
		one, two := rwlock.New(a, "sharded"), rwlock.New(b, "sharded")
		cycle := func() {
			_, w := lock(t, bg, one)
			writer := begin(bg, two)
			queue(t, one, 1)
			testlock.Eventually(t, "it is to be told by SPUBLISH", func() bool {
				about := cluster.Client(t).HVals(bg, "lockline:w:{sharded}:d").Val()
				return len(about) == 1 && strings.Contains(about[0], "/+ ")
			})
			unlock(t, w)
			unlock(t, await(t, writer).hold)
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

func TestWhatTheMasterKnewIsLostWithIt(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	locks := locksOf(t, server.Client(t), 2, rlock.WithWatchdogTimeout(long))
	ctx, r := lock(t, bg, locks[0].RLocker())
	w := begin(bg, locks[1])
	queue(t, locks[1], 1)
	server.Restart(t) // it forgets all
	testlock.Receive(t, "the reader's context ends", ctx.Done())
	if r.Err() == nil {
		t.Error("it believes still")
	}
	unlock(t, await(t, w).hold)
}
