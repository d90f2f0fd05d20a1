package semaphore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
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

func TestTheDocumentedRightsSufficeForSemaphores(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rdb := testlock.DocumentedUser(t, server)
	// A waiter whose process died a while ago.
	testlock.Must(t, admin.ZAdd(bg, "lockline:p:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
	one, two := semaphore.New(testlock.NewSession(t, rdb, rlock.WithStreak(0)), "x", 2), semaphore.New(testlock.NewSession(t, rdb), "x", 2)
	hasty := semaphore.New(testlock.NewSession(t, rdb, rlock.WithLiveness(100*time.Millisecond)), "x", 2)
	if _, err := one.TrySetLimit(bg, 2); err != nil {
		t.Error(err)
	}
	_, hold := acquire(t, one, 2)
	testlock.Must(t, hold.Extend(bg, time.Minute))
	// One gives up after some heartbeats, and one is served by a message.
	if _, _, err := hasty.Acquire(bg, 1, rlock.WaitAtMost(time.Second)); !errors.Is(err, rlock.ErrLocked) {
		t.Errorf("a wait that ran out: %v", err)
	}
	waiter := begin(bg, two, 1)
	queue(t, one, 1)
	unlock(t, hold)
	unlock(t, await(t, waiter))

	_, hold = acquire(t, one, 2)
	waiter = begin(bg, two, 3)
	queue(t, one, 1)
	if forced, err := two.ForceRelease(bg, hold.Token()); err != nil || !forced {
		t.Errorf("ForceRelease: %v, %v", forced, err)
	}
	testlock.WantError(t, "the unlock of what was forced", hold.Unlock(bg), rlock.ErrLost)
	testlock.Must(t, one.SetLimit(bg, 3)) // serves the waiter
	unlock(t, await(t, waiter))
	nothingRefused(t, admin)
}
