package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: tokens
func TestTheHashLivesForLongerThanTheLease(t *testing.T) {
	const retention = 15 * time.Second
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		m := rlock.New(testlock.NewSession(t, w.Client), "x")
		_, hold := testlock.Lock(t, m, bg)
		check := func(least, most time.Duration) {
			t.Helper()
			st, err := m.Inspect(bg)
			testlock.Must(t, err)
			ttl := w.TTL(lockKey)
			if st.Remaining < least || st.Remaining > most || ttl < st.Remaining+retention {
				t.Errorf("the lease ends in %v, and the hash in %v", st.Remaining, ttl)
			}
		}
		for range 100 {
			time.Sleep(13 * time.Second)
			check(20*time.Second, 30*time.Second)
		}
		testlock.Must(t, hold.Extend(bg, 24*time.Hour))
		check(24*time.Hour-time.Second, 24*time.Hour)
		testlock.Unlock(t, hold)
		if ttl := w.TTL(lockKey); ttl < retention {
			t.Errorf("the token is remembered for %v", ttl)
		}
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
					return name == "renew"
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
