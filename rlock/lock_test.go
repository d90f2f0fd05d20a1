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

// Nothing tells one hold of a JVM from the next but its owner field.
func TestForceUnlockTokenLeavesAHoldWithoutATokenAlone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Client
		m := rlock.New(testlock.NewSession(t, rdb, rlock.RedissonKeys()), "x")
		testlock.Must(t, rdb.HSet(bg, "x", "d1c5a3de-0d56-4b4e-8f0a-9d0e3b4c1a77:30", 1).Err())
		testlock.Must(t, rdb.PExpire(bg, "x", time.Minute).Err())
		if st, err := m.Inspect(bg); err != nil || !st.Held || st.Token != 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		if freed, err := m.ForceUnlockToken(bg, 1); freed || err != nil {
			t.Errorf("%v, %v", freed, err)
		}
		if _, err := m.ForceUnlockToken(bg, 0); err == nil {
			t.Error("no error with token 0")
		}
		if freed, err := m.ForceUnlock(bg); !freed || err != nil {
			t.Errorf("%v, %v", freed, err)
		}
	})
}

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
