package election_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: election
func TestALostLeadershipEndsBeforeTheNextOneBegins(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := direct(t, w)
		ctx, l := lead(t, newElection(t, w.Client), "one")
		all := newLine(t)
		granted := testlock.Observer(func(e rlock.Event) { // called before Campaign returns
			// Err is checked, because the timer that ends the context may be late.
			if e.Type == rlock.EventAcquired && l.Err() == nil {
				t.Error("two lead at once")
			}
		})
		other := newElection(t, rdb, rlock.WithObserver(granted))
		all.join(other, 1, "two")
		time.Sleep(time.Second) // so that it has a subscription
		w.Net.BlackHole(true, true)
		time.Sleep(31 * time.Second)
		n := all.next()
		testlock.Receive(t, "the former leader's context ends", ctx.Done())
		testlock.WantError(t, "the context", context.Cause(ctx), rlock.ErrLost)
		if n.Token() <= l.Token() {
			t.Errorf("token %d after %d", n.Token(), l.Token())
		}
		wantLeader(t, other, n.Token(), "two")
		w.Net.BlackHole(false, false)
		testlock.WantError(t, "Proclaim", l.Proclaim(bg, "late"), rlock.ErrLost)
		testlock.WantError(t, "Resign", l.Resign(bg), rlock.ErrLost)
		wantLeader(t, other, n.Token(), "two")
		resign(t, n.Leadership)
	})
}

// Proves: election
func TestAForcedLeadershipIsNotShownAndItsNextProclaimFindsOut(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		e := election.New(s, "x")
		ctx, l := lead(t, e, "one")
		testlock.ForceUnlock(t, fairlock.New(s, "x"))
		if !w.Client.HExists(bg, lockKey, "leader").Val() {
			t.Error("there is no value that must not be shown")
		}
		wantLeader(t, e, 0, "")
		testlock.WantError(t, "Proclaim", l.Proclaim(bg, "late"), rlock.ErrLost)
		wantLeader(t, e, 0, "")
		if ctx.Err() == nil {
			t.Error("the context goes on")
		}
		testlock.WantError(t, "Resign", l.Resign(bg), rlock.ErrLost)
	})
}

// The second leader has the lock, and the request that stores its value is in flight. The value of the first
// leader must not be shown as that of the second. Proves: election
func TestAValueIsNotShownUnderTheNextLeadersGrant(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := direct(t, w)
		first, slow := newElection(t, rdb), testlock.NewSession(t, w.Client)
		_, l := lead(t, first, "one")
		stored := rdb.HGet(bg, lockKey, "leader").Val()
		all := newLine(t)
		all.join(election.New(slow, "x"), 1, "two")
		asked, release := make(chan struct{}, 10), make(chan struct{})
		on(t, w, "proclaim", func() faultproxy.Action {
			asked <- struct{}{}
			<-release
			return faultproxy.Pass
		})
		resign(t, l)
		testlock.Receive(t, "the value is under way", asked)
		// This puts the first leader's value back, as if it could not be deleted.
		testlock.Must(t, rdb.HSet(bg, lockKey, "leader", stored).Err())
		wantLeader(t, first, 0, "")
		close(release)
		n := all.next()
		wantLeader(t, first, n.Token(), "two")
		resign(t, n.Leadership)
	})
}

// Proves: election
func TestLateAndRepeatedCopiesOfAProclaimChangeNothing(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := direct(t, w)
		s := testlock.NewSession(t, w.Client)
		e, watcher := election.New(s, "x"), newElection(t, rdb)
		_, l := lead(t, e, "0")
		for i := range 3 {
			testlock.Must(t, l.Proclaim(bg, fmt.Sprint(i+1)))
		}
		copies := requests(w.Net, kind, "proclaim")
		if len(copies) < 4 {
			t.Fatalf("%d requests", len(copies))
		}
		replay := func(want, value string, token int64) {
			t.Helper()
			for _, r := range copies {
				if reply, err := w.Net.Replay(r); err != nil || reply != want {
					t.Errorf("the reply to a late copy is %q, %v; want %q", reply, err, want)
				}
				wantLeader(t, watcher, token, value)
			}
		}
		replay("K", "3", l.Token())
		resign(t, l)
		replay("L", "", 0)
		_, next := lead(t, watcher, "next")
		replay("L", "next", next.Token())

		for _, r := range requests(w.Net, kind, "retract") { // a late copy of the first leader's request
			if _, err := w.Net.Replay(r); err != nil {
				t.Error(err)
			}
		}
		wantLeader(t, watcher, next.Token(), "next")
		resign(t, next)
	})
}

