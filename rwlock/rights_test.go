package rwlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// nothingRefused checks that the server has refused nothing but what go-redis can do without.
func nothingRefused(t *testing.T, admin *redis.Client) {
	t.Helper()
	entries, err := admin.ACLLog(bg, 100).Result()
	testlock.Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			t.Errorf("refused: %s", e.Object)
		}
	}
}

func TestTheDocumentedRightsSufficeForReadWriteLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	// A waiter whose process died a while ago.
	testlock.Must(t, admin.ZAdd(bg, "lockline:w:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
	rdb := testlock.DocumentedUser(t, server)
	locks := locksOf(t, rdb, 2, rlock.WithStreak(0))
	one, two, hasty := locks[0], locks[1], locksOf(t, rdb, 1, rlock.WithLiveness(100*time.Millisecond))[0]

	ctx, writer := lock(t, bg, one)
	testlock.Must(t, writer.Extend(bg, time.Minute))
	// One gives up after some heartbeats, and one is let in by a message, beside a writer that goes on as a reader.
	if _, _, err := hasty.RLock(bg, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("a wait that ran out: %v", err)
	}
	waiter := begin(bg, two.RLocker())
	queue(t, one, 1)
	_, reader := lock(t, ctx, one.RLocker())
	unlock(t, writer)
	unlock(t, await(t, waiter).hold, reader)

	_, reader = lock(t, bg, one.RLocker())
	waiter = begin(bg, two)
	queue(t, one, 1)
	if n, err := two.ForceRUnlock(bg); err != nil || n != 1 { // lets the writer in
		t.Errorf("ForceRUnlock: %d, %v", n, err)
	}
	testlock.WantError(t, "the unlock of what was forced", reader.Unlock(bg), rlock.ErrLost)
	forced := await(t, waiter).hold
	if yes, err := one.ForceUnlockToken(bg, forced.Token()); err != nil || !yes {
		t.Errorf("ForceUnlockToken: %v, %v", yes, err)
	}
	testlock.WantError(t, "the unlock of what was forced", forced.Unlock(bg), rlock.ErrLost)
	nothingRefused(t, admin)
}
