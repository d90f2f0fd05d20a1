package election_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: election
func TestAnObserverSeesThePresentLeaderAndThenEachChange(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		early := observe(t, newElection(t, w.Client))
		if l := early.sees(); !l.None() || l != (election.Leader{}) {
			t.Errorf("before anybody leads: %+v", l)
		}
		_, l := lead(t, e, "one")
		late := observe(t, newElection(t, w.Client))
		want := func(token int64, value string) {
			t.Helper()
			for _, seen := range []*watch{early, late} {
				if got := seen.sees(); got.Token != token || got.Value != value ||
					got.None() != (token == 0) {
					t.Errorf("%+v, want token %d, %q", got, token, value)
				}
			}
		}
		want(l.Token(), "one")
		testlock.Must(t, l.Proclaim(bg, "two"))
		want(l.Token(), "two")
		resign(t, l)
		want(0, "")
		_, next := lead(t, e, "three")
		want(next.Token(), "three")
		resign(t, next)
		want(0, "")
	})
}

// The observer sends one request for each of ten changes. Before that, it sends one at the beginning, perhaps
// another one with the text of the script, and one after it has subscribed. Proves: election
func TestAnObserverAsksOnlyWhenItIsTold(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		rdb := direct(t, w)
		_, l := lead(t, newElection(t, rdb), "0")
		seen := observe(t, election.New(s, "x"))
		seen.seesAtLast(l.Token(), "0")
		time.Sleep(time.Second)
		for i := range 10 {
			time.Sleep(time.Second) // time for a request that should not be sent
			testlock.Must(t, l.Proclaim(bg, fmt.Sprint(i+1)))
			seen.seesAtLast(l.Token(), fmt.Sprint(i+1))
		}
		if n := len(requests(w.Net, kind, "leader")); n > 13 {
			t.Errorf("%d requests for 10 changes", n)
		}
		resign(t, l)
	})
}

// Proves: election
func TestAnObserverSeesEveryLeaderThroughCutConnections(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		seen := observe(t, newElection(t, w.Client))
		seen.seesAtLast(0, "")
		rdb := direct(t, w)
		last := int64(0)
		for i := range 6 {
			e := newElection(t, rdb)
			if i%2 == 1 {
				w.Net.CutAll()
			}
			if i == 3 { // elected while the observer has no connection
				w.Net.Refuse(true)
			}
			_, l := lead(t, e, fmt.Sprint(i))
			w.Net.Refuse(false)
			if l.Token() <= last {
				t.Errorf("token %d after %d", l.Token(), last)
			}
			last = l.Token()
			seen.seesAtLast(last, fmt.Sprint(i))
			resign(t, l)
		}
		seen.seesAtLast(0, "")
	})
}

// Proves: election
func TestAnObserverWaitsOutAnOutage(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		_, l := lead(t, newElection(t, direct(t, w)), "one")
		s := testlock.NewSession(t, w.Client)
		var lost atomic.Int32
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if kind(r) == "leader" && lost.Add(1) <= 10 { // more than the four copies of a request
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		if got := observe(t, election.New(s, "x")).sees(); got.Token != l.Token() {
			t.Errorf("%+v", got)
		}
		if lost.Load() <= 10 {
			t.Errorf("%d requests", lost.Load())
		}
		resign(t, l)
	})
}

// Proves: election
func TestAnObserverFindsALeaderGoneWhenItsLeaseEnds(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		rdb := direct(t, w)
		_, l := lead(t, newElection(t, w.Client), "one")
		seen := observe(t, newElection(t, rdb))
		seen.seesAtLast(l.Token(), "one")
		w.Net.Refuse(true) // so that no release is sent
		time.Sleep(31 * time.Second)
		seen.seesAtLast(0, "")
		testlock.WantError(t, "Err", l.Err(), rlock.ErrLost)
		w.Net.Refuse(false)
		time.Sleep(2 * time.Second) // go-redis dials once a second
	})
}

// Proves: election
func TestAnObserverThatLeavesItsLoopLeavesNoSubscription(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var led *election.Leadership
		for l, err := range newElection(t, w.Client).Observe(bg) {
			testlock.Must(t, err)
			if l.None() {
				_, led = lead(t, newElection(t, w.Client), "one")
				continue
			}
			if n := w.Client.PubSubNumSub(bg, lockKey).Val()[lockKey]; n != 1 {
				t.Errorf("%d subscriptions", n)
			}
			break
		}
		resign(t, led)
		testlock.Eventually(t, "no subscription is left", func() bool {
			return w.Client.PubSubNumSub(bg, lockKey).Val()[lockKey] == 0
		})
	})
}

// Redis has lost its data, and an old leadership is back. It must not be shown.
// Proves: election
func TestATokenThatGoesBackIsNotShown(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		e := newElection(t, w.Client)
		seen := observe(t, e)
		seen.seesAtLast(0, "")
		_, l := lead(t, e, "one")
		seen.seesAtLast(l.Token(), "one")
		const old = "7a2d:1"
		testlock.Must(t, w.Client.Del(bg, lockKey).Err())
		later := time.Now().Add(time.Hour).UnixMicro()
		testlock.Must(t, w.Client.HSet(bg, lockKey, "owner", old, "token", "5", "count", "1", "change", "0",
			"ends", later, "lives", later, "leader", old+" 5 9 old").Err())
		testlock.Must(t, w.Client.Publish(bg, lockKey, "").Err())
		if got := seen.sees(); !got.None() {
			t.Errorf("%+v", got)
		}
		wantLeader(t, e, 5, "old") // Leader returns the state of Redis
		testlock.Must(t, w.Client.Del(bg, lockKey).Err())
		testlock.WantError(t, "Resign", l.Resign(bg), rlock.ErrLost)
	})
}

// Proves: panics
func TestAnObserverWhoseClientPanicsEndsWithThat(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		w.Client.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
			if name := cmds[0].Name(); name == "evalsha" || name == "eval" {
				panic("on purpose")
			}
			return next()
		}))
		got := testlock.Receive(t, "an error", observe(t, newElection(t, w.Client)).seen)
		if got.err == nil || !strings.Contains(got.err.Error(), "on purpose") {
			t.Errorf("%v, %v", got.leader, got.err)
		}
	})
}

// An endpoint has moved. The requests of the observer reach the new server at once. Its subscription stays at
// the old server, which is still running. Proves: election
func TestAnObserverFollowsAnEndpointThatWasMoved(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		seen := observe(t, newElection(t, w.Client))
		seen.seesAtLast(0, "")
		time.Sleep(time.Second) // so that it has a subscription
		next := testlock.NewWire(t)
		w.Net.LeadTo(next.Dial)
		w.Net.CutRequests()
		time.Sleep(31 * time.Second) // it reads the leader once in each lease
		_, l := lead(t, newElection(t, next.Client), "one")
		start := time.Now()
		seen.seesAtLast(l.Token(), "one")
		if took := time.Since(start); took > time.Second {
			t.Errorf("it was told after %v", took)
		}
		resign(t, l)
	})
}
