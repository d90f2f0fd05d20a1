package latch_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

func join(t testing.TB, l *latch.Latch, name string) (context.Context, *latch.Party) {
	t.Helper()
	ctx, p, err := l.Join(bg, name)
	testlock.Must(t, err)
	return ctx, p
}

// diedAs checks that err names the party.
func diedAs(t testing.TB, what string, err error, party string) {
	t.Helper()
	var died *latch.PartyDiedError
	if !errors.Is(err, latch.ErrPartyDied) || !errors.As(err, &died) || died.Party != party || died.Name != "x" {
		t.Errorf("%s: %v, want that %s died", what, err, party)
	}
}

func TestAPartyCountsOnce(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 2)
	set(t, ls[0], 2)
	ctx, p := join(t, ls[0], "p")
	if p.Name() != "p" || ctx.Err() != nil {
		t.Errorf("%s: %v", p.Name(), ctx.Err())
	}
	wantCount(t, ls[1], 2)
	for range 3 {
		testlock.Must(t, p.CountDown(bg))
		testlock.Must(t, p.Abandon(bg))
	}
	if context.Cause(ctx) != context.Canceled {
		t.Errorf("after CountDown its context has the cause %v", context.Cause(ctx))
	}
	wantCount(t, ls[1], 1)
	done := waits(t, rdb, ls[1])
	_, q := join(t, ls[0], "p")
	testlock.Must(t, q.CountDown(bg))
	ended(t, done, nil)
	testlock.Must(t, p.CountDown(bg))
	wantCount(t, ls[1], 0)
}

func TestAPartyCountsOnceThoughRepliesAreLost(t *testing.T) {
	t.Parallel()
	proxy, l, other := proxied(t)
	set(t, other, 3)
	_, warm := join(t, other, "warm")
	testlock.Must(t, warm.CountDown(bg))
	for i, action := range []faultproxy.Action{faultproxy.CutReply, faultproxy.DropAndCut} {
		proxy.Reset()
		proxy.OnRequest(first(action))
		ctx, p := join(t, l, "p")
		proxy.OnRequest(first(action))
		testlock.Must(t, p.CountDown(bg))
		if context.Cause(ctx) != context.Canceled {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		wantCount(t, other, 1-i)
		for _, r := range proxy.Requests() {
			if r.Is("EVALSHA") {
				_, err := proxy.Replay(r)
				testlock.Must(t, err)
			}
		}
		wantCount(t, other, 1-i)
	}
	proxy.OnRequest(nil)
	set(t, other, 1)
	for _, r := range proxy.Requests() { // copies that come in the next run
		if r.Is("EVALSHA") {
			_, err := proxy.Replay(r)
			testlock.Must(t, err)
		}
	}
	_, p := join(t, other, "free")
	testlock.Must(t, p.CountDown(bg))
}

func TestWaitersLearnOfADeadPartyAtTheEndOfItsLease(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	rdb := server.Client(t)
	proxy := faultproxy.New(t, server.Addr)
	const lease = 3 * time.Second
	doomed := latchesOf(t, proxy.Client(t, testlock.Impatient), 1, rlock.WithWatchdogTimeout(lease))[0]
	ls := latchesOf(t, rdb, 2)
	set(t, ls[0], 2)
	before := waits(t, rdb, ls[0]) // learns of the lease by message
	ctx, p := join(t, doomed, "doomed")
	after := waits(t, rdb, ls[1]) // learns of it as it looks
	both := make(chan error, 1)
	go func() { both <- ls[1].CountDownAndWait(bg) }()
	select {
	case err := <-before:
		t.Fatalf("Wait returned while the party lives: %v", err)
	case <-time.After(2 * lease): // it is renewed
	}
	testlock.Must(t, ctx.Err())
	proxy.Refuse(true)
	for _, done := range []<-chan error{before, after, both} {
		diedAs(t, "Wait", testlock.Receive(t, "told", done), "doomed")
	}
	testlock.Receive(t, "the party knows", ctx.Done())
	diedAs(t, "the cause", context.Cause(ctx), "doomed")
	diedAs(t, "the next Wait", ls[0].Wait(bg), "doomed")
	proxy.Refuse(false)
	testlock.Eventually(t, "it counts no more", func() bool {
		err := p.CountDown(bg)
		if err == nil {
			t.Fatal("a party that died has counted")
		}
		return errors.Is(err, latch.ErrPartyDied)
	})
	wantCount(t, ls[0], 1)
}

func TestAPartyIsRenewedForAsLongAsItLives(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		ls := latchesOf(t, w.Client, 2)
		set(t, ls[0], 1)
		ctx, p := join(t, ls[0], "p")
		done := wait(bg, ls[1])
		time.Sleep(30 * time.Minute)
		if ctx.Err() != nil || len(done) > 0 {
			t.Errorf("%v, %d have ended", context.Cause(ctx), len(done))
		}
		testlock.Must(t, p.CountDown(bg))
		ended(t, done, nil)
	})
}

