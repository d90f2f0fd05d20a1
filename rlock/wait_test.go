package rlock_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// Of many that wait in one session, one asks Redis. The others must be told what it was told.
func TestWaitersThatTimeOutTogetherAreAllToldWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	together := func(t *testing.T, holder *rlock.Session, wait func() error) {
		t.Helper()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				err := wait()
				var locked *rlock.LockedError
				if !errors.Is(err, rlock.ErrLocked) || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%v", err)
				} else if !errors.As(err, &locked) || !strings.Contains(locked.About, "the other") || locked.Remaining <= 0 {
					t.Errorf("%+v", locked)
				}
			})
		}
		all.Wait()
	}
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		rdb := w.Client
		other, s := testlock.NewSession(t, rdb, rlock.WithLabel("the other")), testlock.NewSession(t, rdb)
		_, hold := testlock.Lock(t, newMutex(other, "x"), bg)
		m := newMutex(s, "x")
		together(t, other, func() error {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second))
			return err
		})
		testlock.Unlock(t, hold)
	})
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) { // several
		rdb := w.Client
		other, s := testlock.NewSession(t, rdb, rlock.WithLabel("the other")), testlock.NewSession(t, rdb)
		_, hold := testlock.Lock(t, rlock.New(other, "x"), bg)
		m := multilock.New(rlock.New(s, "w"), rlock.New(s, "x"))
		together(t, other, func() error {
			_, _, err := m.Lock(bg, rlock.WaitAtMost(time.Second))
			return err
		})
		testlock.Unlock(t, hold)
	})
}

// The same of goroutines behind one of their own session, which unlocks in that instant.
func TestWaitersBehindTheirOwnSessionAreToldThatItHeldTheLock(t *testing.T) {
	t.Parallel()
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		rdb := w.Client
		waits := make(testlock.Waits, 5)
		m := newMutex(testlock.NewSession(t, rdb, rlock.WithObserver(waits)), "x")
		for range 20 {
			_, hold := testlock.Lock(t, m, bg)
			for len(waits) > 0 { // this goroutine may have waited for what others of the last round abandoned
				<-waits
			}
			over := time.After(20 * time.Millisecond)
			var all sync.WaitGroup
			for range 5 {
				all.Go(func() {
					err := testlock.Cycle(bg, m, rlock.WaitAtMost(20*time.Millisecond))
					if err != nil && !errors.Is(err, rlock.ErrLocked) {
						t.Error(err)
					}
				})
			}
			ended := make(chan struct{})
			go func() {
				all.Wait()
				close(ended)
			}()
			for n := 0; n < 5; n++ { // one that begins after the Unlock has learned nothing of a holder
				select {
				case <-waits:
				case <-ended: // one whose time was over before Redis had answered has not been announced
					n = 5
				}
			}
			<-over
			testlock.Unlock(t, hold)
			<-ended
		}
	})
}
