//go:build nightly

package latch_test

import (
	"fmt"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
)

// Proves: latch
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
		testlock.Eventually(t, "counted", func() bool {
			n, err := one.Count(bg)
			return err == nil && n == 2
		})
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
