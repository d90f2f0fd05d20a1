package multilock_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The release is not waited for before the next in line is told. So the next has the lock after two round trips, not three.
func TestTheNextInLineIsToldWhileTheReleaseIsUnderWay(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	var proxies []*faultproxy.Proxy
	var through []*rlock.Session
	for _, s := range r.servers {
		p := faultproxy.New(t, s.Addr)
		proxies = append(proxies, p)
		through = append(through, testlock.NewSession(t, p.Client(t), rlock.WithStreak(0)))
	}
	first, m, next := patient(t, r.client(t)), patient(t, through), patient(t, r.client(t))
	redLock, turnstile := testlock.Scripts(m), testlock.Scripts(fairlock.New(through[0], "x"))

	// After 100 ms it would be told in any case, and this machine may be slow: one of several holds is enough.
	for range 20 {
		hold := testlock.Take(t, first)
		mine := testlock.Go(testlock.Bounded(t), m)
		testlock.Eventually(t, "it stands in line", func() bool { return r.turnstileAt(t) >= 0 })
		theirs := testlock.Go(testlock.Bounded(t), next)
		testlock.Eventually(t, "another one behind it", func() bool { return r.inLine(t) == 1 })
		testlock.Unlock(t, hold)
		hold = testlock.Granted(t, mine)

		told := make(chan struct{})
		tell := sync.OnceFunc(func() { close(told) })
		var late atomic.Bool
		for _, p := range proxies {
			p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
				switch {
				case turnstile[r.Script()] == "release":
					tell()
				case redLock[r.Script()] == "release":
					select {
					case <-told:
					case <-time.After(50 * time.Millisecond):
						late.Store(true)
					}
				}
				return faultproxy.Pass
			})
		}
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, theirs))
		for _, p := range proxies {
			p.OnRequest(nil)
		}
		testlock.Eventually(t, "all is free", func() bool { return free(t, first) && r.turnstileAt(t) < 0 })
		if !late.Load() {
			return
		}
	}
	t.Error("the next in line is told only when the lock has been released")
}
