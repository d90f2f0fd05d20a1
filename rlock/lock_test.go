package rlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
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

// Code that the holder calls locks again with the context from outside, and hangs.
func TestALongWaitForTheSessionsOwnHolderIsLoggedWhileItLasts(t *testing.T) {
	for kind, newMutex := range testlock.Kinds {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			log := new(bytes.Buffer) // written by one goroutine, which is done when Close returns
			s := testlock.NewSession(t, w.Client, rlock.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			m := newMutex(s, "x")
			hold := testlock.Take(t, m)
			time.Sleep(time.Minute) // nobody waits
			ctx, cancel := context.WithCancel(bg)
			hangs := testlock.Go(ctx, m)
			time.Sleep(time.Minute)
			testlock.Unlock(t, hold)
			testlock.Unlock(t, testlock.Granted(t, hangs))
			cancel()
			testlock.Must(t, s.Close())
			if n := strings.Count(log.String(), "have waited for 10 s for a holder of this same session"); n != 1 {
				t.Errorf("%s: logged %d times: %s", kind, n, log)
			}
		})
	}
}
