package multilock_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/faultproxy"
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
	_, hold := redLock(t, m)
	for round := range 2 {
		for i, s := range r.servers {
			s.Kill()
			s.Restart(t)
			eventually(t, "all have it", func() bool {
				if err := hold.Err(); err != nil {
					t.Fatalf("round %d, server %d: %v", round, i, err)
				}
				return r.held(t) == 3
			})
		}
	}
	// And all know the token, whichever of them the next vote reaches.
	for i, c := range r.direct {
		if stored, err := c.HGet(bg, redMemory, "t").Int64(); err != nil || stored < hold.Token() {
			t.Errorf("server %d has stored %d, %v; the token is %d", i, stored, err, hold.Token())
		}
	}
	unlock(t, hold)
	eventually(t, "nobody has it", func() bool { return r.held(t) == 0 })
	_, next := redLock(t, m)
	if next.Token() <= hold.Token() {
		t.Errorf("%d after %d", next.Token(), hold.Token())
	}
	unlock(t, next)
}

// A hold of a bare majority gets the last server, too, once that is there, and then outlives one of the others.
func TestAHoldJoinsAServerThatWasDownWhenItWasGranted(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	r.servers[0].Kill()
	_, hold := redLock(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...))
	r.servers[0].Restart(t)
	eventually(t, "all have it", func() bool { return r.held(t) == 3 })
	must(t, r.direct[1].FlushAll(bg).Err())
	must(t, hold.Extend(bg, time.Minute))
	unlock(t, hold)
}

// Two of three forget it: others may have held it meanwhile, so it is lost, and takes no server again.
func TestAHoldThatAMajorityForgotJoinsNobody(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	ctx, hold := redLock(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...))
	eventually(t, "it is lost", func() bool { // whichever instant a renewal comes at, both have forgotten it
		for _, c := range r.direct[:2] {
			must(t, c.FlushAll(bg).Err())
		}
		return ctx.Err() != nil
	})
	if n := r.held(t); n > 1 {
		t.Errorf("%d servers have it", n)
	}
	if err := hold.Unlock(bg); !errors.Is(err, rlock.ErrLost) {
		t.Error(err)
	}
}

// A lock that an operator forced is not taken back, on no server, though a majority still has it as the renewal asks.
func TestAForcedServerIsNotJoined(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	_, hold := redLock(t, multilock.NewRedLock("x", r.client(t, rlock.WithWatchdogTimeout(joinLease))...))
	script := redScript(t, "redlock_force.lua")
	must(t, script.Run(bg, r.direct[0], []string{redKey, redMemory}, "lockline:q:{x}", 60000).Err())
	before := hold.Deadline()
	eventually(t, "renewed twice", func() bool { return hold.Deadline().Sub(before) > joinLease/2 })
	if n := r.held(t); n != 2 {
		t.Errorf("%d servers have it", n)
	}
	unlock(t, hold)
}

// The request to join is late: it comes when the hold is over, and must find that.
func TestARequestToJoinThatComesAfterUnlockTakesNothing(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	_, hold := redLock(t, warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(joinLease))...)))
	eventually(t, "all have it", func() bool { return r.held(t) == 3 })
	lock := scriptFile(t, "redlock_lock.lua")
	proxies[0].OnRequest(func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == lock {
			return faultproxy.Hold
		}
		return faultproxy.Pass
	})
	must(t, r.direct[0].FlushAll(bg).Err())
	eventually(t, "it asks to join", func() bool { return len(proxies[0].Held()) > 0 })
	unlock(t, hold)
	eventually(t, "the release came first", func() bool { return r.held(t) == 0 && r.direct[0].HLen(bg, redMemory).Val() > 0 })
	for _, q := range proxies[0].Held() {
		must(t, proxies[0].Release(q))
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
	_, hold := redLock(t, warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(joinLease))...)))
	eventually(t, "all have it", func() bool { return r.held(t) == 3 })
	must(t, hold.Extend(bg, time.Hour))
	eventually(t, "all have it for longer", func() bool {
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
	must(t, r.direct[0].FlushAll(bg).Err())
	proxies[0].OnRequest(func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == renewal {
			asked.Add(1)
		}
		return faultproxy.Pass
	})
	eventually(t, "two renewals found it gone", func() bool { return asked.Load() >= 2 })
	if n := r.held(t); n != 2 {
		t.Errorf("%d servers have it, where one forgot it and two have not answered", n)
	}
	for _, p := range proxies {
		p.OnRequest(nil)
		for _, q := range p.Held() {
			must(t, p.Release(q))
		}
	}
	eventually(t, "all have it", func() bool { return r.held(t) == 3 })
	unlock(t, hold)
}

// Its renewals move no deadline, and have not failed for that.
func TestRenewalsOfAnExtendedHoldDoNotFail(t *testing.T) {
	t.Parallel()
	r := startServers(t, 3)
	proxies, clients := r.proxied(t)
	failed := make(chan error, 1000)
	seen := observe(func(e rlock.Event) {
		if e.Kind == rlock.RenewFailed {
			failed <- e.Err
		}
	})
	_, hold := redLock(t, warmed(t, multilock.NewRedLock("x", sessions(t, clients, rlock.WithWatchdogTimeout(joinLease/3), rlock.WithObserver(seen))...)))
	must(t, hold.Extend(bg, time.Hour))
	var asked atomic.Int32
	renewal := scriptFile(t, "../internal/protocol/keep.lua")
	proxies[0].OnRequest(func(q *faultproxy.Request) faultproxy.Action {
		if q.Script() == renewal {
			asked.Add(1)
		}
		return faultproxy.Pass
	})
	eventually(t, "renewed several times", func() bool { return asked.Load() >= 6 })
	unlock(t, hold)
	if n := len(failed); n > 0 {
		t.Errorf("%d renewals failed: %v", n, <-failed)
	}
}
