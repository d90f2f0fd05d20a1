package latch_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
)

// Proves: latch
func TestAPartyCountsOnceThoughRepliesAreLost(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		set(t, other, 2)
		for i, action := range []faultproxy.Action{faultproxy.CutReply, faultproxy.DropAndCut} {
			w.Net.Reset()
			w.Net.OnRequest(first(action))
			ctx, p := join(t, l, "p")
			w.Net.OnRequest(first(action))
			testlock.Must(t, p.CountDown(bg))
			if context.Cause(ctx) != context.Canceled {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			wantCount(t, other, 1-i)
			replayAll(t, w.Net)
			wantCount(t, other, 1-i)
		}
		w.Net.OnRequest(nil)
		set(t, other, 1)
		replayAll(t, w.Net) // late copies, which arrive in the next run
		_, p := join(t, other, "free")
		testlock.Must(t, p.CountDown(bg))
	})
}

// Proves: latch
func TestWaitersLearnOfADeadPartyAtTheEndOfItsLease(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, doomed, one *latch.Latch) {
		two := latchesOf(t, faultproxy.InMemory(t, w.Dial).Client(t), 1)[0]
		set(t, one, 2)
		before := asleep(one) // a message tells this waiter of the lease
		ctx, p := join(t, doomed, "doomed")
		after := asleep(two) // this waiter reads the lease from Redis
		both := make(chan error, 1)
		go func() { both <- two.CountDownAndWait(bg) }()
		time.Sleep(5 * time.Minute) // the party's lease is renewed
		if len(before) > 0 {
			t.Fatalf("Wait returned while the party lives: %v", <-before)
		}
		testlock.Must(t, ctx.Err())
		w.Net.Refuse(true)
		start := time.Now()
		for _, done := range []<-chan error{before, after, both} {
			diedAs(t, "Wait", testlock.Receive(t, "told", done), "doomed")
		}
		if took := time.Since(start); took < lease*2/3-time.Second || took > lease+time.Second {
			t.Errorf("its lease ended after %v", took)
		}
		testlock.Receive(t, "the party knows", ctx.Done())
		diedAs(t, "the cause", context.Cause(ctx), "doomed")
		diedAs(t, "the next Wait", one.Wait(bg), "doomed")
		w.Net.Refuse(false)
		diedAs(t, "CountDown", p.CountDown(bg), "doomed")
		wantCount(t, one, 1)
	})
}

// Proves: latch
func TestAPartyIsRenewedForAsLongAsItLives(t *testing.T) {
	simulated(t, 2, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		set(t, ls[0], 1)
		ctx, p := join(t, ls[0], "p")
		done := wait(bg, ls[1])
		time.Sleep(5 * time.Minute)
		if ctx.Err() != nil || len(done) > 0 {
			t.Errorf("%v, %d have ended", context.Cause(ctx), len(done))
		}
		testlock.Must(t, p.CountDown(bg))
		ended(t, done, nil)
	})
}

// The Latch that begins a run chooses the lifetime of the run. A party of another session can have a longer
// lease, so the party sends requests more seldom.
// Proves: latch
func TestARunDoesNotExpireBeforeTheLeaseOfAParty(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		brief := latch.New(testlock.NewSession(t, w.Client), "x", latch.WithLifetime(time.Minute))
		long := latchesOf(t, w.Client, 1, rlock.WithWatchdogTimeout(30*time.Minute))[0]
		set(t, brief, 1)
		ctx, _ := join(t, long, "p")
		time.Sleep(9 * time.Minute) // until shortly before the first renewal
		if !w.Exists(key) {
			t.Fatal("the run has expired since the party joined")
		}
		time.Sleep(30 * time.Minute) // until shortly before the fourth renewal
		if !w.Exists(key) {
			t.Fatal("the run has expired since the party was renewed")
		}
		testlock.Must(t, ctx.Err())
		till, _, _ := strings.Cut(w.HGet(key, "p:p"), " ")
		w.HSet(key, "p:p", till+" another") // so the lease is not renewed any more
		time.Sleep(22 * time.Minute)        // until a minute after the end of the lease
		diedAs(t, "Wait", brief.Wait(bg), "p")
	})
}

