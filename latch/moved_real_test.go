package latch_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// Proves: failover
func TestALatchIsNotDecidedByADemotedServer(t *testing.T) {
	t.Parallel()
	e := testlock.NewEndpoint(t)
	lease := rlock.WithWatchdogTimeout(5 * time.Second)
	waiter := latch.New(testlock.NewSession(t, e.Client(t), lease), "x")
	looker := latch.New(testlock.NewSession(t, e.Client(t)), "x")
	set(t, waiter, 1)
	wantCount(t, looker, 1)
	done := listening(t, e.Old.Client(t), waiter, 1)
	e.Move(t, true)
	countDown(t, latch.New(testlock.NewSession(t, e.Promoted.Client(t)), "x"))
	if st := inspect(t, looker); st.Count != 0 {
		t.Errorf("Inspect: %+v", st)
	}
	wantCount(t, looker, 0)
	ended(t, done, nil)
}
