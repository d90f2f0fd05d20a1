package semaphore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

func TestTheDocumentedRightsSufficeForSemaphores(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rdb := testlock.DocumentedUser(t, server)
	// A waiter whose process died a while ago.
	testlock.Must(t, admin.ZAdd(bg, "lockline:p:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
	one, two := semaphore.New(testlock.NewSession(t, rdb, rlock.WithStreak(0)), "x", 2), semaphore.New(testlock.NewSession(t, rdb), "x", 2)
	if _, err := one.TrySetLimit(bg, 2); err != nil {
		t.Error(err)
	}
	_, hold := acquire(t, one, 2)
	testlock.Must(t, hold.Extend(bg, time.Minute))
	waits := func() {
		t.Helper()
		testlock.Eventually(t, "it waits", func() bool { return len(testlock.Inspect(t, one).Queue) == 1 })
	}
	// One gives up and one is served by a message.
	if _, _, err := two.Acquire(bg, 1, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("a wait that ran out: %v", err)
	}
	waiter := testlock.Go(bg, two.Locker(1))
	waits()
	testlock.Unlock(t, hold)
	testlock.Served(t, waiter)

	_, hold = acquire(t, one, 2)
	waiter = testlock.Go(bg, two.Locker(3))
	waits()
	if forced, err := two.ForceRelease(bg, hold.Token()); err != nil || !forced {
		t.Errorf("ForceRelease: %v, %v", forced, err)
	}
	testlock.WantError(t, "the unlock of what was forced", hold.Unlock(bg), rlock.ErrLost)
	testlock.Must(t, one.SetLimit(bg, 3)) // serves the waiter
	testlock.Served(t, waiter)
	testlock.NothingRefused(t, admin)
}
