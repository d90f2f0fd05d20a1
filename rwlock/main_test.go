package rwlock_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

var bg = context.Background()

func TestMain(m *testing.M) {
	testredis.ManyAtOnce()
	// go-redis asks a server that is gone once a second, and only then sees that its client was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// open starts a server, and a lock of one name in each of n sessions.
func open(t *testing.T, n int, options ...rlock.SessionOption) (rdb *redis.Client, locks []*rwlock.RWMutex) {
	t.Helper()
	rdb = testredis.Start(t).Client(t)
	return rdb, locksOf(t, rdb, n, options...)
}

func locksOf(t testing.TB, rdb rlock.Client, n int, options ...rlock.SessionOption) (locks []*rwlock.RWMutex) {
	t.Helper()
	for range n {
		locks = append(locks, rwlock.New(testlock.NewSession(t, rdb, options...), "x"))
	}
	return locks
}

func lock(t testing.TB, ctx context.Context, l rlock.Locker, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.Lock(ctx, options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return ctx, hold
}

func unlock(t testing.TB, holds ...*rlock.Hold) {
	t.Helper()
	for _, h := range holds {
		testlock.Must(t, h.Unlock(bg))
	}
}

// got is what became of a Lock in a goroutine of its own.
type got struct {
	ctx  context.Context
	hold *rlock.Hold
	err  error
}

func begin(ctx context.Context, l rlock.Locker, options ...rlock.Option) <-chan got {
	done := make(chan got, 1)
	go func() {
		held, hold, err := l.Lock(ctx, options...)
		done <- got{held, hold, err}
	}()
	return done
}

// await waits for the hold of a Lock.
func await(t testing.TB, done <-chan got) got {
	t.Helper()
	g := testlock.Receive(t, "a hold", done)
	testlock.Must(t, g.err)
	return g
}

// waits checks that it has not ended.
func waits(t testing.TB, what string, done <-chan got) {
	t.Helper()
	select {
	case g := <-done:
		t.Errorf("%s: it did not wait: %v", what, g.err)
	default:
	}
}

func inspect(t testing.TB, l *rwlock.RWMutex) rwlock.State {
	t.Helper()
	st, err := l.Inspect(bg)
	testlock.Must(t, err)
	return st
}

// queue waits until so many stand in the queue.
func queue(t testing.TB, l *rwlock.RWMutex, n int) {
	t.Helper()
	testlock.Eventually(t, "they wait", func() bool { return len(inspect(t, l).Queue) == n })
}
