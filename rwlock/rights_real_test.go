package rwlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestTheDocumentedRightsSufficeForReadWriteLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	// A waiter whose process died a while ago.
	testlock.Must(t, admin.ZAdd(bg, "lockline:w:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
	rdb := testlock.DocumentedUser(t, server)
	locks := locksOf(t, rdb, 2, rlock.WithStreak(0))
	one, two := locks[0], locks[1]

	ctx, writer := testlock.Lock(t, one, bg)
	testlock.Must(t, writer.Extend(bg, time.Minute))
	waits := func() {
		t.Helper()
		testlock.Eventually(t, "it waits", func() bool { return len(testlock.Inspect(t, one).Queue) == 1 })
	}
	// One gives up, and one is let in by a message, beside a writer that goes on as a reader.
	if _, _, err := two.RLock(bg, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("a wait that ran out: %v", err)
	}
	waiter := testlock.Go(bg, two.RLocker())
	waits()
	_, reader := testlock.Lock(t, one.RLocker(), ctx)
	testlock.Unlock(t, writer)
	testlock.Unlock(t, testlock.Granted(t, waiter), reader)

	_, reader = testlock.Lock(t, one.RLocker(), bg)
	waiter = testlock.Go(bg, two)
	waits()
	if n, err := two.ForceRUnlock(bg); err != nil || n != 1 { // lets the writer in
		t.Errorf("ForceRUnlock: %d, %v", n, err)
	}
	testlock.WantError(t, "the unlock of what was forced", reader.Unlock(bg), rlock.ErrLost)
	forced := testlock.Granted(t, waiter)
	if yes, err := one.ForceUnlockToken(bg, forced.Token()); err != nil || !yes {
		t.Errorf("ForceUnlockToken: %v, %v", yes, err)
	}
	testlock.WantError(t, "the unlock of what was forced", forced.Unlock(bg), rlock.ErrLost)
	testlock.NothingRefused(t, admin)
}
