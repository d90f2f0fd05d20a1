package latch_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/latch"
)

// first applies action to the first request that runs a script.
func first(action faultproxy.Action) func(*faultproxy.Request) faultproxy.Action {
	var once sync.Once
	return func(r *faultproxy.Request) (a faultproxy.Action) {
		if isScript(r) {
			once.Do(func() { a = action })
		}
		return a
	}
}

// replayAll sends each request again that has run a script.
func replayAll(t *testing.T, p *faultproxy.Proxy) {
	t.Helper()
	for _, r := range p.Requests() {
		if isScript(&r) {
			if _, err := p.Replay(r); err != nil && !errors.As(err, new(faultproxy.ReplyError)) {
				t.Fatal(err)
			}
		}
	}
}

// Proves: latch
func TestARequestWhoseReplyIsLostTakesEffectOnce(t *testing.T) {
	for what, action := range map[string]faultproxy.Action{
		"cut behind it": faultproxy.CutReply, "no reply": faultproxy.SwallowReply,
		"cut before it": faultproxy.DropAndCut, "lost": faultproxy.Swallow,
	} {
		t.Run(what, func(t *testing.T) {
			proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
				lose := func() { w.Net.OnRequest(first(action)) }
				lose()
				set(t, l, 4)
				lose()
				countDown(t, l)
				wantCount(t, other, 3)
				both := make(chan error, 1)
				lose()
				go func() { both <- l.CountDownAndWait(bg) }()
				time.Sleep(10 * time.Second)
				wantCount(t, other, 2)
				countDown(t, other)
				wantCount(t, other, 1)
				countDown(t, other)
				ended(t, both, nil)
				set(t, other, 1)
				lose()
				wantDeleted(t, l, true)
			})
		})
	}
}

// Proves: latch
func TestACountDownThatComesTwiceCountsOnce(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		replay := func() { replayAll(t, w.Net); replayAll(t, w.Net) }
		set(t, l, 3)
		countDown(t, l)
		replay() // in the same run
		wantCount(t, other, 2)
		countDown(t, other)
		countDown(t, other)
		wantCount(t, other, 0)
		replay() // after the run
		wantCount(t, other, 0)
		set(t, other, 5)
		replay() // in the next run
		wantCount(t, other, 5)
		if set, err := l.TrySet(bg, 1); err != nil || set {
			t.Errorf("TrySet: %v, %v", set, err)
		}
		wantDeleted(t, l, true)
		countDown(t, l) // there is no run
		set(t, other, 7)
		replay()
		wantCount(t, other, 7)
	})
}

// Proves: latch
func TestACountDownThatComesLateIsVoid(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		set(t, other, 3)
		w.Net.OnRequest(first(faultproxy.Hold))
		ctx, cancel := context.WithTimeout(bg, time.Millisecond)
		defer cancel()
		testlock.WantError(t, "CountDown", l.CountDown(ctx), context.DeadlineExceeded)
		time.Sleep(31 * time.Second) // the request is void after a lease
		for _, late := range w.Net.Held() {
			testlock.Must(t, w.Net.Release(late))
		}
		wantCount(t, other, 3)
	})
}

// The first request of a session is void, because the session does not know the server's clock yet. If the
// clock is set back later, a copy of this request could take effect. So the next copy must have the same id.
func TestARequestThatIsSentAgainBecauseItWasVoidKeepsItsID(t *testing.T) {
	simulated(t, 1, func(t *testing.T, w *testlock.Wire, ls []*latch.Latch) {
		countDown(t, ls[0])
		ids, notAfters := map[string]bool{}, map[string]bool{}
		for _, r := range w.Net.Requests() {
			if isScript(&r) {
				ids[r.Args[4]], notAfters[r.Args[5]] = true, true
			}
		}
		if len(ids) != 1 || len(notAfters) != 2 {
			t.Errorf("ids %v, not-afters %v", ids, notAfters)
		}
	})
}

// Proves: latch
func TestLostRepliesLeaveEveryCountExact(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var ls []*latch.Latch
		for range 4 {
			l := latch.New(testlock.Batching(testlock.NewSession(t, w.Client), -1), "x")
			wantCount(t, l, 0)
			ls = append(ls, l)
		}
		replies := testlock.Lossy(w.Net, rand.New(rand.NewPCG(1, 2)), func(r *faultproxy.Request) string {
			if !isScript(r) || len(r.Args) < 5 {
				return ""
			}
			return r.Args[4] // the request's id, or the run's id in requests that only read
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
		w.Net.OnRequest(nil)
		wantCount(t, ls[0], 1000-4*60)
		if replies() < 20 {
			t.Errorf("only %d replies were lost", replies())
		}
	})
}

// Proves: latch
func TestACanceledCallReturnsWhileRedisIsFrozen(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		patient := w.Net.Client(t, func(o *redis.Options) { o.ReadTimeout = 5 * time.Second })
		ls := latchesOf(t, patient, 2)
		set(t, ls[0], 5)
		const bound = 12 * time.Second // not a multiple of the client's timeout
		ctx, cancel := context.WithTimeout(bg, bound)
		defer cancel()
		start := time.Now()
		sleeping := wait(ctx, ls[1])
		time.Sleep(time.Second)
		w.Net.Freeze()
		for i, err := range everyMethod(ctx, ls[0]) { // all methods, while the server is frozen
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("method %d: %v", i, err)
			}
		}
		ended(t, sleeping, context.DeadlineExceeded) // requests time out, but are sent again
		if took := time.Since(start); took > bound {
			t.Errorf("they returned after %v", took)
		}
		testlock.WantError(t, "Wait whose context is over", ls[0].Wait(ctx), context.DeadlineExceeded)
		w.Net.Thaw()
	})
}

// Proves: latch
func TestAnOutageIsAnErrorAfterSomeTries(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		set(t, l, 2)
		w.Net.Refuse(true)
		if err := l.CountDown(bg); err == nil {
			t.Error("CountDown in an outage returns nil")
		}
		if err := l.Wait(bg); err == nil {
			t.Error("Wait in an outage returns nil")
		}
		w.Net.Refuse(false)
		if n, err := l.Count(bg); err != nil || n > 2 {
			t.Errorf("Count: %d, %v", n, err)
		}
	})
}

// Proves: latch
func TestAWaiterThatCannotLookGivesUpAfterALease(t *testing.T) {
	proxied(t, func(t *testing.T, w *testlock.Wire, l, other *latch.Latch) {
		set(t, other, 1)
		done := asleep(l)
		w.Net.OnRequest(func(r *faultproxy.Request) faultproxy.Action {
			if isScript(r) {
				return faultproxy.DropAndCut
			}
			return faultproxy.Pass
		})
		start := time.Now()
		w.Net.CutAll() // so that it reads the count after it has subscribed again
		if err := <-done; err == nil || errors.Is(err, latch.ErrGone) {
			t.Errorf("Wait: %v", err)
		}
		if took := time.Since(start); took < lease || took > 2*lease {
			t.Errorf("it gave up after %v", took)
		}
	})
}
