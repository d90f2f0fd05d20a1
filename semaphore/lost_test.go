package semaphore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// A waiter does not receive the message of its grant. It sends a request after its first lease has ended, and
// is granted the permit again. Then it must hold the permit, as Redis says.
func TestAnAttemptThatIsGrantedAgainAfterItsFirstLeaseIsAHolder(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		a := semaphore.New(testlock.NewSession(t, w.Client), "x", 1)
		b := semaphore.New(testlock.NewSession(t, w.Client), "x", 1)
		_, hold := acquire(t, a, 1)
		testlock.Keep(t, hold)
		waiter := join(b, 1)
		synctest.Wait()
		keys := []string{"lockline:p:{x}", "lockline:p:{x}:q", "lockline:p:{x}:w", "lockline:p:{x}:h"}
		// The message of the grant is published on another channel.
		sub := w.Client.Subscribe(bg, "nobody:s:"+testlock.Inspect(t, a).Queue[0].Session)
		defer sub.Close()
		_, err := sub.Receive(bg)
		testlock.Must(t, err)
		testlock.Must(t, w.Client.Eval(bg, script.Text("lock/release"), keys,
			testlock.Inspect(t, a).Holders[0].Owner, "", "nobody:s:", "15000", "0", "").Err())
		got := testlock.Granted(t, waiter)
		testlock.Keep(t, got)
		if st := testlock.Inspect(t, b); st.Used() != 1 || got.Err() != nil {
			t.Errorf("it holds a permit (%v), and Redis has %+v", got.Err(), st)
		}
		testlock.Unlock(t, got)
	})
}

// The Unlock of a lost hold hands the permit over to waiters, even of its own session.
func TestTheUnlockOfALostHoldServesItsSession(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		sem := semaphore.New(testlock.NewSession(t, w.Client), "x", 1)
		_, lost := acquire(t, sem, 1)
		testlock.Keep(t, lost)
		waiter := join(sem, 1, rlock.WaitAtMost(2*time.Second))
		synctest.Wait()
		w.HDel("lockline:p:{x}", "owner")
		testlock.WantError(t, "Extend", lost.Extend(bg, time.Minute), rlock.ErrLost)
		testlock.WantError(t, "Unlock", lost.Unlock(bg), rlock.ErrLost)
		hold := testlock.Granted(t, waiter)
		testlock.Keep(t, hold)
		testlock.Unlock(t, hold)
	})
}

// Redis has answered, so the error is ErrLocked, not os.ErrDeadlineExceeded.
func TestAWaitThatIsOverSaysThatItWasRefused(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		m := func(s *rlock.Session) *rwlock.RWMutex { return rwlock.New(s, "y") }
		hold := testlock.Take(t, m(testlock.NewSession(t, w.Client)))
		// A waiter of another session is first in the queue.
		behind := testlock.Join(bg, m(testlock.NewSession(t, w.Client)))
		own := testlock.Join(bg, m(s))
		_, _, err := m(s).Lock(bg, rlock.WaitAtMost(time.Second))
		testlock.WantError(t, "behind another goroutine of the session", err, rlock.ErrLocked)
		testlock.Unlock(t, hold)
		testlock.Served(t, behind, own)
	})
}
