package rlock_test

import (
	"testing"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

func TestEventsAndKeysNameTheKind(t *testing.T) {
	want := map[string]string{"reentrant": rlock.KindReentrant, "fair": rlock.KindFair, "redlock": rlock.KindRedLock}
	for kind, newMutex := range testlock.Kinds {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				n := 0
				s := testlock.NewSession(t, w.Client, rlock.WithObserver(testlock.Observer(func(e rlock.Event) {
					if n++; e.Lock != want[kind] {
						t.Errorf("%v of a lock of kind %q", e.Kind, e.Lock)
					}
				})))
				_, hold := testlock.Lock(t, newMutex(s, "x"), bg)
				if !w.Exists("lockline:" + want[kind] + ":{x}") {
					t.Error("its key has another letter")
				}
				testlock.Unlock(t, hold)
				if n != 2 {
					t.Errorf("%d events", n)
				}
			})
		})
	}
}
