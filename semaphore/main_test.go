package semaphore_test

import (
	"context"
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

var bg = context.Background()

func TestMain(m *testing.M) { testredis.Run(m) }

// semsOf returns the semaphore "x" in n sessions.
func semsOf(
	t testing.TB, rdb rlock.Client, n, limit int, options ...rlock.SessionOption,
) (sems []*semaphore.Semaphore) {
	t.Helper()
	for range n {
		sems = append(sems, semaphore.New(testlock.NewSession(t, rdb, options...), "x", limit))
	}
	return sems
}

// simulated runs a test in fake time with the semaphore "x" in n sessions.
func simulated(
	t *testing.T, n, limit int, test func(*testing.T, *testlock.Wire, []*semaphore.Semaphore),
	options ...rlock.SessionOption,
) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		test(t, wire, semsOf(t, wire.Client, n, limit, options...))
	})
}

// acquire acquires n permits.
func acquire(
	t testing.TB, s *semaphore.Semaphore, n int, options ...rlock.Option,
) (context.Context, *rlock.Hold) {
	t.Helper()
	return testlock.Lock(t, s.Locker(n), bg, options...)
}

// join starts a call that waits for n permits, and returns when it waits. It works only in fake time.
func join(s *semaphore.Semaphore, n int, options ...rlock.Option) <-chan testlock.Grant {
	return testlock.Join(bg, s.Locker(n), options...)
}

// refused fails the test unless a TryAcquire of n permits returns ErrLocked.
func refused(t testing.TB, what string, s *semaphore.Semaphore, n int) {
	t.Helper()
	_, _, err := s.TryAcquire(bg, n)
	testlock.WantError(t, what, err, rlock.ErrLocked)
}

// used fails the test unless n permits are held, and nobody waits.
func used(t testing.TB, what string, s *semaphore.Semaphore, n int) {
	t.Helper()
	if st := testlock.Inspect(t, s); st.Used() != n || len(st.Queue) != 0 {
		t.Errorf("%s: %+v, want %d used", what, st, n)
	}
}
