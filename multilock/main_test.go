package multilock_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestMain(m *testing.M) {
	if os.Getenv(contenderEnv) != "" {
		contend()
		return
	}
	testredis.ManyAtOnce()
	goleak.VerifyTestMain(m)
}

var (
	bg    = context.Background()
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// everyServer runs a test on the embedded server and on a real one.
func everyServer(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("embedded", func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{Addr: testredis.Embedded(t).Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		test(t, rdb)
	})
	t.Run("real", func(t *testing.T) { test(t, testredis.Start(t).Client(t)) })
}

func newSession(t testing.TB, rdb rlock.Client, options ...rlock.SessionOption) *rlock.Session {
	t.Helper()
	s, err := rlock.NewSession(rdb, append([]rlock.SessionOption{rlock.WithLogger(quiet)}, options...)...)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lock(t testing.TB, l rlock.Locker, ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold) {
	t.Helper()
	ctx, hold, err := l.Lock(ctx, options...)
	if err != nil {
		t.Fatalf("Lock: %v", err)
	}
	return ctx, hold
}

func unlock(t testing.TB, hold *rlock.Hold) {
	t.Helper()
	if err := hold.Unlock(bg); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
}

// free reports whether nobody holds any of the locks.
func free(t testing.TB, ms ...*rlock.Mutex) bool {
	t.Helper()
	for _, m := range ms {
		st, err := m.Inspect(bg)
		must(t, err)
		if st.Held || len(st.Queue) > 0 {
			return false
		}
	}
	return true
}

// patience is for what must happen, however slow the machine.
const patience = 30 * time.Second

// eventually waits for a condition that nothing announces.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

func within(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("still not: %s", what)
	}
}

// waitingSignal tells of each acquisition that waits.
type waitingSignal chan string

func (w waitingSignal) Observe(_ context.Context, e rlock.Event) {
	if e.Kind == rlock.Waiting {
		w <- e.Name
	}
}
