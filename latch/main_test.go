package latch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testlock"
	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

const key = "lockline:l:{x}"

var bg = context.Background()

func TestMain(m *testing.M) {
	testredis.ManyAtOnce()
	// go-redis asks a server that is gone once a second, and only then sees that its client was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// open starts a server, and n latches of one name in as many sessions.
func open(t *testing.T, n int, options ...rlock.SessionOption) (rdb *redis.Client, latches []*latch.Latch) {
	t.Helper()
	rdb = testredis.Start(t).Client(t)
	return rdb, latchesOf(t, rdb, n, options...)
}

func latchesOf(t testing.TB, rdb rlock.Client, n int, options ...rlock.SessionOption) (latches []*latch.Latch) {
	t.Helper()
	for range n {
		latches = append(latches, latch.New(testlock.NewSession(t, rdb, options...), "x"))
	}
	return latches
}

func set(t testing.TB, l *latch.Latch, n int) {
	t.Helper()
	if set, err := l.TrySet(bg, n); err != nil || !set {
		t.Fatalf("TrySet: %v, %v", set, err)
	}
}

func countDown(t testing.TB, l *latch.Latch) {
	t.Helper()
	testlock.Must(t, l.CountDown(bg))
}

func wantCount(t testing.TB, l *latch.Latch, want int) {
	t.Helper()
	if n, err := l.Count(bg); err != nil || n != want {
		t.Errorf("Count: %d, %v, want %d", n, err, want)
	}
}

// wait calls l.Wait in a goroutine of its own and sends what it returns.
func wait(ctx context.Context, l *latch.Latch) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Wait(ctx) }()
	return done
}

// waits calls l.Wait as wait does, and returns when it listens.
func waits(t testing.TB, rdb redis.Cmdable, l *latch.Latch) <-chan error {
	t.Helper()
	done := wait(bg, l)
	listening(t, rdb, 1)
	return done
}

// listening waits until n clients of the server listen to the latch.
func listening(t testing.TB, rdb redis.Cmdable, n int64) {
	t.Helper()
	testlock.Eventually(t, fmt.Sprintf("%d listen", n), func() bool {
		listeners, err := rdb.PubSubNumSub(bg, key).Result()
		testlock.Must(t, err)
		return listeners[key] >= n
	})
}

// ended waits for the end of a Wait and checks its error.
func ended(t testing.TB, done <-chan error, want error) {
	t.Helper()
	if err := testlock.Receive(t, "the end of Wait", done); !errors.Is(err, want) {
		t.Errorf("Wait: %v, want %v", err, want)
	}
}