// Proves: latch
func TestAWaiterLearnsOfADeathWithinMomentsAndWithoutPolling(t *testing.T) {
	simulated(t, 2, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		set(t, ls[0], 1)
		join(t, ls[1], "p")
		done := asleep(ls[0])
		start := time.Now()
		end := start.Add(20 * time.Second)
		w.HSet(key, "p:p", fmt.Sprint(end.UnixMicro(), " another")) // so the lease is not renewed any more
		diedAs(t, "Wait", <-done, "p")
		// The waiter reads the hash when the lease ends that it knows. There it finds another lease, and
		// reads the hash again when that ends.
		if took := time.Since(start); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// The reply to CountDown is lost. Before its next copy is sent, a renewal finds no lease, because the party
// has counted. The renewal must not end the party.
func TestARenewalWhileItCountsEndsNoParty(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, _, other *latch.Latch) {
		set(t, other, 2)
		patient := w.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = 5 * time.Second })
		l := latchesOf(t, patient, 1)[0]
		joined := time.Now()
		ctx, p := join(t, l, "p")
		time.Sleep(time.Until(joined.Add(lease/3 - time.Second))) // until shortly before a renewal
		w.Net.Reset()
		w.Net.OnRequest(first(faultproxy.SwallowReply))
		counted := make(chan error, 1)
		go func() { counted <- p.CountDown(bg) }()
		time.Sleep(2 * time.Second)
		n := 0
		for _, r := range w.Net.Requests() {
			if isScript(&r) {
				n++
			}
		}
		if n < 2 || len(counted) > 0 {
			t.Errorf("%d requests: no renewal while CountDown has no answer", n)
		}
		testlock.Must(t, context.Cause(ctx))
		testlock.Must(t, testlock.Receive(t, "counted", counted))
		if context.Cause(ctx) != context.Canceled {
			t.Errorf("cause %v", context.Cause(ctx))
		}
		wantCount(t, other, 1)
	})
}

// Proves: latch
func TestAPartyOfARunThatIsOverIsTold(t *testing.T) {
	for how, want := range map[string]error{"zero": nil, "deleted": latch.ErrDeleted, "lost": latch.ErrGone} {
		t.Run(how, func(t *testing.T) {
			simulated(t, 2, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
				set(t, ls[0], 1)
				ctx, p := join(t, ls[1], "p")
				switch how {
				case "zero":
					countDown(t, ls[0])
				case "deleted":
					wantDeleted(t, ls[0], true)
				case "lost":
					w.FlushAll()
				}
				testlock.Receive(t, "its context", ctx.Done())
				testlock.WantError(t, how, context.Cause(ctx), latch.ErrGone)
				testlock.WantError(t, how, p.CountDown(bg), want)
			})
		})
	}
}

// Proves: latch
func TestAJoinThatWasCanceledLeavesNoParty(t *testing.T) {
	for what, action := range map[string]faultproxy.Action{
		"its reply is late": faultproxy.SwallowReply, "it comes late": faultproxy.Hold,
	} {
		t.Run(what, func(t *testing.T) {
			proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
				set(t, other, 1)
				w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
					if isScript(r) && len(r.Args) >= 7 && r.Args[6] == what { // a request to join
						return action
					}
					return faultproxy.Pass
				})
				ctx, cancel := context.WithTimeout(bg, time.Millisecond)
				defer cancel()
				if _, _, err := l.Join(ctx, what); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Join: %v", err)
				}
				time.Sleep(lease * 2 / 3)
				for _, r := range w.Net.Held() {
					testlock.Must(t, w.Net.Release(r))
				}
				_, p := join(t, other, "q")
				testlock.Must(t, p.CountDown(bg))
				wantCount(t, other, 0)
			})
		})
	}
}

// Proves: latch
func TestACanceledJoinForADeadPartyLeavesItsDeath(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		set(t, other, 1)
		_, p := join(t, other, "w")
		testlock.Must(t, p.Abandon(bg))
		diedAs(t, "Wait", other.Wait(bg), "w")
		w.Net.OnRequest(first(faultproxy.SwallowReply))
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		if _, _, err := l.Join(ctx, "w"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Join: %v", err)
		}
		if st := inspect(t, other); len(st.Parties) != 1 || st.Parties[0].Remaining == 0 ||
			strings.Contains(st.Parties[0].Owner, " ") {
			t.Errorf("while its request is not withdrawn: %+v", st)
		}
		diedAs(t, "Wait", testlock.Receive(t, "the end", wait(bg, other)), "w")
		replayAll(t, w.Net)
		diedAs(t, "the next Wait", other.Wait(bg), "w")
		_, q := join(t, other, "w")
		testlock.Must(t, q.CountDown(bg))
		testlock.Must(t, other.Wait(bg))
	})
}

// Proves: close
func TestCloseSaysThatAPartyWasNotAbandoned(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x")
		set(t, l, 1)
		ctx, _ := join(t, l, "p")
		w.Net.Refuse(true)
		if err := s.Close(); err == nil {
			t.Error("Close returns nil")
		}
		testlock.WantError(t, "the cause", context.Cause(ctx), rlock.ErrClosed)
		w.Net.Refuse(false)
	})
}

type noPerm string

func (e noPerm) Error() string { return string(e) }
func (noPerm) RedisError()     {}

// If Redis refuses to remove a party, the party lives until its lease ends. Close must return an error then.
func TestCloseSaysThatAPartyWasRefusedToLeave(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		s := testlock.NewSession(t, w.Client)
		l := latch.New(s, "x")
		set(t, l, 1)
		join(t, l, "p")
		w.Client.AddHook(testlock.Around(func(cmds []redis.Cmder, next func() error) error {
			for _, c := range cmds {
				if strings.HasPrefix(c.Name(), "eval") {
					err := noPerm("NOPERM User x has no permissions to run the 'evalsha' command")
					c.SetErr(err)
					return err
				}
			}
			return next()
		}))
		if err := s.Close(); err == nil {
			t.Error("Close returns nil, though the party has its count for the rest of its lease")
		}
	})
}
