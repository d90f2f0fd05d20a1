package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
)

// topOperator is an operator as lockline top has it.
func topOperator(t *testing.T, rdb redis.UniversalClient, shared bool) *operator {
	t.Helper()
	o := &operator{rdb: rdb, prefix: "lockline", kinds: allKinds, latches: !shared, redisson: shared}
	if shared {
		o.kinds = redissonKinds
	}
	var err error
	o.session, err = o.newSession()
	testlock.Must(t, err)
	t.Cleanup(func() { closeSession(o.session) })
	return o
}

// counter counts what a client sends.
type counter struct {
	mu                        sync.Mutex // guards the rest
	scans, scripts, pipelines int
}

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.mu.Lock()
		c.pipelines++
		c.mu.Unlock()
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

func (c *counter) count(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		switch cmd.Name() {
		case "scan":
			c.scans++
		case "evalsha":
			c.scripts++
		}
	}
}

func TestTopAsksOnlyAboutLocksWhosePlaceOrRowNeedsIt(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	const locks, rows, queues = 60, 17, 3
	for i := range locks {
		take(t, fairlock.New(session, fmt.Sprintf("lock %02d", i)))
	}
	for i := range queues {
		wait(t, fairlock.New(testlock.NewSession(t, testlock.Client(t, m.Addr())), fmt.Sprintf("lock %02d", locks-1-i)))
	}
	rdb := testlock.Client(t, m.Addr())
	o := topOperator(t, rdb, false)
	if s := o.sample(t.Context(), wish{pattern: "*", by: byLease}); s.err != nil { // the server knows the script from here on
		t.Fatal(s.err)
	}
	counts := &counter{}
	rdb.AddHook(counts)
	for _, want := range []struct {
		wish
		scripts int
	}{
		{wish{pattern: "*", by: byName, rows: rows}, rows},
		{wish{pattern: "*", by: byName, from: 50, rows: rows}, 10},
		{wish{pattern: "*", by: byWaiting, rows: rows}, rows},
		{wish{pattern: "*", by: byFirst, from: 20, rows: rows}, rows + queues},
		{wish{pattern: "*", by: byLease, rows: rows}, locks},
		{wish{pattern: "*", by: byChanges, rows: rows}, locks},
		{wish{pattern: "lock 0*", by: byChanges, rows: rows}, 10},
		{wish{pattern: "*", filter: "lock 0", by: byLease, rows: rows}, 10},
		{wish{pattern: "*", filter: "none", by: byWaiting, rows: rows}, 0},
		{wish{lock: found{rlock.KindFair, "lock 07"}}, 1},
	} {
		counts.scans, counts.scripts = 0, 0
		s := o.sample(t.Context(), want.wish)
		looked := 0
		for _, r := range s.rows {
			if r.state != nil {
				looked++
			}
		}
		scans := 1
		if want.lock.name != "" {
			scans, looked = 0, 1
		} else if want.pattern == "*" && len(s.rows) != locks {
			t.Errorf("%+v: %d rows", want.wish, len(s.rows))
		}
		if s.err != nil || counts.scripts != want.scripts || looked != want.scripts || counts.scans != scans {
			t.Errorf("%+v: %d scripts, %d locks were looked at, want %d; %d SCANs; %v", want.wish, counts.scripts, looked, want.scripts, counts.scans, s.err)
		}
	}
	testlock.Eventually(t, "requests share pipelines", func() bool { // not while the processor was not to be had
		o.sample(t.Context(), wish{pattern: "*", by: byLease, rows: rows})
		return counts.pipelines > 0
	})
	t.Logf("%d pipelines", counts.pipelines)
}

