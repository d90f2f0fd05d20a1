package multilock_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// joinLease is renewed at a third of it.
const joinLease = 5 * time.Second

// Servers that keep nothing are restarted one after another, each after the one before has the hold again.
func TestAHoldOutlivesARollingRestartOfAllServers(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	m := multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...)
	hold := testlock.Take(t, m)
	r.everywhere(t)
	for round := range 2 {
		for i, s := range r.servers {
			s.Kill()
			s.Restart(t)
			testlock.Eventually(t, "all have it", func() bool {
				if err := hold.Err(); err != nil {
					t.Fatalf("round %d, server %d: %v", round, i, err)
				}
				return r.unanimous(t)
			})
		}
	}
	// And all know the token, whichever of them the next vote reaches.
	for i, c := range r.direct {
		if stored, err := c.HGet(bg, redMemory, "t").Int64(); err != nil || stored < hold.Token() {
			t.Errorf("server %d has stored %d, %v; the token is %d", i, stored, err, hold.Token())
		}
	}
	testlock.Unlock(t, hold)
	r.free(t)
	next := testlock.Take(t, m)
	if next.Token() <= hold.Token() {
		t.Errorf("%d after %d", next.Token(), hold.Token())
	}
	testlock.Unlock(t, next)
}

// A hold of a bare majority gets the last server, too, once that is there, and then outlives one of the others.
func TestAHoldJoinsAServerThatWasDownWhenItWasGranted(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	r.servers[0].Kill()
	hold := testlock.Take(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...))
	r.servers[0].Restart(t)
	r.everywhere(t)
	testlock.Must(t, r.direct[1].FlushAll(bg).Err())
	testlock.Must(t, hold.Extend(bg, time.Minute))
	testlock.Unlock(t, hold)
}

// Two of three forget it: others may have held it meanwhile, so it is lost, and takes no server again.
func TestAHoldThatAMajorityForgotJoinsNobody(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	ctx, hold := testlock.Lock(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...), testlock.Bounded(t))
	testlock.Eventually(t, "it is lost", func() bool { // whichever instant a renewal comes at, both have forgotten it
		for _, c := range r.direct[:2] {
			testlock.Must(t, c.FlushAll(bg).Err())
		}
		return ctx.Err() != nil
	})
	if n := r.held(t); n > 1 {
		t.Errorf("%d servers have it", n)
	}
	testlock.WantError(t, "Unlock", hold.Unlock(bg), rlock.ErrLost)
}

// A lock that an operator forced is not taken back, on no server, though a majority still has it as the renewal asks.
func TestAForcedServerIsNotJoined(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	hold := testlock.Take(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...))
	r.everywhere(t)
	script := redScript(t, "redlock_force.lua")
	testlock.Must(t, script.Run(bg, r.direct[0], []string{redKey, redMemory}, "lockline:q:{x}", 60000).Err())
	before := hold.Deadline()
	testlock.Eventually(t, "renewed twice", func() bool { return hold.Deadline().Sub(before) > joinLease/2 })
	if n := r.held(t); n != 2 {
		t.Errorf("%d servers have it", n)
	}
	testlock.Unlock(t, hold)
}

// The request to join is late: it comes when the hold is over, and must find that.
func TestARequestToJoinThatComesAfterUnlockTakesNothing(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	hold := testlock.Take(t, warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(joinLease))...)))
	r.everywhere(t)
	lock := scriptFile(t, "redlock_lock.lua")
	proxies[0].OnRequest(func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == lock {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	})
	testlock.Must(t, r.direct[0].FlushAll(bg).Err())
	testlock.Eventually(t, "it asks to join", func() bool { return len(proxies[0].Held()) > 0 })
	testlock.Unlock(t, hold)
	testlock.Eventually(t, "the release came first", func() bool { return r.held(t) == 0 && r.direct[0].HLen(bg, redMemory).Val() > 0 })
	for _, q := range proxies[0].Held() {
		testlock.Must(t, proxies[0].Release(q))
	}
	proxies[0].OnRequest(nil)
	if n := r.held(t); n != 0 {
		t.Errorf("%d servers have it after Unlock", n)
	}
}

// A hold that was extended is valid for long, whatever servers say of it now. It is joined only where a majority says that it has it.
func TestAnExtendedHoldJoinsNobodyBeforeAMajorityIsRenewed(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	hold := testlock.Take(t, warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(joinLease))...)))
	r.everywhere(t)
	testlock.Must(t, hold.Extend(bg, time.Hour))
	testlock.Eventually(t, "all have it for longer", func() bool {
		for _, c := range r.direct {
			if c.PTTL(bg, redKey).Val() < time.Minute {
				return false
			}
		}
		return true
	})
	var asked atomic.Int32
	renewal := scriptFile(t, "../internal/protocol/keep.lua")
	for _, p := range proxies[1:] {
		p.OnRequest(func(q *faultproxy.Request) faultproxy.Action {
			if q.Script() == renewal {
				return faultproxy.Hold
			}
			return faultproxy.Pass
		})
	}
	testlock.Must(t, r.direct[0].FlushAll(bg).Err())
	proxies[0].OnRequest(func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == renewal {
			asked.Add(1)
		}
		return faultproxy.Pass
	})
	testlock.Eventually(t, "two renewals found it gone", func() bool { return asked.Load() >= 2 })
	if n := r.held(t); n != 2 {
		t.Errorf("%d servers have it, where one forgot it and two have not answered", n)
	}
	for _, p := range proxies {
		p.OnRequest(nil)
		for _, q := range p.Held() {
			testlock.Must(t, p.Release(q))
		}
	}
	r.everywhere(t)
	testlock.Unlock(t, hold)
}

// Its renewals move no deadline, and have not failed for that.
func TestRenewalsOfAnExtendedHoldDoNotFail(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	failed := make(chan error, 1000)
	seen := testlock.Observer(func(e rlock.Event) {
		if e.Kind == rlock.RenewFailed {
			failed <- e.Err
		}
	})
	hold := testlock.Take(t, warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(joinLease/3), rlock.WithObserver(seen))...)))
	testlock.Must(t, hold.Extend(bg, time.Hour))
	var asked atomic.Int32
	renewal := scriptFile(t, "../internal/protocol/keep.lua")
	proxies[0].OnRequest(func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == renewal {
			asked.Add(1)
		}
		return faultproxy.Pass
	})
	testlock.Eventually(t, "renewed several times", func() bool { return asked.Load() >= 6 })
	testlock.Unlock(t, hold)
	if n := len(failed); n > 0 {
		t.Errorf("%d renewals failed: %v", n, <-failed)
	}
}
