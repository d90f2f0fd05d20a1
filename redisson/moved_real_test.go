package redisson_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// Proves: failover
func TestADemotedServerKeepsNoLock(t *testing.T) {
	t.Parallel()
	e := testlock.NewEndpoint(t)
	lock := func(s *rlock.Session) *redisson.Mutex { return redisson.New(s, "x") }
	waits := make(testlock.Waits, 1)
	holder := lock(testlock.NewSession(t, e.Client(t)))
	_, hold := testlock.Lock(t, holder, bg)
	defer func() { _ = hold.Unlock(bg) }() // returns an error, because the hold is lost
	trying := lock(testlock.NewSession(t, e.Client(t)))
	_, _, err := trying.TryLock(bg)
	testlock.WantError(t, "TryLock", err, rlock.ErrLocked)
	waiter := testlock.NewSession(t, e.Client(t), rlock.WithWaiterTimeout(5*time.Second),
		rlock.WithObserver(waits))
	got := testlock.Go(testlock.Bounded(t), lock(waiter))
	testlock.Receive(t, "waiting", waits)
	e.Move(t, true)
	_, err = lock(testlock.NewSession(t, e.Promoted.Client(t))).ForceUnlock(bg)
	testlock.Must(t, err)
	start := time.Now()
	testlock.Unlock(t, testlock.Granted(t, got))
	if took := time.Since(start); took > protocol.DefaultLease/2 {
		t.Errorf("the waiter was served after %v", took)
	}
	_, hold = testlock.TryLock(t, trying, bg)
	testlock.Unlock(t, hold)
}
