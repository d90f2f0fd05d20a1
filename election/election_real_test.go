package election_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/rlock"
)

// Proves: rights
func TestTheDocumentedRightsSufficeForElections(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := testlock.DocumentedUser(t, server)
	e := newElection(t, rdb)
	w := observe(t, e)
	w.seesAtLast(0, "")
	_, l := lead(t, e, "one")
	w.seesAtLast(l.Token(), "one")
	binary := strings.Repeat("\x00 \xff\n", 1000)
	testlock.Must(t, l.Proclaim(bg, binary))
	w.seesAtLast(l.Token(), binary)
	if n := candidates(t, e); n != 1 {
		t.Errorf("%d campaign", n)
	}
	resign(t, l)
	w.seesAtLast(0, "")
}

func TestAnObserverWithoutTheRightToLookEndsWithTheError(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := testlock.User(t, server, "blind", "+@all", "~other:*", "&*")
	var all []error
	for _, err := range newElection(t, rdb).Observe(testlock.Bounded(t)) {
		all = append(all, err)
	}
	if len(all) != 1 || !strings.Contains(all[0].Error(), "permissions") {
		t.Errorf("it yielded %v", all)
	}
	if _, _, err := newElection(t, rdb).Leader(bg); err == nil {
		t.Error("Leader says nothing")
	}
}

// Proves: election
func TestTwentyCandidatesInTwentySessionsLeadInTheOrderInWhichTheyCame(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	watcher := newElection(t, rdb)
	seen := observe(t, watcher)
	seen.seesAtLast(0, "")
	all := newLine(t)
	for i := range 20 {
		all.join(newElection(t, rdb), i, fmt.Sprint("node ", i))
	}
	last := int64(0)
	for i := range 20 {
		n := all.next()
		if n.who != i || n.Token() <= last || n.Err() != nil || n.ctx.Err() != nil {
			t.Errorf("leader %d is candidate %d, token %d after %d, %v", i, n.who, n.Token(), last, n.Err())
		}
		last = n.Token()
		wantLeader(t, watcher, last, fmt.Sprint("node ", i))
		seen.seesAtLast(last, fmt.Sprint("node ", i))
		resign(t, n.Leadership)
	}
	seen.seesAtLast(0, "")
}

// Proves: election
func TestAForgottenLeadershipEnds(t *testing.T) {
	t.Parallel()
	rdb := testlock.Shared(t)
	e := newElection(t, rdb, rlock.WithWatchdogTimeout(5*time.Second))
	token := func() int64 {
		_, l, err := e.Campaign(testlock.Bounded(t), "forgotten")
		testlock.Must(t, err)
		return l.Token()
	}()
	looks := 0
	testlock.Eventually(t, "it ends", func() bool {
		if looks++; looks%50 == 1 {
			runtime.GC()
		}
		_, ok, err := e.Leader(bg)
		testlock.Must(t, err)
		return !ok
	})
	_, l := lead(t, newElection(t, rdb), "next")
	if l.Token() <= token {
		t.Errorf("token %d after %d", l.Token(), token)
	}
	resign(t, l)
}
