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

// semsOf are semaphores of one name in n sessions.
func semsOf(
	t testing.TB, rdb rlock.Client, n, limit int, options ...rlock.SessionOption,
) (sems []*semaphore.Semaphore) {
	t.Helper()
	for range n {
		sems = append(sems, semaphore.New(testlock.NewSession(t, rdb, options...), "x", limit))
	}
	return sems
}

// simulated runs a test in fake time, with a semaphore of one name in each of n sessions.
func simulated(
	t *testing.T, n, limit int, test func(*testing.T, *testlock.Wire, []*semaphore.Semaphore),
	options ...rlock.SessionOption,
) {
	testlock.Simulated(t, func(t *testing.T, wire *testlock.Wire) {
		test(t, wire, semsOf(t, wire.Client, n, limit, options...))
	})
}

// acquire takes n permits.
func acquire(
	t testing.TB, s *semaphore.Semaphore, n int, options ...rlock.Option,
) (context.Context, *rlock.Hold) {
	t.Helper()
	return testlock.Lock(t, s.Locker(n), bg, options...)
}

// join waits for n permits, in fake time.
func join(s *semaphore.Semaphore, n int, options ...rlock.Option) <-chan testlock.Grant {
	return testlock.Join(bg, s.Locker(n), options...)
}

// refused tries to take n permits.
func refused(t testing.TB, what string, s *semaphore.Semaphore, n int) {
	t.Helper()
	_, _, err := s.TryAcquire(bg, n)
	testlock.WantError(t, what, err, rlock.ErrLocked)
}

// used fails the test unless so many permits are held, and nobody waits.
func used(t testing.TB, what string, s *semaphore.Semaphore, n int) {
	t.Helper()
	if st := testlock.Inspect(t, s); st.Used() != n || len(st.Queue) != 0 {
		t.Errorf("%s: %+v, want %d used", what, st, n)
	}
}
