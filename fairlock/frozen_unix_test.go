//go:build unix

package fairlock_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// The next one looks when the first lease is over, which the liveness time of an hour does not make longer.
func TestAFrozenWaiterCostsItsFirstLease(t *testing.T) {
	everyQueue(t, func(t *testing.T, letter string, newMutex testlock.Maker) {
		server := testredis.Start(t)
		rdb := server.Client(t)
		long := rlock.WithLiveness(time.Hour)
		hold := testlock.Take(t, newMutex(testlock.NewSession(t, rdb, long), "x"))
		child := testlock.Child("many", letter, server.Addr, 1)
		testlock.Must(t, child.Start())
		defer func() {
			_ = child.Process.Kill()
			_ = child.Wait()
		}()
		testlock.Eventually(t, "it waits, and listens", func() bool { return marked(rdb, letter) == 1 })
		got := testlock.Go(bg, newMutex(testlock.NewSession(t, rdb, long), "x"))
		testlock.Eventually(t, "both do", func() bool { return marked(rdb, letter) == 2 })
		testlock.Must(t, child.Process.Signal(syscall.SIGSTOP))
		testlock.Unlock(t, hold)
		if left := rdb.PTTL(bg, "lockline:"+letter+":{x}").Val(); left > 2*time.Second {
			t.Errorf("it is leased for %v", left)
		}
		testlock.Unlock(t, testlock.Granted(t, got))
	})
}

// The same where the one behind is of the session that unlocks.
func TestAFrozenWaiterCostsTheReleasersSessionItsFirstLease(t *testing.T) {
	server := testredis.Start(t)
	rdb := server.Client(t)
	long := rlock.WithLiveness(time.Hour)
	m := fairlock.New(testlock.NewSession(t, rdb, long, rlock.WithWatchdogTimeout(10*time.Minute)), "x")
	hold := testlock.Take(t, m)
	child := testlock.Child("many", "f", server.Addr, 1)
	testlock.Must(t, child.Start())
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	testlock.Eventually(t, "it waits, and listens", func() bool { return marked(rdb, "f") == 1 })
	got := testlock.Go(bg, m)
	testlock.Eventually(t, "both do", func() bool { return marked(rdb, "f") == 2 })
	testlock.Must(t, child.Process.Signal(syscall.SIGSTOP))
	testlock.Unlock(t, hold)
	testlock.Unlock(t, testlock.Granted(t, got))
}
