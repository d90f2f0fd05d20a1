package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: tokens
func TestTheTokenIsRememberedForLongerThanTheLockIsHeld(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		time.Sleep(3 * time.Hour)
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l <= 0 || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		testlock.Must(t, hold.Extend(bg, 24*time.Hour))
		if l, mem := w.TTL("lockline:r:{x}"), w.TTL("lockline:r:{x}:t"); l != 24*time.Hour || mem <= l {
			t.Errorf("lock for %v, token for %v", l, mem)
		}
		testlock.Unlock(t, hold)
	})
}

// Each hold is handed over with a first lease, which is made as long as its option says in the background.
// Proves: no trace
func TestAfterUnlockNoRequestMakesAFixedLeaseLonger(t *testing.T) {
	for kind, newLocker := range queued {
		t.Run(kind, func(t *testing.T) {
			testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
				l, s := newLocker(testlock.NewSession(t, w.Client)), testlock.NewSession(t, w.Client)
				hold := testlock.Take(t, l)
				got := testlock.Join(bg, newLocker(s), rlock.WithLease(20*time.Second))
				asks := func(r *faultproxy.Request) bool {
					name := testlock.Script(r.Script())
					return name == "keep" || name == "renew"
				}
				w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
					if asks(r) {
						return faultproxy.DropAndCut
					}
					return faultproxy.Pass
				})
				testlock.Unlock(t, hold)
				next := testlock.Granted(t, got)
				time.Sleep(500 * time.Millisecond)
				testlock.Unlock(t, next)
				w.Net.OnRequest(nil)
				w.Net.Reset()
				start := time.Now()
				testlock.Must(t, s.Close())
				if took := time.Since(start); took > 10*time.Millisecond {
					t.Errorf("Close has taken %v", took)
				}
				for _, r := range w.Net.Requests() {
					if asks(&r) {
						t.Errorf("after Unlock: %q", r.Args)
					}
				}
			})
		})
	}
}
