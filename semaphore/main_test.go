package semaphore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

var bg = context.Background()

func TestMain(m *testing.M) {
	testredis.ManyAtOnce()
	// go-redis asks a server that is gone once a second, and only then sees that its client was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// open starts a server, and a semaphore of one name in each of n sessions.
func open(t *testing.T, n, limit int, options ...rlock.SessionOption) (rdb *redis.Client, sems []*semaphore.Semaphore) {
	t.Helper()
	rdb = testredis.Start(t).Client(t)
	for range n {
		sems = append(sems, semaphore.New(testlock.NewSession(t, rdb, options...), "x", limit))
	}
	return rdb, sems
}

func acquire(t testing.TB, s *semaphore.Semaphore, n int, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := s.Acquire(bg, n, options...)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	return ctx, hold
}

func unlock(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	testlock.Must(t, hold.Unlock(bg))
}

// got is what became of an Acquire in a goroutine of its own.
type got struct {
	ctx  context.Context
	hold *rlock.Hold
	err  error
}

func begin(ctx context.Context, s *semaphore.Semaphore, n int, options ...rlock.Option) <-chan got {
	done := make(chan got, 1)
	go func() {
		held, hold, err := s.Acquire(ctx, n, options...)
		done <- got{held, hold, err}
	}()
	return done
}

// await waits for the permits of an Acquire.
func await(t testing.TB, done <-chan got) *rlock.Hold {
	t.Helper()
	g := testlock.Receive(t, "permits", done)
	testlock.Must(t, g.err)
	return g.hold
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

func inspect(t testing.TB, s *semaphore.Semaphore) semaphore.State {
	t.Helper()
	st, err := s.Inspect(bg)
	testlock.Must(t, err)
	return st
}

// queue waits until so many stand in the queue.
func queue(t testing.TB, s *semaphore.Semaphore, n int) {
	t.Helper()
	testlock.Eventually(t, "they wait", func() bool { return len(inspect(t, s).Queue) == n })
}
