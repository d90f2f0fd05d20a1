package election_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

func TestAnObserverSeesThePresentLeaderAndThenEachChange(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	e := election.New(testlock.NewSession(t, rdb), "x")
	early := observe(t, election.New(testlock.NewSession(t, rdb), "x"))
	if l := early.sees(); !l.None() || l != (election.Leader{}) {
		t.Errorf("before anybody leads: %+v", l)
	}
	_, l := lead(t, e, "one")
	late := observe(t, election.New(testlock.NewSession(t, rdb), "x"))
	want := func(token int64, value string) {
		t.Helper()
		for _, w := range []*watch{early, late} {
			if got := w.sees(); got.Token != token || got.Value != value || got.None() != (token == 0) {
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
}

// The observer asks once for each of ten changes, and before that at the beginning, in full if the server does not know
// the script, and when it is subscribed.
func TestAnObserverAsksOnlyWhenItIsTold(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := faultproxy.New(t, server.Addr)
	s := testlock.NewSession(t, p.Client(t))
	kind := kindOf(t, fairlock.New(s, "x"))
	rdb := server.Client(t)
	_, l := lead(t, election.New(testlock.NewSession(t, rdb), "x"), "0")
	w := observe(t, election.New(s, "x"))
	w.seesAtLast(l.Token(), "0")
	testlock.Eventually(t, "it is subscribed", func() bool { return len(requests(p, kind, "leader")) >= 2 })
	for i := range 10 {
		for range 100 { // time for it to ask, if it did
			testlock.Must(t, rdb.Ping(bg).Err())
		}
		testlock.Must(t, l.Proclaim(bg, fmt.Sprint(i+1)))
		w.seesAtLast(l.Token(), fmt.Sprint(i+1))
	}
	if n := len(requests(p, kind, "leader")); n > 13 {
		t.Errorf("%d requests for 10 changes", n)
	}
	resign(t, l)
}

func TestAnObserverSeesEveryLeaderThroughCutConnections(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := faultproxy.New(t, server.Addr)
	w := observe(t, election.New(testlock.NewSession(t, p.Client(t)), "x"))
	w.seesAtLast(0, "")
	rdb := server.Client(t)
	last := int64(0)
	for i := range 6 {
		e := election.New(testlock.NewSession(t, rdb), "x")
		if i%2 == 1 {
			p.CutAll()
		}
		if i == 3 { // it is elected while the observer is cut off
			p.Refuse(true)
		}
		_, l := lead(t, e, fmt.Sprint(i))
		p.Refuse(false)
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		w.seesAtLast(last, fmt.Sprint(i))
		resign(t, l)
	}
	w.seesAtLast(0, "")
}

func TestAnObserverWaitsOutAnOutage(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	_, l := lead(t, election.New(testlock.NewSession(t, server.Client(t)), "x"), "one")
	p := faultproxy.New(t, server.Addr)
	s := testlock.NewSession(t, p.Client(t))
	kind := kindOf(t, fairlock.New(s, "x"))
	var lost atomic.Int32
	p.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if kind(r) == "leader" && lost.Add(1) <= 10 { // a request is sent four times
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
}

func TestAnObserverFindsALeaderGoneWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	p := faultproxy.New(t, server.Addr)
	_, l := lead(t, election.New(testlock.NewSession(t, p.Client(t, testlock.Impatient), rlock.WithWatchdogTimeout(1500*time.Millisecond)), "x"), "one")
	w := observe(t, election.New(testlock.NewSession(t, rdb), "x"))
	w.seesAtLast(l.Token(), "one")
	p.Refuse(true) // nobody says that it ends
	w.seesAtLast(0, "")
	testlock.Eventually(t, "it knows", func() bool { return l.Err() != nil })
	p.Refuse(false)
}

func TestAnObserverEndsWithItsContextAlsoWhileRedisIsFrozen(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := faultproxy.New(t, server.Addr)
	rdb := p.Client(t, func(o *redis.Options) { o.ReadTimeout = time.Hour }) // no time-out ends it
	e := election.New(testlock.NewSession(t, rdb), "x")
	for _, frozen := range []bool{false, true} {
		if frozen {
			server.Freeze()
		}
		p.Reset()
		ctx, cancel := context.WithCancel(bg)
		ended := make(chan error, 1)
		seen := make(chan election.Leader, 1)
		go func() {
			for l, err := range e.Observe(ctx) {
				if err != nil {
					ended <- err
				} else {
					seen <- l
				}
			}
		}()
		if frozen {
			testlock.Eventually(t, "it asks, or greets the server first", func() bool { return p.Count("EVALSHA", "HELLO") > 0 })
		} else {
			testlock.Receive(t, "it begins", seen)
		}
		cancel()
		testlock.WantError(t, "Observe", testlock.Receive(t, "the end", ended), context.Canceled)
	}
	server.Thaw()
}

func TestAnObserverThatLeavesItsLoopLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	s := testlock.NewSession(t, rdb)
	for l, err := range election.New(s, "x").Observe(bg) {
		testlock.Must(t, err)
		if !l.None() {
			t.Errorf("%+v", l)
		}
		testlock.Eventually(t, "it is subscribed", func() bool { return rdb.PubSubNumSub(bg, lockKey).Val()[lockKey] == 1 })
		break
	}
	testlock.Eventually(t, "no subscription is left", func() bool { return rdb.PubSubNumSub(bg, lockKey).Val()[lockKey] == 0 })
}

func TestAnObserverWithoutTheRightToLookEndsWithTheError(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := testlock.User(t, server, "blind", "+@all", "~other:*", "&*")
	var all []error
	for _, err := range election.New(testlock.NewSession(t, rdb), "x").Observe(testlock.Bounded(t)) {
		all = append(all, err)
	}
	if len(all) != 1 || !strings.Contains(all[0].Error(), "permissions") {
		t.Errorf("it yielded %v", all)
	}
	if _, _, err := election.New(testlock.NewSession(t, rdb), "x").Leader(bg); err == nil {
		t.Error("Leader says nothing")
	}
}

// A leadership that Redis has again, after it has lost its data, is not shown.
func TestATokenThatGoesBackIsNotShown(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	e := election.New(testlock.NewSession(t, rdb), "x")
	w := observe(t, e)
	w.seesAtLast(0, "")
	_, l := lead(t, e, "one")
	w.seesAtLast(l.Token(), "one")
	const old = "7a2d:1"
	testlock.Must(t, rdb.Del(bg, lockKey).Err())
	testlock.Must(t, rdb.HSet(bg, lockKey, old, "1", "t", "5").Err())
	testlock.Must(t, rdb.HSet(bg, metadataKey, "v", old+" 5 9 old").Err())
	testlock.Must(t, rdb.Publish(bg, lockKey, "").Err())
	if got := w.sees(); !got.None() {
		t.Errorf("%+v", got)
	}
	wantLeader(t, e, 5, "old") // the present one as Redis has it
	testlock.Must(t, rdb.Del(bg, lockKey).Err())
	testlock.WantError(t, "Resign", l.Resign(bg), rlock.ErrLost)
}
