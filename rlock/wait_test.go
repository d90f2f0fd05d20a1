package rlock_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The same of goroutines behind one of their own session, which unlocks in that instant.
func TestWaitersBehindTheirOwnSessionAreToldThatItHeldTheLock(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		waits := make(testlock.Waits, 5)
		m := newMutex(testlock.NewSession(t, w.Client, rlock.WithObserver(waits)), "x")
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
