package fairlock_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// places returns the number of entries in the queue.
func (w *world) places() int {
	members, _ := w.ZMembers(queueKey)
	return len(members)
}

// nothingIsLeft fails the test if there are keys other than hashes of free locks, which remember tokens.
func (w *world) nothingIsLeft() {
	w.t.Helper()
	testlock.Settle()
	testlock.OnlyTokens(w.t, w.Client)
}

// The reply to a request is late, but its attempt may already be in the queue, with others behind it. So
// goroutines that come later must not share its place.
func TestAGoroutineThatComesWhileAnAnswerIsLateOvertakesNobody(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(bg)
		defer cancel()
		holder, other, m := w.lockBeside(), w.lockBeside(), w.lock()
		for range 5 { // now the session knows that replies come quickly
			testlock.Must(t, testlock.Cycle(ctx, m))
		}
		hold := testlock.Take(t, holder)
		answer, late := make(chan struct{}), false
		w.Net.OnReply(func(r faultproxy.Request) {
			if r.Is("EVALSHA") && !late {
				late = true
				<-answer
			}
		})
		first := testlock.Go(ctx, m)
		synctest.Wait()
		between := testlock.Go(ctx, other)
		synctest.Wait()
		if n := len(testlock.Inspect(t, holder).Queue); !late || n != 2 {
			t.Fatalf("an answer is late: %v, and %d wait", late, n)
		}
		last := testlock.Go(ctx, m)
		time.Sleep(100 * time.Millisecond) // until the first request is sent again
		close(answer)
		testlock.Settle()
		testlock.Unlock(t, hold)
		testlock.Served(t, first, between, last)
	})
}

// Proves: order
func TestGoroutinesThatComeWhileARequestIsUnderWayStandInOnePlace(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, m, other := w.lockBeside(), w.lock(), w.lockBeside()
		testlock.Works(t, m)
		hold := testlock.Take(t, holder)
		answer, late := make(chan struct{}), false
		w.Net.OnReply(func(r faultproxy.Request) {
			if w.kind(r) == "acquire" && !late {
				late = true
				<-answer
			}
		})
		var waits []<-chan testlock.Grant
		join := func(m *rlock.Mutex, options ...rlock.Option) {
			waits = append(waits, testlock.Go(bg, m, options...))
			synctest.Wait()
		}
		for range 4 {
			join(m)
		}
		join(m, rlock.WithLease(time.Minute)) // needs another grant
		close(answer)
		testlock.Settle()
		join(other)
		if n, waiting := w.places(), len(testlock.Inspect(t, holder).Queue); n != 4 || waiting != 6 {
			t.Errorf("%d places of %d waiters", n, waiting)
		}
		testlock.Unlock(t, hold)
		testlock.Served(t, waits...)
		w.nothingIsLeft()
	})
}

// Goroutines that share a place get the lock one after another in memory. They need no further place,
// whichever goroutines come later.
func TestGoroutinesThatAreServedInMemoryTakeNoFurtherPlace(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, m := w.lockBeside(), w.lock()
		testlock.Works(t, m)
		hold := testlock.Take(t, holder)
		var waits []<-chan testlock.Grant
		join := func() {
			waits = append(waits, testlock.Go(bg, m))
			synctest.Wait()
		}
		for range 4 { // the last three share a place
			join()
		}
		testlock.Settle()
		testlock.Unlock(t, hold)
		testlock.Served(t, waits[0])
		second := <-waits[1]
		testlock.Must(t, second.Err)
		join()
		testlock.Settle()
		if n := w.places(); n != 1 {
			t.Errorf("%d places, though only the last goroutine has to ask", n)
		}
		testlock.Unlock(t, second.Hold)
		testlock.Served(t, waits[2:]...)
		w.nothingIsLeft()
	})
}

// A grant can be passed on as often as its block has tokens. Goroutines of the session that come later are
// still served after all earlier ones.
func TestMoreGoroutinesThanABlockHasTokensKeepTheirOrder(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, m := w.lockBeside(), w.lock()
		testlock.Works(t, m)
		hold := testlock.Take(t, holder)
		first := testlock.Join(bg, m)
		var served []int
		var all sync.WaitGroup
		join := func(i int) {
			all.Go(func() {
				_, hold, err := m.Lock(bg)
				testlock.Must(t, err)
				served = append(served, i) // no mutex is needed, because the lock is held
				testlock.Unlock(t, hold)
			})
		}
		const n = protocol.Block + 100
		for i := range n {
			join(i)
		}
		testlock.Settle()
		join(n)
		testlock.Settle()
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, first))
		all.Wait()
		if last := served[len(served)-1]; len(served) != n+1 || last != n {
			t.Errorf("%d served, the last was number %d", len(served), last)
		}
	})
}

// A hold with HoldAtLeast is not passed on in memory. A goroutine that waits behind it must have a place in
// the queue, so that it is served before waiters that come later.
func TestAGoroutineBehindAHoldThatStaysTakenHasAPlace(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		holder, m := w.lockBeside(), w.lock()
		testlock.Works(t, m)
		hold := testlock.Take(t, holder)
		first := testlock.Join(bg, m)
		const atLeast = 500 * time.Millisecond
		second := testlock.Go(bg, m, rlock.HoldAtLeast(atLeast))
		synctest.Wait()
		third := testlock.Go(bg, m)
		testlock.Settle()
		testlock.Unlock(t, hold)
		testlock.Unlock(t, testlock.Granted(t, first))
		stays := testlock.Granted(t, second)
		start := time.Now()
		fourth := testlock.Join(bg, m)
		testlock.Unlock(t, stays)
		testlock.Served(t, third, fourth)
		if took := time.Since(start); took < atLeast {
			t.Errorf("the next ones were served after %v", took)
		}
	})
}