func TestTopShowsTheLocksThatLsLists(t *testing.T) {
	m := theirRedis(t)
	rdb := testlock.Client(t, m.Addr())
	session := testlock.NewSession(t, rdb, rlock.WithLabel("till 3"))
	for _, name := range awkward()[:40] {
		take(t, rlock.New(session, name))
		take(t, fairlock.New(session, name))
	}
	take(t, multilock.NewRedLock("ledger", session))
	wait(t, fairlock.New(testlock.NewSession(t, rdb), awkward()[7]))
	wait(t, rlock.New(testlock.NewSession(t, rdb), awkward()[8]))
	testlock.Must(t, rdb.Set(t.Context(), "lockline:r:{text}", "1", 0).Err())
	testlock.Must(t, rdb.HSet(t.Context(), "lockline:zz:{newer}", "owner", "1").Err())
	testlock.Must(t, rdb.ZAdd(t.Context(), "lockline:f:{dead holder}:q", redis.Z{Score: 1, Member: "s:1"}).Err())
	testlock.Must(t, rdb.HSet(t.Context(), "lockline:l:{latch}", "n", "1").Err())

	o := topOperator(t, rdb, false)
	listed, err := o.list(t.Context(), "*")
	testlock.Must(t, err)
	say := func(s lockState) string {
		holder := party{}
		if s.Holder != nil {
			holder = *s.Holder
		}
		return fmt.Sprintf("%q %s %v %v %d %d %s", s.Name, s.Kind, s.Held, holder, s.Token, len(s.Queue), s.Error)
	}
	var want, got []string
	for _, s := range listed {
		want = append(want, say(s))
	}
	s := o.sample(t.Context(), wish{pattern: "*", by: byLease})
	testlock.Must(t, s.err)
	for _, r := range s.rows {
		got = append(got, say(*r.state))
		if r.state.Error == "" && (r.held != r.state.Held || r.queue != (len(r.state.Queue) > 0) || r.kind != r.state.Kind) {
			t.Errorf("a row of %+v: %+v", r.state, r)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(got) != 85 || !slices.Equal(got, want) {
		t.Errorf("%d rows, want %d; only there: %q", len(got), len(want), difference(got, want))
	}
	// What the keys alone say is the same. Those of a latch say nothing.
	for _, r := range o.sample(t.Context(), wish{pattern: "*", by: byName}).rows {
		i := slices.IndexFunc(s.rows, func(o topRow) bool { return o.found == r.found })
		if (r.state != nil) != (r.letter == protocol.Latch) || i < 0 || s.rows[i].state.Error == "" && r.parts != s.rows[i].parts {
			t.Errorf("unseen, it is %+v", r)
		}
	}
}

func TestTopOfLocksSharedWithRedisson(t *testing.T) {
	m := theirRedis(t)
	session := testlock.NewSession(t, testlock.Client(t, m.Addr()))
	hold := take(t, redisson.New(session, "held"))
	testlock.Must(t, take(t, redisson.New(session, "free again")).Unlock(t.Context()))
	o := topOperator(t, testlock.Client(t, m.Addr()), true)
	p := newPage("here", "*", time.Second)
	p.resize(80, 24)
	s := o.sample(t.Context(), p.wish())
	p.take(s)
	if s.err != nil || !slices.Equal(names(p), []string{"held"}) || p.rows[0].state.Token != hold.Token() || p.rows[0].waiting() >= 0 {
		t.Errorf("%+v, %v", p.rows, s.err)
	}
	if got := screenOf(p); got[1] != "1 lock, 1 held, 0 with waiters (1 not known), sorted by waiting" {
		t.Errorf("it shows %q", got)
	}
}

func TestTopShowsLatchesThatAreCountedDown(t *testing.T) {
	rdb := testlock.Embedded(t)
	o := topOperator(t, rdb, false)
	s := testlock.NewSession(t, rdb)
	for _, name := range []string{"a", "b", "over"} {
		_, err := latch.New(s, name).TrySet(t.Context(), 2)
		testlock.Must(t, err)
	}
	_, err := latch.New(s, "over").Delete(t.Context())
	testlock.Must(t, err)
	_, _, err = latch.New(s, "b").Join(t.Context(), "p")
	testlock.Must(t, err)
	got := o.sample(t.Context(), wish{pattern: "*", by: byName, rows: 1})
	testlock.Must(t, got.err)
	rows := arrange(got.rows, byLease, "")
	if len(rows) != 2 || rows[0].name != "b" {
		t.Fatalf("%+v", rows)
	}
	for i, want := range []string{"latch 2 p: ", "latch 2 "} {
		r := rows[i]
		if text := r.kind + " " + r.stateWord() + " " + r.holderText(); !strings.HasPrefix(text, want) || r.waiting() >= 0 || r.held || (r.lease() < 1<<62) != (i == 0) {
			t.Errorf("%q, %d waiters, held: %v, lease %d; want %q", text, r.waiting(), r.held, r.lease(), want)
		}
	}
	if about := aboutRow(rows[0])[1].String(); about != "count 2, parties: 1" {
		t.Errorf("%q", about)
	}
	one := o.sample(t.Context(), wish{lock: rows[0].found})
	if one.err != nil || one.state.Count != 2 || len(one.state.Holders) != 1 {
		t.Errorf("%+v", one)
	}
}
