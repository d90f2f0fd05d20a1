package latch_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

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
