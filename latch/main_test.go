package latch_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

const key = "lockline:l:{x}"

// lease is the lease of sessions without WithWatchdogTimeout.
const lease = protocol.DefaultLease

// keyOf returns the key of the latch "x" of a test that shares its server with other tests.
func keyOf(rdb redis.Cmdable) string { return testlock.Prefix(rdb) + ":l:{x}" }

var bg = context.Background()

func TestMain(m *testing.M) { testlock.Main(m, nil) }

// simulated runs a test in fake time with the latch "x" in n sessions.
func simulated(t *testing.T, n int, test func(t *testing.T, w *testlock.Wire, ls []*latch.Latch)) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { test(t, w, latchesOf(t, w.Client, n)) })
}

// proxied runs a test in fake time with one latch in two sessions. The session of l uses w.Net. The session
// of other uses another network. The server has the scripts, and both sessions know its clock, so each call
// is one request.
func proxied(t *testing.T, test func(t *testing.T, w *testlock.Wire, l, other *latch.Latch)) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		direct := faultproxy.InMemory(t, w.Dial).Client(t)
		l, other := latchesOf(t, w.Client, 1)[0], latchesOf(t, direct, 1)[0]
		for _, l := range []*latch.Latch{l, other} {
			set(t, l, 2)
			_, p := join(t, l, "warm")
			testlock.Must(t, p.CountDown(bg))
			countDown(t, l)
			_, err := l.Delete(bg)
			testlock.Must(t, err)
		}
		w.Net.Reset()
		test(t, w, l, other)
		w.Net.OnRequest(nil)
	})
}

func latchesOf(
	t testing.TB, rdb rlock.Client, n int, options ...rlock.SessionOption,
) (latches []*latch.Latch) {
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

func wantDeleted(t testing.TB, l *latch.Latch, want bool) {
	t.Helper()
	if deleted, err := l.Delete(bg); err != nil || deleted != want {
		t.Errorf("Delete: %v, %v, want %v", deleted, err, want)
	}
}

func join(t testing.TB, l *latch.Latch, name string) (context.Context, *latch.Party) {
	t.Helper()
	ctx, p, err := l.Join(bg, name)
	testlock.Must(t, err)
	return ctx, p
}

// wait calls l.Wait in a new goroutine. The channel receives its error.
func wait(ctx context.Context, l *latch.Latch) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.Wait(ctx) }()
	return done
}

// asleep is like wait, but returns after the waiter has read the count, has subscribed, and has read the
// count again. It works only in fake time.
func asleep(l *latch.Latch) <-chan error {
	done := wait(bg, l)
	time.Sleep(time.Second)
	return done
}

// listening is like wait, but returns after n clients have subscribed to the channel of the latch.
func listening(t testing.TB, rdb redis.Cmdable, l *latch.Latch, n int64) <-chan error {
	t.Helper()
	done := wait(bg, l)
	channel := testlock.Prefix(rdb) + ":l:{" + l.Name() + "}"
	testlock.Eventually(t, fmt.Sprintf("%d listen", n), func() bool {
		listeners, err := rdb.PubSubNumSub(bg, channel).Result()
		testlock.Must(t, err)
		return listeners[channel] >= n
	})
	return done
}

// ended waits for the end of a Wait, and fails the test unless its error matches want.
func ended(t testing.TB, done <-chan error, want error) {
	t.Helper()
	if err := testlock.Receive(t, "the end of Wait", done); !errors.Is(err, want) {
		t.Errorf("Wait: %v, want %v", err, want)
	}
}

// diedAs fails the test unless err is a PartyDiedError that names this party.
func diedAs(t testing.TB, what string, err error, party string) {
	t.Helper()
	var died *latch.PartyDiedError
	if !errors.Is(err, latch.ErrPartyDied) || !errors.As(err, &died) || died.Party != party ||
		died.Name != "x" {
		t.Errorf("%s: %v, want that %s died", what, err, party)
	}
}

// isScript reports whether a request runs a script.
func isScript(r *faultproxy.Request) bool { return r.Is("EVALSHA", "EVAL") }
