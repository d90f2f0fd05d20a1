package rlock_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// lease is the lease of sessions without WithWatchdogTimeout.
const lease = protocol.DefaultLease

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
			check(lease*2/3, lease)
		}
		testlock.Must(t, hold.Extend(bg, 24*time.Hour))
		check(24*time.Hour-time.Second, 24*time.Hour)
		testlock.Unlock(t, hold)
		if ttl := w.TTL(lockKey); ttl < retention {
			t.Errorf("the token is remembered for %v", ttl)
		}
	})
}

// A hold that was handed over has a short first lease. The session extends it in the background to the time
// that WithLease gives. After the Unlock, it must not send such a request. Proves: no trace
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

// docs/choosing.md has figures from this test and the next two.
func TestALockOfACrashedHolderIsFreeAfterTwoThirdsOfTheLeaseAndWithinIt(t *testing.T) {
	for crashedAt := time.Duration(0); crashedAt < 2*lease; crashedAt += lease / 11 {
		testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
			toHolder := w.Proxy()
			m := rlock.New(testlock.NewSession(t, toHolder.Client(t)), "x")
			testlock.Lock(t, m, bg)
			got := testlock.Join(bg, rlock.New(testlock.NewSession(t, w.Client), "x"))
			time.Sleep(crashedAt)
			toHolder.BlackHole(true, true)
			crashed := time.Now()
			next := testlock.Granted(t, got)
			took := time.Since(crashed)
			if took < lease*2/3-time.Second || took > lease+100*time.Millisecond {
				t.Errorf("the holder crashed after %v, and the lock was free %v later", crashedAt, took)
			}
			toHolder.BlackHole(false, false)
			testlock.Unlock(t, next)
		})
	}
}

func TestAHeldLockIsRenewedThreeTimesInEachLease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, hold := testlock.Lock(t, testlock.Warm(t, rlock.New(testlock.NewSession(t, w.Client), "x")), bg)
		w.Net.Reset()
		time.Sleep(time.Hour + time.Second)
		if n := w.Net.Count("EVALSHA"); n != 720 {
			t.Errorf("%d renewals in an hour", n)
		}
		testlock.Unlock(t, hold)
	})
}

func TestAnOutageOfUnderTwoThirdsOfTheLeaseLosesNoLock(t *testing.T) {
	// Holds end 1 % before their leases, and there are pauses between failed renewals.
	const short = lease * 2 / 3 * 95 / 100
	for what, switchTo := range map[string]func(w *testlock.Wire, broken bool){
		"the server is down": func(w *testlock.Wire, broken bool) { w.Net.Refuse(broken) },
		"requests are lost":  func(w *testlock.Wire, broken bool) { w.Down(broken) },
		"the server stands still": func(w *testlock.Wire, broken bool) {
			if broken {
				w.Net.Freeze()
			} else {
				w.Net.Thaw()
			}
		},
	} {
		for _, lasts := range []time.Duration{short, lease} {
			for phase := time.Duration(0); phase < lease/3; phase += lease / 3 / 7 {
				testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
					client := w.Net.Client(t) // with the timeouts of go-redis
					_, hold := testlock.Lock(t, rlock.New(testlock.NewSession(t, client), "x"), bg)
					time.Sleep(lease + phase)
					switchTo(w, true)
					time.Sleep(lasts)
					switchTo(w, false)
					time.Sleep(lease)
					if lost := hold.Err() != nil; lost != (lasts == lease) {
						t.Errorf("%s for %v, %v after a renewal: lost %v", what, lasts, phase, lost)
					}
					_ = hold.Unlock(bg)
				})
			}
		}
	}
}