func TestAWaiterLearnsOfADeathWithinMomentsAndWithoutPolling(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		l := latchesOf(t, w.Client, 1)[0]
		set(t, l, 1)
		s := testlock.NewSession(t, w.Client)
		_, _, err := latch.New(s, "x").Join(bg, "p")
		testlock.Must(t, err)
		done := wait(bg, l)
		time.Sleep(time.Second)
		start := time.Now()
		testlock.Must(t, w.Client.HSet(bg, key, "p:p", itoa(start.Add(20*time.Second).UnixMicro())+" another").Err()) // so it is renewed no more
		err = <-done
		diedAs(t, "Wait", err, "p")
		// It looks when the lease ends that it knows of, and again when that ends which it finds then.
		if took := time.Since(start); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func TestAbandonAndCloseTellWaitersAtOnce(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 1)
	for _, what := range []string{"Abandon", "Close"} {
		set(t, ls[0], 1)
		s, err := rlock.NewSession(rdb, rlock.WithLogger(testlock.Quiet), rlock.WithWatchdogTimeout(time.Hour)) // nobody waits for that to end
		testlock.Must(t, err)
		ctx, p, err := latch.New(s, "x").Join(bg, what)
		testlock.Must(t, err)
		done := waits(t, rdb, ls[0])
		leave := s.Close
		if what == "Abandon" {
			leave = func() error { return p.Abandon(bg) }
		}
		testlock.Must(t, leave())
		diedAs(t, "Wait", testlock.Receive(t, "told", done), what)
		testlock.Receive(t, "its context", ctx.Done())
		if what == "Close" {
			testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrClosed)
		}
		testlock.Must(t, s.Close())
		_, err = ls[0].Delete(bg)
		testlock.Must(t, err)
	}
}

func TestAPartyOfTheSameNameTakesOverFromADeadOne(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 2)
	set(t, ls[0], 1)
	first, p := join(t, ls[0], "p")
	if _, _, err := ls[1].Join(bg, "p"); !errors.Is(err, latch.ErrPartyExists) {
		t.Errorf("Join beside a living one: %v", err)
	}
	testlock.Must(t, p.Abandon(bg))
	diedAs(t, "the cause", context.Cause(first), "p")
	_, q := join(t, ls[1], "p")
	done := waits(t, rdb, ls[0])
	diedAs(t, "CountDown of the dead one", p.CountDown(bg), "p")
	wantCount(t, ls[0], 1)
	testlock.Must(t, q.CountDown(bg))
	ended(t, done, nil)
}

func TestThereAreNoMorePartiesThanCounts(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 1)
	l := ls[0]
	if _, _, err := l.Join(bg, "p"); !errors.Is(err, latch.ErrNoCount) {
		t.Errorf("Join where none is set: %v", err)
	}
	set(t, l, 2)
	_, p := join(t, l, "p")
	_, q := join(t, l, "q")
	if _, _, err := l.Join(bg, "r"); !errors.Is(err, latch.ErrNoCount) {
		t.Errorf("the third Join: %v", err)
	}
	testlock.Must(t, p.CountDown(bg))
	if _, _, err := l.Join(bg, "r"); !errors.Is(err, latch.ErrNoCount) {
		t.Errorf("Join where the last count is taken: %v", err)
	}
	testlock.Must(t, q.CountDown(bg))
	wantCount(t, l, 0)
}

