package latch_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/script"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

func TestALatchOnARealServer(t *testing.T) {
	t.Parallel()
	for what, test := range semantics {
		t.Run(what, func(t *testing.T) {
			rdb := testlock.Shared(t)
			test(t, rdb, latchesOf(t, rdb, 3))
		})
	}
}

// The hash of a latch may remember many requests. So waiters must not read the whole hash each time.
func TestThoseThatWaitReadWhichLeaseEndsFirstOnce(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	l := latch.New(testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Minute)), "x")
	set(t, l, 3)
	_, p := join(t, l, "p")
	_, q := join(t, l, "q")
	testlock.Must(t, rdb.ConfigResetStat(bg).Err())
	for range 20 {
		ctx, cancel := context.WithTimeout(bg, 20*time.Millisecond)
		_ = l.Wait(ctx)
		cancel()
	}
	stats := rdb.Info(bg, "commandstats").Val()
	if !strings.Contains(stats, "cmdstat_hgetall:calls=1,") {
		t.Errorf("twenty waits have not read it once: %s", stats)
	}
	done := wait(bg, l)
	testlock.Must(t, rdb.ConfigResetStat(bg).Err())
	testlock.Must(t, p.Abandon(bg)) // makes a lease end sooner
	diedAs(t, "Wait", testlock.Receive(t, "told", done), "p")
	for range 20 {
		diedAs(t, "Wait", l.Wait(bg), "p")
	}
	if stats = rdb.Info(bg, "commandstats").Val(); !strings.Contains(stats, "cmdstat_hgetall:calls=1,") {
		t.Errorf("it is not read once to find a death: %s", stats)
	}
	testlock.Must(t, q.CountDown(bg))
}

// A full server must not let a living party die, and must not keep a party from counting or leaving.
func TestPartiesLiveCountAndLeaveOnAFullServer(t *testing.T) {
	t.Parallel()
	rdb := testredis.Start(t).Client(t)
	l := latchesOf(t, rdb, 1, rlock.WithWatchdogTimeout(5*time.Second))[0]
	session := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(time.Hour)) // too long to end in a test
	long, other := latch.New(session, "x"), latch.New(session, "other")
	run := func(script string, argv ...any) {
		t.Helper()
		testlock.Must(t, rdb.Eval(bg, script, []string{key}, argv...).Err())
	}
	late := time.Now().Add(time.Minute).UnixMicro()
	set(t, l, 7)
	ctx, lives := join(t, l, "lives")
	_, counts := join(t, l, "counts")
	_, abandons := join(t, long, "abandons")
	join(t, long, "closes")
	set(t, other, 1)
	_, last := join(t, other, "last")
	run(script.Text("latch/join"), "canceled:1", late, "canceled", 60000)

	testlock.Must(t, rdb.ConfigSet(bg, "maxmemory", "1").Err())
	for what, err := range everyChange(l) {
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 {
		before := rdb.HGet(bg, key, "p:lives").Val()
		testlock.Eventually(t, "renewed", func() bool { return rdb.HGet(bg, key, "p:lives").Val() != before })
	}
	run(script.Text("latch/leave"), "canceled:1", "canceled", late)
	run(script.Text("latch/leave"), "canceled:2", "canceled", late) // the join request has not arrived
	if st := inspect(t, l); len(st.Parties) != 4 || !rdb.HExists(bg, key, "i:canceled:2").Val() {
		t.Errorf("a canceled Join was not rolled back: %+v", st)
	}
	done := listening(t, rdb, l, 1)
	testlock.Must(t, counts.CountDown(bg))
	wantCount(t, l, 6)
	testlock.Must(t, abandons.Abandon(bg))
	diedAs(t, "Wait", testlock.Receive(t, "Abandon was noticed", done), "abandons")
	ends := listening(t, rdb, other, 1)
	testlock.Must(t, last.CountDown(bg))
	ended(t, ends, nil)
	testlock.Must(t, session.Close())
	for _, p := range inspect(t, l).Parties {
		if (p.Remaining > 0) != (p.Name == "lives") {
			t.Errorf("%+v", p)
		}
	}
	testlock.Must(t, ctx.Err())
	testlock.Must(t, lives.CountDown(bg))
	wantCount(t, l, 5)
}

