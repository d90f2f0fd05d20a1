package rlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// When a session's connections break, it does not know which of its locks Redis has kept. It checks each hold
// as soon as Redis answers again, before the next renewal is due.
func TestASessionThatNoticesAnOutageFindsOutAtOnceWhatItHasLost(t *testing.T) {
	for how, notice := range map[string]func(t *testing.T, w *testlock.Wire, s *rlock.Session){
		"by a request": func(t *testing.T, _ *testlock.Wire, s *rlock.Session) {
			_, _, _ = rlock.New(s, "other").TryLock(bg) // while the server is down
		},
		"by its subscription": func(*testing.T, *testlock.Wire, *rlock.Session) {},
	} {
		for kind, lock := range map[string]func(s *rlock.Session) rlock.Locker{
			"rlock":     func(s *rlock.Session) rlock.Locker { return rlock.New(s, "x") },
			"semaphore": func(s *rlock.Session) rlock.Locker { return semaphore.New(s, "x", 3).Locker(2) },
			"rwlock":    func(s *rlock.Session) rlock.Locker { return rwlock.New(s, "x").RLocker() },
		} {
			for lease, options := range map[string][]rlock.Option{
				"renewed": nil, "fixed": {rlock.WithLease(25 * time.Second)},
			} {
				t.Run(how+"/"+kind+"/"+lease, func(t *testing.T) {
					testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
						s := testlock.NewSession(t, w.Net.Client(t))
						other := testlock.NewSession(t, w.Net.Client(t))
						taken := testlock.Take(t, rlock.New(other, "taken"))
						held, hold := testlock.Lock(t, lock(s), bg, options...)
						waiting, leave := context.WithCancel(bg)
						if how == "by its subscription" {
							waits := testlock.Go(waiting, rlock.New(s, "taken"))
							defer func() { <-waits }()
							time.Sleep(time.Second) // a waiter gives the session a subscription
						}
						defer leave()
						w.Kill()
						notice(t, w, s)
						time.Sleep(time.Second)
						w.Net.Refuse(false)
						back := time.Now()
						select {
						case <-held.Done():
						case <-time.After(testlock.Patience):
						}
						if took := time.Since(back); took > 1500*time.Millisecond {
							t.Errorf("the loss was noticed %v after the server was back", took)
						}
						if cause := context.Cause(held); !errors.Is(cause, rlock.ErrLost) {
							t.Errorf("cause: %v", cause)
						}
						testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
						_ = taken.Unlock(bg)
					})
				})
			}
		}
	}
}

// The check after an outage neither ends a hold that Redis has kept, nor extends a fixed lease.
func TestAHoldThatRedisHasKeptOutlivesAnOutage(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Net.Client(t))
		_, renewed := testlock.Lock(t, rlock.New(s, "x"), bg)
		_, fixed := testlock.Lock(t, rlock.New(s, "y"), bg, rlock.WithLease(10*time.Second))
		deadline := fixed.Deadline()
		w.Net.Refuse(true)
		_, _, _ = rlock.New(s, "other").TryLock(bg)
		w.Net.Refuse(false)
		time.Sleep(3 * time.Second)
		if err := errors.Join(renewed.Err(), fixed.Err()); err != nil {
			t.Error(err)
		}
		if !fixed.Deadline().Equal(deadline) {
			t.Errorf("the deadline moved from %v to %v", deadline, fixed.Deadline())
		}
		st, err := rlock.New(s, "y").Inspect(bg)
		if testlock.Must(t, err); st.Remaining > 7*time.Second || st.Remaining <= 0 {
			t.Errorf("the fixed lease lasts for %v", st.Remaining)
		}
		testlock.Unlock(t, renewed, fixed)
	})
}
