package latch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

func TestOnACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	a, b := testlock.NewSession(t, cluster.Client(t)), testlock.NewSession(t, cluster.Client(t))
	for i := range 12 {
		name := fmt.Sprint("latch", i)
		one, two := latch.New(a, name), latch.New(b, name)
		set(t, one, 3)
		_, p := join(t, two, "p")
		done := wait(bg, two)
		both := make(chan error, 1)
		go func() { both <- two.CountDownAndWait(bg) }()
		testlock.Eventually(t, "counted", func() bool { n, err := one.Count(bg); return err == nil && n == 2 })
		testlock.Must(t, p.CountDown(bg))
		countDown(t, one)
		ended(t, done, nil)
		ended(t, both, nil)
	}

	t.Run("while its slot moves", func(t *testing.T) {
		one, two := latch.New(a, "x"), latch.New(b, "x")
		set(t, one, 3)
		ctx, p := join(t, two, "p")
		done := wait(bg, two)
		old := cluster.Master(t, key)
		to := cluster.Nodes[0]
		if to == old {
			to = cluster.Nodes[1]
		}
		cluster.MoveSlot(t, key, to, func() { countDown(t, one) })
		wantCount(t, two, 2)
		testlock.Must(t, p.CountDown(bg))
		testlock.Receive(t, "its context", ctx.Done())
		countDown(t, one)
		ended(t, done, nil)
	})
}

func TestAWaiterOnAClusterLooksNowAndThen(t *testing.T) {
	// Where a message between two nodes is lost, nothing else would tell it. A client of which it is not known that it has one server alone is
	// treated as that of a Cluster.
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, several{w.Client})
		l := latch.New(s, "x")
		set(t, l, 1)
		done := wait(bg, l)
		time.Sleep(10 * time.Second)
		_, err := w.Client.HDel(bg, key, "n", "r", "k").Result() // it is over, and nobody says so
		testlock.Must(t, err)
		start := time.Now()
		if err := <-done; err == nil {
			t.Error("it does not know how its run ended")
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// several hides what its client is.
type several struct{ *redis.Client }

func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rdb := testlock.DocumentedUser(t, server)
	ls := latchesOf(t, rdb, 2, rlock.WithWatchdogTimeout(2*time.Second))
	set(t, ls[0], 3)
	done := waits(t, admin, ls[1])
	ctx, p := join(t, ls[0], "p")
	_, q := join(t, ls[0], "q")
	before := evals(t, admin)
	testlock.Eventually(t, "renewed", func() bool { return evals(t, admin) > before+4 })
	testlock.Must(t, ctx.Err())
	testlock.Must(t, q.Abandon(bg))
	diedAs(t, "Wait", testlock.Receive(t, "told", done), "q")
	testlock.Must(t, p.CountDown(bg))
	countDown(t, ls[0])
	countDown(t, ls[0])
	set(t, ls[0], 1)
	done = waits(t, admin, ls[1])
	_, err := ls[0].Delete(bg)
	testlock.Must(t, err)
	ended(t, done, latch.ErrDeleted)
	entries, err := admin.ACLLog(bg, 100).Result()
	testlock.Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			t.Errorf("refused: %s", e.Object)
		}
	}
}
