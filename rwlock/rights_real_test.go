package rwlock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// Proves: rights
func TestTheDocumentedRightsSufficeForAWriterThatGoesOnAsAReader(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	// The queue has a waiter whose process died a while ago.
	testlock.Must(t, admin.ZAdd(bg, "lockline:w:{x}:q", redis.Z{Score: 1, Member: "dead:1"}).Err())
	rdb := testlock.DocumentedUser(t, server)
	locks := locksOf(t, rdb, 2, rlock.WithHandover(0))
	one, two := locks[0], locks[1]

	ctx, writer := testlock.Lock(t, one, bg)
	waiter := testlock.Go(bg, two.RLocker())
	testlock.Eventually(t, "it waits", func() bool { return len(testlock.Inspect(t, one).Queue) == 1 })
	_, reader := testlock.Lock(t, one.RLocker(), ctx)
	testlock.Unlock(t, writer) // the reader goes on, and the waiter joins it
	testlock.Unlock(t, testlock.Granted(t, waiter), reader)
	testlock.NothingRefused(t, admin)
}
