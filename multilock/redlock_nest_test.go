package multilock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// The outer hold is unlocked while a nested call is still waiting for a majority to confirm the hold. The
// lock must stay held until the nested hold is unlocked, too.
func TestTheNextGoroutineHasItsTurnWhenTheLastNestedHoldEnds(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		ctx, outer := testlock.Lock(t, m, bg)
		next := testlock.Go(bg, m)
		for _, w := range r {
			w.Net.SetDelay(20 * time.Millisecond)
		}
		nests := testlock.Go(context.WithoutCancel(ctx), m)
		time.Sleep(10 * time.Millisecond)
		testlock.Unlock(t, outer)
		if synctest.Wait(); len(nests) > 0 || len(next) > 0 {
			t.Fatalf("nested: %d, next: %d", len(nests), len(next))
		}
		nested := testlock.Granted(t, nests)
		if synctest.Wait(); len(next) > 0 || outer.Err() == nil || nested.Err() != nil {
			t.Fatalf("next: %d; outer %v, nested %v", len(next), outer.Err(), nested.Err())
		}
		testlock.Unlock(t, nested)
		after := testlock.Granted(t, next)
		testlock.WantAfter(t, after, outer.Token())
		testlock.Unlock(t, after)
	})
}

// One server has forgotten its part, and another one is down, so no majority can confirm the hold. The call
// returns an error, but the hold is lost only when its lease ends.
func TestWhatNoMajorityConfirmsIsNotCalledLost(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		ctx, outer := testlock.Lock(t, m, bg)
		r[0].Kill()
		r[1].FlushAll()
		_, _, err := m.TryLock(ctx)
		for what, err := range map[string]error{"nested": err, "Extend": outer.Extend(bg, time.Minute)} {
			if err == nil || errors.Is(err, rlock.ErrLost) || outer.Err() != nil {
				t.Errorf("%s: %v; the outer hold: %v", what, err, outer.Err())
			}
		}
		time.Sleep(time.Minute)
		testlock.WantError(t, "Unlock", outer.Unlock(bg), rlock.ErrLost)
	})
}

func TestAFixedLeaseIsRenewedForAsLongAsItsNestedHoldWantsIt(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		r[2].Net.SetDelay(20 * time.Millisecond) // its part arrives after the nested call has returned
		r.reset()
		ctx, outer := testlock.Lock(t, m, bg, rlock.WithLease(6*time.Second))
		_, nested := testlock.Lock(t, m, ctx)
		time.Sleep(time.Minute)
		if n := r.held(); n != 3 || r.count("acquire") != 3 || nested.Err() != nil {
			t.Fatalf("held by %d after %d requests for it, nested %v", n, r.count("acquire"), nested.Err())
		}
		r[0].FlushAll() // the part that joins again must be renewed, too
		time.Sleep(2 * renewal)
		if n := r.held(); n != 3 {
			t.Errorf("held by %d after one server had forgotten", n)
		}
		testlock.Unlock(t, nested)
		time.Sleep(time.Minute)
		if n := r.held(); n != 0 {
			t.Errorf("held by %d when the lease was over", n)
		}
		testlock.WantError(t, "Unlock", outer.Unlock(bg), rlock.ErrLost)
	})
}

func TestTheLastHoldTellsOfTheRelease(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		told := make(chan rlock.Event, 8)
		m := r.redLock(t, rlock.WithObserver(testlock.Observer(func(e rlock.Event) { told <- e })))
		ctx, outer := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, context.WithoutCancel(ctx))
		testlock.Unlock(t, outer)
		for depth := range 2 {
			if e := <-told; e.Type != rlock.EventAcquired || e.Depth != depth+1 {
				t.Errorf("%v at depth %d", e.Type, e.Depth)
			}
		}
		if len(told) != 0 {
			t.Errorf("%v while a nested hold goes on", (<-told).Type)
		}
		testlock.Unlock(t, nested)
		if e := <-told; e.Type != rlock.EventReleased || e.Token != outer.Token() || len(told) != 0 {
			t.Errorf("%v of token %d, and %d more", e.Type, e.Token, len(told))
		}
	})
}

// The fixed lease of a nested hold does not apply to the next hold of this process.
func TestTheLeaseThatAHolderChoseEndsWithItsHold(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t)
		ctx, outer := testlock.Lock(t, m, bg)
		_, nested := testlock.Lock(t, m, context.WithoutCancel(ctx), rlock.WithLease(10*time.Second))
		next := testlock.Go(bg, m)
		testlock.Unlock(t, outer)
		r[0].FlushAll()
		if err := nested.Extend(bg, time.Second); err != nil { // two of three servers still have the hold
			t.Error(err)
		}
		testlock.Unlock(t, nested)
		after := testlock.Granted(t, next)
		time.Sleep(2 * time.Minute)
		if n := r.held(); after.Err() != nil || n != 3 {
			t.Errorf("%v, on %d servers", after.Err(), n)
		}
		testlock.Unlock(t, after)
	})
}
