package latch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// proxied are a latch through a proxy, and one beside it.
func proxied(t *testing.T, options ...rlock.SessionOption) (proxy *faultproxy.Proxy, l, other *latch.Latch) {
	t.Helper()
	server := testredis.Start(t)
	proxy = faultproxy.New(t, server.Addr)
	l, other = latchesOf(t, proxy.Client(t, testlock.Impatient), 1, options...)[0], latchesOf(t, server.Client(t), 1)[0]
	_, err := l.Count(bg) // from now on it knows the clock
	testlock.Must(t, err)
	testlock.Must(t, other.Wait(bg))
	return proxy, l, other
}

// first gives an action to the first request that runs a script.
func first(action faultproxy.Action) func(*faultproxy.Request) faultproxy.Action {
	var once sync.Once
	return func(r *faultproxy.Request) (a faultproxy.Action) {
		if r.Is("EVALSHA", "EVAL") {
			once.Do(func() { a = action })
		}
		return a
	}
}

func TestARequestWhoseReplyIsLostTakesEffectOnce(t *testing.T) {
	t.Parallel()
	proxy, l, other := proxied(t)
	// The server knows the scripts from now on.
	set(t, other, 1)
	countDown(t, other)
	_, err := other.Delete(bg)
	testlock.Must(t, err)
	for _, action := range []faultproxy.Action{faultproxy.CutReply, faultproxy.SwallowReply, faultproxy.DropAndCut, faultproxy.Swallow} {
		lose := func() { proxy.OnRequest(first(action)) }
		lose()
		set(t, l, 4)
		lose()
		countDown(t, l)
		wantCount(t, other, 3)
		ctx, cancel := context.WithCancel(bg)
		both := make(chan error, 1)
		lose()
		go func() { both <- l.CountDownAndWait(ctx) }()
		testlock.Eventually(t, "counted", func() bool { n, err := other.Count(bg); return err == nil && n == 2 })
		countDown(t, other)
		wantCount(t, other, 1)
		countDown(t, other)
		ended(t, both, nil)
		cancel()
		set(t, other, 1)
		lose()
		if deleted, err := l.Delete(bg); err != nil || !deleted {
			t.Errorf("Delete: %v, %v", deleted, err)
		}
	}
	proxy.OnRequest(nil)
}

func TestACountDownThatComesTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	proxy, l, other := proxied(t)
	replay := func(what string) {
		t.Helper()
		requests := proxy.Requests()
		for range 2 {
			for _, r := range requests {
				if r.Is("EVALSHA", "EVAL") {
					if _, err := proxy.Replay(r); err != nil && !errors.As(err, new(faultproxy.ReplyError)) {
						t.Fatalf("%s: %v", what, err)
					}
				}
			}
		}
	}
	proxy.Reset()
	set(t, l, 3)
	countDown(t, l)
	replay("in its run")
	wantCount(t, other, 2)
	countDown(t, other)
	countDown(t, other)
	wantCount(t, other, 0)
	replay("after its run")
	wantCount(t, other, 0)
	set(t, other, 5)
	replay("in the next run")
	wantCount(t, other, 5)
	if set, err := l.TrySet(bg, 1); err != nil || set {
		t.Errorf("TrySet: %v, %v", set, err)
	}
	if deleted, err := l.Delete(bg); err != nil || !deleted {
		t.Errorf("Delete: %v, %v", deleted, err)
	}
	countDown(t, l) // where none runs
	set(t, other, 7)
	replay("in another run")
	wantCount(t, other, 7)
}

func TestACountDownThatComesLateIsVoid(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	// Its requests are welcome for a second.
	l, other := latchesOf(t, proxy.Client(t, testlock.Impatient), 1, rlock.WithWatchdogTimeout(time.Second))[0], latchesOf(t, server.Client(t), 1)[0]
	for range 2 { // the second one is quick, so that the session knows the server's clock well
		_, err := l.Count(bg)
		testlock.Must(t, err)
	}
	set(t, other, 3)
	countDown(t, other)
	held := make(chan faultproxy.Request, 10)
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if !r.Is("EVALSHA") {
			return faultproxy.Pass
		}
		held <- *r
		return faultproxy.Hold
	})
	ctx, cancel := context.WithCancel(bg)
	counted := make(chan error, 1)
	go func() { counted <- l.CountDown(ctx) }()
	late := testlock.Receive(t, "sent", held)
	cancel()
	ended(t, counted, context.Canceled)
	proxy.OnRequest(nil)
	start, err := server.Client(t).Time(bg).Result()
	testlock.Must(t, err)
	rdb := server.Client(t)
	testlock.Eventually(t, "its time is over", func() bool {
		now, err := rdb.Time(bg).Result()
		testlock.Must(t, err)
		return now.Sub(start) > 2*time.Second
	})
	testlock.Must(t, proxy.Release(late))
	wantCount(t, other, 2)
}