// Proves: election
func TestElectionsGoOnThroughLostRequestsAndReplies(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		sound := newElection(t, direct(t, w))
		seen := observe(t, sound)
		seen.seesAtLast(0, "")
		s := testlock.NewSession(t, w.Client)
		testlock.Warm(t, fairlock.New(s, "x"))
		lost := testlock.Lossy(w.Net, rand.New(rand.NewPCG(1, 2)), func(r *faultproxy.Request) string {
			k := kind(r)
			if k == "renew" || k == "" {
				return ""
			}
			return k
		})
		last := int64(0)
		for i := range 10 {
			_, l := lead(t, election.New(s, "x"), fmt.Sprint(i))
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			wantLeader(t, sound, last, fmt.Sprint(i))
			for v := range 5 {
				value := fmt.Sprint(i, v)
				testlock.Must(t, l.Proclaim(bg, value))
				wantLeader(t, sound, last, value)
				seen.seesAtLast(last, value)
			}
			resign(t, l)
			wantLeader(t, sound, 0, "")
		}
		if lost() == 0 {
			t.Error("no reply was lost")
		}
		w.Net.OnRequest(nil)
	})
}

// Redis has lost the value, for example in a failover.
// Proves: election
func TestAValueThatRedisLostIsStoredAgainByTheNextRenewal(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		_, l := lead(t, e, "one")
		seen := observe(t, e)
		seen.seesAtLast(l.Token(), "one")
		testlock.Must(t, l.Proclaim(bg, "two"))
		seen.seesAtLast(l.Token(), "two")
		testlock.Must(t, w.Client.HDel(bg, lockKey, "leader").Err())
		wantLeader(t, e, 0, "")
		time.Sleep(11 * time.Second) // renewals come after a third of a lease
		wantLeader(t, e, l.Token(), "two")
		if left := w.Client.PTTL(bg, lockKey).Val(); left <= 0 {
			t.Errorf("the hash expires in %v", left)
		}
		resign(t, l)
	})
}

// A full server renews the lock, but does not store the value.
// Proves: election
func TestAValueIsStoredAgainThoughItsRenewalsHaveFailedForALease(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		ctx, l := lead(t, e, "one")
		w.Server().SetPreHook(func(c *server.Peer, _ string, args ...string) bool {
			if len(args) == 0 || testlock.Script(args[0]) != "proclaim" {
				return false
			}
			c.WriteError("OOM command not allowed when used memory > 'maxmemory'.")
			return true
		})
		w.HDel(lockKey, "leader")
		time.Sleep(time.Minute) // longer than two leases
		wantLeader(t, e, 0, "")
		testlock.Must(t, ctx.Err())
		w.Server().SetPreHook(nil)
		time.Sleep(11 * time.Second)
		wantLeader(t, e, l.Token(), "one")
		resign(t, l)
	})
}

// A Proclaim ends without a reply, because its context was canceled. The next renewal stores the value
// nevertheless. Proves: election
func TestAValueWhoseProclaimGaveUpIsStoredByTheNextRenewal(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		_, l := lead(t, e, "one")
		ctx, cancel := context.WithCancel(bg)
		on(t, w, "proclaim", func() faultproxy.Action {
			cancel()
			return faultproxy.DropAndCut
		})
		testlock.WantError(t, "Proclaim", l.Proclaim(ctx, "two"), context.Canceled)
		w.Net.OnRequest(nil)
		time.Sleep(11 * time.Second)
		wantLeader(t, e, l.Token(), "two")
		resign(t, l)
	})
}

// Proves: election
func TestEachCallReturnsWhenItsContextEndsThoughRedisIsFrozen(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := w.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Hour }) // no timeout
		e := newElection(t, rdb)
		_, l := lead(t, e, "one")
		w.Net.Freeze()
		calls := map[string]func(ctx context.Context) error{
			"Campaign": func(ctx context.Context) error { _, _, err := e.Campaign(ctx, "two"); return err },
			"Leader":   func(ctx context.Context) error { _, _, err := e.Leader(ctx); return err },
			"Inspect":  func(ctx context.Context) error { _, err := e.Inspect(ctx); return err },
			"Proclaim": func(ctx context.Context) error { return l.Proclaim(ctx, "three") },
			"Observe": func(ctx context.Context) (ended error) {
				for _, err := range e.Observe(ctx) {
					ended = err
				}
				return ended
			},
			"Resign": l.Resign,
		}
		for _, what := range []string{"Campaign", "Leader", "Inspect", "Proclaim", "Observe", "Resign"} {
			ctx, cancel := context.WithTimeout(bg, 50*time.Millisecond)
			start := time.Now()
			testlock.WantError(t, what, calls[what](ctx), context.DeadlineExceeded)
			if took := time.Since(start); took > time.Second {
				t.Errorf("%s returned after %v", what, took)
			}
			cancel()
		}
		testlock.WantError(t, "Err", l.Err(), rlock.ErrNotHeld)
		w.Net.Thaw()
		_, next := lead(t, e, "four") // the leadership from before the freeze is released
		resign(t, next)
		testlock.OnlyTokens(t, rdb)
	})
}