// everyChange calls the methods of l that need more memory in Redis, and returns their errors.
func everyChange(l *latch.Latch) map[string]error {
	_, set := l.TrySet(bg, 1)
	_, _, joined := l.Join(bg, "new")
	_, deleted := l.Delete(bg)
	return map[string]error{"TrySet": set, "Join": joined, "Delete": deleted, "CountDown": l.CountDown(bg)}
}

func TestTheDocumentedRightsSuffice(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	admin := server.Client(t)
	user := testlock.DocumentedUser(t, server)
	ls := latchesOf(t, user, 2, rlock.WithWatchdogTimeout(5*time.Second))
	set(t, ls[0], 3)
	done := listening(t, admin, ls[1], 1)
	ctx, p := join(t, ls[0], "p")
	_, q := join(t, ls[0], "q")
	lease := func() string { return admin.HGet(bg, key, "p:p").Val() }
	first := lease()
	testlock.Eventually(t, "renewed", func() bool { return lease() != first })
	testlock.Must(t, ctx.Err())
	if st := inspect(t, ls[1]); len(st.Parties) != 2 {
		t.Errorf("%+v", st)
	}
	testlock.Must(t, q.Abandon(bg))
	diedAs(t, "Wait", testlock.Receive(t, "told", done), "q")
	testlock.Must(t, p.CountDown(bg))
	countDown(t, ls[0])
	countDown(t, ls[0])
	other := latch.New(testlock.NewSession(t, user), "y")
	set(t, other, 1)
	done = listening(t, admin, other, 1)
	wantDeleted(t, other, true)
	ended(t, done, latch.ErrDeleted)
	entries, err := admin.ACLLog(bg, 100).Result()
	testlock.Must(t, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			t.Errorf("refused: %s", e.Object)
		}
	}
}

// Proves: latch
func TestAWaitThatRacesTheLastCountDownNeitherFailsNorSleeps(t *testing.T) {
	t.Parallel()
	ls := latchesOf(t, testlock.Shared(t), 3)
	for range 100 {
		set(t, ls[0], 1)
		var racing sync.WaitGroup
		ctx := testlock.Bounded(t)
		for i := range 2 {
			racing.Go(func() {
				if err := ls[i+1].Wait(ctx); err != nil {
					t.Errorf("Wait: %v", err)
				}
			})
		}
		racing.Go(func() { countDown(t, ls[0]) })
		racing.Wait()
	}
}

// Proves: latch
func TestCountDownAndWaitWaitsForTheRunThatItCounted(t *testing.T) {
	t.Parallel()
	ls := latchesOf(t, testlock.Shared(t), 4)
	for range 30 {
		set(t, ls[0], 4)
		var all sync.WaitGroup
		ctx := testlock.Bounded(t)
		for _, l := range ls {
			all.Go(func() {
				if err := l.CountDownAndWait(ctx); err != nil {
					t.Errorf("CountDownAndWait: %v", err)
				}
			})
		}
		all.Wait()
		wantCount(t, ls[1], 0)
	}
}

// Proves: latch
func TestManyPartiesComeAndGo(t *testing.T) {
	t.Parallel()
	ls := latchesOf(t, testlock.Shared(t), 4)
	const n = 40
	for range 3 {
		set(t, ls[0], n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				_, p, err := ls[i%4].Join(bg, strconv.Itoa(i))
				if err == nil {
					err = p.CountDown(bg)
				}
				if err != nil {
					t.Error(err)
				}
			})
			if i%8 == 0 {
				all.Go(func() {
					if err := ls[i%4].Wait(testlock.Bounded(t)); err != nil {
						t.Errorf("Wait: %v", err)
					}
				})
			}
		}
		all.Wait()
		wantCount(t, ls[1], 0)
	}
}
