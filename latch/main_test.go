package latch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
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

// waits calls l.Wait as wait does, and returns when it has looked after it listens. Nobody else may use the server meanwhile.
func waits(t testing.TB, rdb redis.Cmdable, l *latch.Latch) <-chan error {
	t.Helper()
	before := evals(t, rdb)
	done := wait(bg, l)
	testlock.Eventually(t, "it has looked twice", func() bool { return evals(t, rdb) >= before+2 })
	return done
}

// evals counts the scripts that a server has run by their digests.
func evals(t testing.TB, rdb redis.Cmdable) (n int) {
	t.Helper()
	_, stats, ok := strings.Cut(rdb.Info(bg, "commandstats").Val(), "cmdstat_evalsha:calls=")
	if ok {
		_, err := fmt.Sscanf(stats, "%d", &n)
		testlock.Must(t, err)
	}
	return n
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
