package rlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

type recorder struct {
	mu     sync.Mutex
	events []rlock.Event
}

func (r *recorder) Observe(_ context.Context, e rlock.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// The usual cause is that code called by the holder locks again with an outer context, and so waits for
// itself.
func TestALongWaitForTheSessionsOwnHolderIsLoggedWhileItLasts(t *testing.T) {
	const warning = "have waited for 10 s for a holder of this same session"
	for kind, newMutex := range testlock.Kinds {
		for _, options := range [][]rlock.Option{nil, {rlock.WithLease(time.Hour)}} {
			for _, lease := range []time.Duration{30 * time.Second, 10 * time.Minute} {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					log := new(testlock.Log)
					s := testlock.NewSession(t, w.Client, rlock.WithWatchdogTimeout(lease),
						rlock.WithLogger(log.Logger()))
					m := newMutex(s, "x")
					hold := testlock.Take(t, m, options...)
					time.Sleep(time.Minute) // nobody waits
					ctx, cancel := context.WithCancel(bg)
					hangs := testlock.Go(ctx, m)
					time.Sleep(9 * time.Second)
					synctest.Wait()
					if log.Count(warning) != 0 {
						t.Errorf("%s: too early: %v", kind, log)
					}
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if log.Count(warning) != 1 {
						t.Errorf("%s, %v: not after 11 s", kind, options)
					}
					time.Sleep(time.Minute)
					testlock.Unlock(t, hold)
					testlock.Unlock(t, testlock.Granted(t, hangs))
					cancel()
					testlock.Must(t, s.Close())
					if n := log.Count(warning); n != 1 {
						t.Errorf("%s: logged %d times: %v", kind, n, log)
					}
				})
			}
		}
	}
}
