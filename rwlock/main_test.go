package rwlock_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
)

const key = "lockline:w:{x}"

var bg = context.Background()

func TestMain(m *testing.M) { testredis.Run(m) }

// locksOf returns the lock "x" in n sessions.
func locksOf(
	t testing.TB, rdb rlock.Client, n int, options ...rlock.SessionOption,
) (locks []*rwlock.RWMutex) {
	t.Helper()
	for range n {
		locks = append(locks, rwlock.New(testlock.NewSession(t, rdb, options...), "x"))
	}
	return locks
}

// simulated runs a test in fake time with the lock "x" in n sessions.
func simulated(
	t *testing.T, n int, test func(*testing.T, *testlock.Wire, []*rwlock.RWMutex),
	options ...rlock.SessionOption,
) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		test(t, wire, locksOf(t, wire.Client, n, options...))
	})
}

// isFree fails the test if somebody holds the lock or waits for it.
func isFree(t testing.TB, l *rwlock.RWMutex) {
	t.Helper()
	if st := testlock.Inspect(t, l); st.Held || len(st.Queue) != 0 {
		t.Errorf("%+v", st)
	}
}

// refused fails the test unless TryLock of l returns the error want.
func refused(t testing.TB, what string, l rlock.Locker, ctx context.Context, want error) {
	t.Helper()
	_, _, err := l.TryLock(ctx)
	testlock.WantError(t, what, err, want)
}