func TestACandidateWhoseFirstValueMeetsAnOutageLeadsAfterIt(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		refused := make(chan struct{}, 100)
		left := 10
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if kind(r) == "proclaim" && left > 0 {
				left--
				refused <- struct{}{}
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		e := election.New(s, "x")
		_, l := lead(t, e, "one")
		if len(refused) != 10 {
			t.Errorf("%d requests were lost", len(refused))
		}
		w.Net.OnRequest(nil)
		wantLeader(t, e, l.Token(), "one")
		resign(t, l)
	})
}

// Proves: election
func TestACandidateWhoseFirstValueCannotBeStoredGivesTheLockBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		ctx, cancel := context.WithCancel(bg)
		on(t, w, "proclaim", func() faultproxy.Action {
			cancel()
			return faultproxy.DropAndCut
		})
		_, l, err := election.New(s, "x").Campaign(ctx, "one")
		testlock.WantError(t, "Campaign", err, context.Canceled)
		if l != nil {
			t.Error("it has a leadership")
		}
		_, next := lead(t, newElection(t, direct(t, w)), "two") // before the lease has ended
		resign(t, next)
		w.Net.OnRequest(nil)
	})
}

// The value of a candidate is stored, but the reply is lost, and the candidate gives up. The leases of this
// test are long, so the value must disappear because the candidate releases the lock. Proves: election
func TestACandidateThatGivesUpWhileItsValueIsStoredIsNotShownForLong(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		long := rlock.WithWatchdogTimeout(time.Hour)
		s := testlock.NewSession(t, w.Client, long)
		sound := newElection(t, direct(t, w), long)
		_, l := lead(t, sound, "zero") // now the server has the scripts
		resign(t, l)
		seen := observe(t, sound)
		seen.seesAtLast(0, "")
		on(t, w, "proclaim", func() faultproxy.Action {
			return faultproxy.SwallowReply
		})
		ctx, cancel := context.WithCancel(bg)
		failed := make(chan error, 1)
		go func() {
			_, _, err := election.New(s, "x").Campaign(ctx, "one")
			failed <- err
		}()
		if got := seen.sees(); got.Value != "one" {
			t.Errorf("%+v", got)
		}
		cancel()
		testlock.WantError(t, "Campaign", testlock.Receive(t, "it gives up", failed), context.Canceled)
		seen.seesAtLast(0, "")
		w.Net.OnRequest(nil)
	})
}

func TestACandidateThatLosesTheLockBeforeItLeadsCampaignsOn(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := direct(t, w)
		s := testlock.NewSession(t, w.Client)
		var once atomic.Bool
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if kind(r) == "proclaim" && once.CompareAndSwap(false, true) {
				if err := rdb.Del(bg, lockKey).Err(); err != nil {
					t.Error(err)
				}
			}
			return faultproxy.Pass
		})
		e := election.New(s, "x")
		ctx, l := lead(t, e, "one")
		if ctx.Err() != nil || l.Err() != nil {
			t.Errorf("it leads no more: %v", l.Err())
		}
		wantLeader(t, e, l.Token(), "one")
		resign(t, l)
		if !once.Load() {
			t.Error("it lost nothing")
		}
	})
}

func TestAValueWhoseReplyComesWhenTheLeaseIsOverMakesNoLeader(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		client := w.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Minute })
		e := newElection(t, client, rlock.WithWatchdogTimeout(3*time.Second))
		_, before := lead(t, e, "zero") // now the server has the scripts
		resign(t, before)
		var stored, late atomic.Bool
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			switch {
			case kind(r) == "proclaim":
				stored.Store(true)
			case kind(r) == "renew" && stored.Load() && !late.Load():
				return faultproxy.Swallow // so that the lease is not renewed
			}
			return faultproxy.Pass
		})
		w.Net.OnReply(func(r faultproxy.Request) {
			if kind(&r) == "proclaim" && !late.Load() {
				time.Sleep(4 * time.Second)
				late.Store(true)
			}
		})
		ctx, l := lead(t, e, "one")
		if !late.Load() || ctx.Err() != nil || l.Err() != nil {
			t.Errorf("the reply came late: %t; it leads no more: %v, %v", late.Load(), ctx.Err(), l.Err())
		}
		wantLeader(t, e, l.Token(), "one")
		resign(t, l)
	})
}

// While a slot moves, a Cluster refuses requests for several keys if some of them do not exist. A lock
// without waiters has no keys of the queue.
func TestRequestsForTheValueNameTheHashAlone(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		_, l := lead(t, e, "one")
		wantLeader(t, e, l.Token(), "one")
		resign(t, l)
		for _, name := range []string{"proclaim", "leader", "retract"} {
			all := requests(w.Net, kind, name)
			for _, r := range all {
				if r.Args[2] != "1" || r.Args[3] != lockKey {
					t.Errorf("%s names %s keys, the first is %q", name, r.Args[2], r.Args[3])
				}
			}
			if len(all) == 0 {
				t.Errorf("no request runs %s", name)
			}
		}
	})
}