func TestAPartyOfARunThatIsOverIsTold(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 1)
	s := testlock.NewSession(t, rdb, rlock.WithWatchdogTimeout(1500*time.Millisecond))
	l := latch.New(s, "x")
	for how, want := range map[string]error{"zero": nil, "deleted": latch.ErrDeleted, "lost": latch.ErrGone} {
		set(t, ls[0], 1)
		ctx, p := join(t, l, "p")
		switch how {
		case "zero":
			countDown(t, ls[0])
		case "deleted":
			_, err := ls[0].Delete(bg)
			testlock.Must(t, err)
		case "lost":
			testlock.Must(t, rdb.FlushAll(bg).Err())
		}
		testlock.Receive(t, "its context", ctx.Done())
		testlock.WantError(t, how, context.Cause(ctx), latch.ErrGone)
		testlock.WantError(t, how, p.CountDown(bg), want)
		_, _ = ls[0].Delete(bg)
	}
}

func TestAJoinThatWasCanceledLeavesNoParty(t *testing.T) {
	t.Parallel()
	proxy, l, other := proxied(t)
	set(t, other, 1)
	_, warm := join(t, other, "warm") // so that the server knows the scripts
	testlock.Must(t, warm.Abandon(bg))
	_, err := other.Delete(bg)
	testlock.Must(t, err)
	for what, action := range map[string]faultproxy.Action{"its reply is late": faultproxy.SwallowReply, "it comes late": faultproxy.Hold} {
		set(t, other, 1)
		sent := make(chan faultproxy.Request, 10) // copies, which all meet the fault
		left := make(chan struct{}, 10)           // one for each answer to the script that undoes it
		proxy.OnReply(func(r faultproxy.Request) {
			if r.Is("EVALSHA", "EVAL") && len(r.Args) == 8 && r.Args[5] == what {
				left <- struct{}{}
			}
		})
		proxy.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if !r.Is("EVALSHA", "EVAL") || len(r.Args) < 8 || r.Args[7] != what {
				return faultproxy.Pass
			}
			sent <- *r
			return action
		})
		ctx, cancel := context.WithCancel(bg)
		joined := make(chan error, 1)
		go func() { _, _, err := l.Join(ctx, what); joined <- err }()
		request := testlock.Receive(t, "sent", sent)
		cancel()
		ended(t, joined, context.Canceled)
		if action == faultproxy.Hold {
			testlock.Receive(t, "told that it has left", left)
			testlock.Must(t, proxy.Release(request))
		}
		testlock.Eventually(t, "there is room for another", func() bool {
			_, p, err := other.Join(bg, "q")
			if err == nil {
				testlock.Must(t, p.CountDown(bg))
			} else if !errors.Is(err, latch.ErrNoCount) {
				t.Fatal(err)
			}
			return err == nil
		})
		wantCount(t, other, 0)
		proxy.OnReply(nil)
		proxy.OnRequest(nil)
	}
}

func TestManyPartiesComeAndGo(t *testing.T) {
	t.Parallel()
	_, ls := open(t, 4)
	const n = 40
	for range 5 {
		set(t, ls[0], n)
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				_, p, err := ls[i%4].Join(bg, itoa(int64(i)))
				if err != nil {
					t.Errorf("Join: %v", err)
					return
				}
				if err := p.CountDown(bg); err != nil {
					t.Errorf("CountDown: %v", err)
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

func TestALeaseThatHasEndedIsNotRenewed(t *testing.T) {
	t.Parallel()
	rdb, ls := open(t, 1)
	set(t, ls[0], 1)
	_, p := join(t, ls[0], "p")
	lease, err := rdb.HGet(bg, key, "p:p").Result()
	testlock.Must(t, err)
	_, id, _ := strings.Cut(lease, " ")
	testlock.Must(t, rdb.HSet(bg, key, "p:p", "1 "+id).Err()) // as if no renewal had come for long
	text, err := os.ReadFile("renew.lua")
	testlock.Must(t, err)
	if reply, err := rdb.Eval(bg, string(text), []string{key}, id, "p", 30000).Text(); err != nil || reply != "L" {
		t.Errorf("%s, %v", reply, err)
	}
	diedAs(t, "Wait", ls[0].Wait(testlock.Bounded(t)), "p")
	diedAs(t, "CountDown", p.CountDown(bg), "p")
}
