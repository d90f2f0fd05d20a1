package rlock_test

import (
	"context"
	"errors"
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

func TestHoldersAreKnownByTheirSessionsID(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		for _, kind := range []string{"reentrant", "fair"} {
			if id := identity(t, s, testlock.Kinds[kind]); id != s.ID() {
				t.Errorf("%s: %q, want %q", kind, id, s.ID())
			}
		}
	})
}

func TestObserversHearOfEveryHold(t *testing.T) {
	everyKindOverAWire(t, func(t *testing.T, w *testlock.Wire, newMutex testlock.Maker) {
		var rec recorder
		s := testlock.NewSession(t, w.Client, rlock.WithObserver(&rec))
		m := newMutex(s, "x")
		ctx, h1 := testlock.Lock(t, m, bg)
		_, h2 := testlock.Lock(t, m, ctx)
		id := testlock.Inspect(t, m).Session
		if _, _, err := m.TryLock(bg); err == nil {
			t.Fatal("entered twice")
		}
		testlock.Unlock(t, h2)
		testlock.Unlock(t, h1)
		lost, h3 := testlock.Lock(t, m, bg)
		testlock.ForceUnlock(t, m)
		_ = h3.Extend(bg, time.Minute)
		testlock.Receive(t, "lost", lost.Done())
		testlock.Eventually(t, "told", func() bool { return strings.Contains(rec.String(), "Lost") })
		want := "Acquired/1 Acquired/2 NotAcquired/0 Released/0 Acquired/1 Lost/0"
		if got := rec.String(); got != want {
			t.Errorf("events:\n got %s\nwant %s", got, want)
		}
		for _, e := range rec.events {
			if e.Name != "x" || e.Lock == "" || e.Session != id || e.At.IsZero() || e.Kind == rlock.Acquired && e.Token == 0 || e.Kind == rlock.NotAcquired && !errors.As(e.Err, new(*rlock.LockedError)) {
				t.Errorf("incomplete: %+v", e)
			}
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

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var words []string
	for _, e := range r.events {
		words = append(words, e.Kind.String()+"/"+string(rune('0'+e.Depth)))
	}
	return strings.Join(words, " ")
}