func TestLostRepliesLeaveEveryCountExact(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	proxy := faultproxy.New(t, server.Addr)
	rdb := proxy.Client(t)
	ls := latchesOf(t, rdb, 4, rlock.WithBatching(-1))
	for _, l := range ls {
		_, err := l.Count(bg)
		testlock.Must(t, err)
	}
	replies := testlock.Lossy(proxy, rand.New(rand.NewPCG(1, 2)), func(r *faultproxy.Request) string {
		if !r.Is("EVALSHA", "EVAL") || len(r.Args) < 5 {
			return ""
		}
		return r.Args[4] // the id; of looks, the run
	})
	set(t, ls[0], 1000)
	var all sync.WaitGroup
	for _, l := range ls {
		all.Go(func() {
			for range 60 {
				if err := l.CountDown(bg); err != nil {
					t.Errorf("CountDown: %v", err)
				}
			}
		})
	}
	all.Wait()
	proxy.OnRequest(nil)
	wantCount(t, ls[0], 1000-4*60)
	if replies() < 20 {
		t.Errorf("only %d replies were lost", replies())
	}
}

func TestACanceledCallReturnsWhileRedisIsFrozen(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	ls := latchesOf(t, rdb, 2)
	l := ls[0]
	set(t, l, 5)
	ctx, cancel := context.WithCancel(bg)
	sleeping := wait(ctx, ls[1])
	listening(t, rdb, 1)
	server.Freeze()
	calls := map[string]func() error{
		"Wait":             func() error { return l.Wait(ctx) },
		"CountDown":        func() error { return l.CountDown(ctx) },
		"CountDownAndWait": func() error { return l.CountDownAndWait(ctx) },
		"Count":            func() error { _, err := l.Count(ctx); return err },
		"TrySet":           func() error { _, err := l.TrySet(ctx, 1); return err },
		"Delete":           func() error { _, err := l.Delete(ctx); return err },
		"Join":             func() error { _, _, err := l.Join(ctx, "p"); return err },
	}
	got := make(chan error, len(calls))
	for _, call := range calls {
		go func() { got <- call() }()
	}
	cancel()
	for range calls { // all while it is frozen
		testlock.WantError(t, "a call", testlock.Receive(t, "returned", got), context.Canceled)
	}
	ended(t, sleeping, context.Canceled)
	server.Thaw()
}

func TestAnOutageIsAnErrorAfterSomeTries(t *testing.T) {
	t.Parallel()
	proxy, l, _ := proxied(t)
	set(t, l, 2)
	proxy.Refuse(true)
	if err := l.CountDown(bg); err == nil {
		t.Error("CountDown in an outage returns nil")
	}
	if err := l.Wait(bg); err == nil {
		t.Error("Wait in an outage returns nil")
	}
	proxy.Refuse(false)
	if n, err := l.Count(bg); err != nil || n > 2 {
		t.Errorf("Count: %d, %v", n, err)
	}
}

func TestAWaiterThatCannotLookGivesUpAfterALease(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	l := latchesOf(t, proxy.Client(t, testlock.Impatient), 1, rlock.WithWatchdogTimeout(time.Second))[0]
	other := latchesOf(t, rdb, 1)[0]
	set(t, other, 1)
	done := waits(t, rdb, l)
	proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
		if r.Is("EVALSHA", "EVAL") {
			return faultproxy.DropAndCut
		}
		return faultproxy.Pass
	})
	proxy.CutAll() // so it looks as soon as it listens again
	if err := testlock.Receive(t, "the end of Wait", done); err == nil || errors.Is(err, latch.ErrGone) {
		t.Errorf("Wait: %v", err)
	}
	proxy.OnRequest(nil)
}

func TestAReplyThatComesTooLateSaysWhetherAnEarlierCopyRan(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 1)
	set(t, ls[0], 3)
	text, err := os.ReadFile("count.lua")
	testlock.Must(t, err)
	now, err := rdb.Time(bg).Result()
	testlock.Must(t, err)
	count := func(id string, deadline time.Time) string {
		t.Helper()
		reply, err := rdb.Eval(bg, string(text), []string{key}, id, deadline.UnixMicro(), key).Text()
		testlock.Must(t, err)
		return reply[:1]
	}
	for _, c := range []struct {
		id       string
		deadline time.Time
		want     string
	}{
		{"late", now.Add(-time.Second), "V"},
		{"void", time.UnixMicro(0), "V"},
		{"too late to tell", now.Add(-time.Minute), "U"},
		{"in time", now.Add(time.Minute), "C"},
		{"in time", now.Add(-time.Minute), "C"}, // as its first copy said
	} {
		if got := count(c.id, c.deadline); got != c.want {
			t.Errorf("%s: %s, want %s", c.id, got, c.want)
		}
	}
	wantCount(t, ls[0], 2)
}
