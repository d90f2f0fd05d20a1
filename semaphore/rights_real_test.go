package semaphore_test

import (
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/semaphore"
)

// Proves: rights
func TestTheDocumentedRightsSufficeForLimits(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	rdb := testlock.DocumentedUser(t, server)
	// The queue has a waiter whose process died a while ago.
	testlock.Must(t, admin.ZAdd(bg, "lockline:p:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
	s := semaphore.New(testlock.NewSession(t, rdb), "x", 2)
	if _, err := s.TrySetLimit(bg, 2); err != nil {
		t.Error(err)
	}
	_, hold := acquire(t, s, 2)
	waiter := testlock.Go(bg, semaphore.New(testlock.NewSession(t, rdb), "x", 2).Locker(1))
	testlock.Eventually(t, "it waits", func() bool { return len(testlock.Inspect(t, s).Queue) == 1 })
	testlock.Must(t, s.SetLimit(bg, 3)) // serves the waiter
	testlock.Served(t, waiter)
	testlock.Unlock(t, hold)
	testlock.NothingRefused(t, admin)
}

// If the user lacks a right, the script must not treat the hash as damaged. It deletes damaged hashes.
func TestAForcedReleaseWithoutARightChangesNothing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rights := testlock.DocumentedRights(t).Server
	s := semaphore.New(testlock.NewSession(t, testlock.DocumentedUser(t, server)), "x", 3)
	for _, right := range []string{"-zrange", "-hgetall"} {
		var args []any
		for _, r := range append(slices.Clone(rights), right) {
			args = append(args, r)
		}
		rdb := testlock.User(t, server, "operator"+right, args...)
		operator := semaphore.New(testlock.NewSession(t, rdb), "x", 3)
		_, first := acquire(t, s, 1)
		_, second := acquire(t, s, 1)
		if forced, err := operator.ForceRelease(bg, first.Token()); forced || err == nil {
			t.Errorf("%s: %v, %v", right, forced, err)
		}
		testlock.Unlock(t, first)
		testlock.Unlock(t, second)
	}
}
