package docs

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The tests in this file check the statements of testing.md about users who start a miniredis themselves.

var bg = context.Background()

// processes runs a test in fake time. The test gets a miniredis with its default settings, and two locks of
// the same name, in two sessions.
func processes(
	t *testing.T, test func(t *testing.T, server *miniredis.Miniredis, mine, theirs *rlock.Mutex),
) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.ClockTTL(false)
		mine, theirs := testlock.NewSession(t, w.Client), testlock.NewSession(t, w.Client)
		test(t, w.Miniredis, rlock.New(mine, "x"), rlock.New(theirs, "x"))
	})
}

func locked(m *rlock.Mutex) bool {
	_, hold, err := m.TryLock(bg)
	_ = hold.Unlock(bg)
	return errors.Is(err, rlock.ErrLocked)
}

func TestInMiniredisALeaseEndsByTheClock(t *testing.T) {
	processes(t, func(t *testing.T, server *miniredis.Miniredis, mine, theirs *rlock.Mutex) {
		const lease = time.Second
		ctx, hold := testlock.TryLock(t, mine, bg, rlock.WithLease(lease))
		server.FastForward(lease + time.Second)
		if !locked(theirs) {
			t.Error("it is free by FastForward alone")
		}
		<-ctx.Done()                               // the hold ends by the holder's clock
		time.Sleep(lease/100 + 3*time.Millisecond) // margin of the holder's clock
		if locked(theirs) {
			t.Error("it is not free when its lease has ended")
		}
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
	})
}

func TestAHolderLearnsWithItsNextRequestThatATestHasSetTheTime(t *testing.T) {
	processes(t, func(t *testing.T, server *miniredis.Miniredis, mine, theirs *rlock.Mutex) {
		ctx, hold := testlock.TryLock(t, mine, bg)
		server.SetTime(time.Now().Add(31 * time.Second))
		if locked(theirs) {
			t.Error("its lease is not over")
		}
		if ctx.Err() != nil {
			t.Error("the holder knows already")
		}
		if err := hold.Extend(bg, time.Minute); !errors.Is(err, rlock.ErrLost) ||
			context.Cause(ctx) != rlock.ErrLost {
			t.Errorf("Extend: %v, cause %v", err, context.Cause(ctx))
		}
		_ = hold.Unlock(bg)
	})
}

func TestFastForwardDeletesWhatAFreeLockLeaves(t *testing.T) {
	processes(t, func(t *testing.T, server *miniredis.Miniredis, mine, _ *rlock.Mutex) {
		_, hold := testlock.TryLock(t, mine, bg)
		testlock.Unlock(t, hold)
		if len(server.Keys()) == 0 {
			t.Error("nothing is left to forget")
		}
		if server.FastForward(time.Minute); len(server.Keys()) > 0 {
			t.Errorf("%q are left", server.Keys())
		}
	})
}

func TestWithClockTTLMiniredisGoesByTheTimeThatATestSets(t *testing.T) {
	processes(t, func(t *testing.T, server *miniredis.Miniredis, mine, theirs *rlock.Mutex) {
		server.ClockTTL(true)
		start := time.Now()
		server.SetTime(start)
		_, hold := testlock.TryLock(t, mine, bg)
		last := hold.Token()
		for range 5 { // while the clock of the server stands still
			if !locked(theirs) {
				t.Error("it is free")
			}
			_ = hold.Unlock(bg)
			if _, hold = testlock.TryLock(t, mine, bg); hold.Token() <= last {
				t.Errorf("token %d after %d", hold.Token(), last)
			}
			last = hold.Token()
		}
		server.SetTime(start.Add(31 * time.Second))
		_, next := testlock.TryLock(t, theirs, bg)
		testlock.WantAfter(t, next, last)
		testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
		_ = next.Unlock(bg)
	})
}

func TestForceUnlockWakesWaitersAndTheHolderLearnsIt(t *testing.T) {
	processes(t, func(t *testing.T, _ *miniredis.Miniredis, mine, theirs *rlock.Mutex) {
		ctx, hold := testlock.TryLock(t, mine, bg)
		got := make(chan *rlock.Hold)
		go func() {
			_, hold, err := theirs.Lock(bg)
			if err != nil {
				t.Error(err)
			}
			got <- hold
		}()
		time.Sleep(time.Second) // now theirs.Lock waits
		start := time.Now()
		if held, err := mine.ForceUnlock(bg); !held || err != nil {
			t.Error(held, err)
		}
		next := <-got
		if took := time.Since(start); took > time.Second {
			t.Errorf("the waiter has it after %v", took)
		}
		if err := hold.Extend(bg, time.Minute); !errors.Is(err, rlock.ErrLost) ||
			context.Cause(ctx) != rlock.ErrLost {
			t.Errorf("Extend: %v, cause %v", err, context.Cause(ctx))
		}
		_ = next.Unlock(bg)
	})
}

func TestSetErrorIsAnOutage(t *testing.T) {
	processes(t, func(t *testing.T, server *miniredis.Miniredis, mine, theirs *rlock.Mutex) {
		_, hold := testlock.TryLock(t, mine, bg)
		server.SetError("LOADING Redis is loading the dataset in memory")
		if _, _, err := theirs.TryLock(bg); err == nil || errors.Is(err, rlock.ErrLocked) {
			t.Errorf("TryLock: %v", err)
		}
		if err := hold.Extend(bg, time.Minute); err == nil || errors.Is(err, rlock.ErrLost) ||
			hold.Err() != nil {
			t.Errorf("Extend: %v, Err %v", err, hold.Err())
		}
		server.SetError("")
		if err := hold.Unlock(bg); err != nil {
			t.Errorf("Unlock: %v", err)
		}
	})
}
