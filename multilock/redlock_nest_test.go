package multilock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/multilock"
)

// slowContext takes its time to say in which hold of a server's lock an acquisition is nested.
type slowContext struct {
	context.Context
	until time.Time
	asked *atomic.Int64
}

func (c slowContext) Value(key any) any {
	if fmt.Sprintf("%T", key) == "*engine.descent" {
		c.asked.Add(1)
		time.Sleep(time.Until(c.until))
	}
	return c.Context.Value(key)
}

// The outer hold had all servers when the nested one began to ask them. An operator then freed one. It must
// not be taken again, or nobody could free a lock server by server, and the outer hold would not have it.
func TestANestedHoldTakesNoServerThatTheOuterOneHasJustLost(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.warm(t)
		ctx, outer := testlock.Lock(t, m, bg)
		synctest.Wait()
		var asked atomic.Int64
		got := testlock.Go(slowContext{ctx, time.Now().Add(50 * time.Millisecond), &asked}, m)
		synctest.Wait()
		testlock.ForceUnlock(t, multilock.NewRedLock("x", r[:1].process(t)...))
		testlock.Must(t, outer.Extend(bg, time.Minute)) // which finds that out
		if synctest.Wait(); asked.Load() != 3 || len(got) > 0 {
			t.Fatalf("it has asked for %d parts of the outer hold, and has got %d", asked.Load(), len(got))
		}
		nested := testlock.Granted(t, got)
		time.Sleep(3 * renewal)
		if n := r.held(); n != 2 || outer.Err() != nil || nested.Err() != nil {
			t.Errorf("%d servers have it, outer %v, nested %v", n, outer.Err(), nested.Err())
		}
		testlock.Unlock(t, nested, outer)
	})
}

// What is nested enters the parts of the outer hold, so these must not be another goroutine's by then.
func TestAHoldIsNotPassedOnWhileAnotherOneNests(t *testing.T) {
	withServers(t, 3, func(t *testing.T, r servers) {
		m := r.redLock(t, longTurn)
		ctx, outer := testlock.Lock(t, m, bg)
		next := testlock.Go(bg, m)
		var asked atomic.Int64
		nested := testlock.Go(slowContext{context.WithoutCancel(ctx), time.Now().Add(50 * time.Millisecond), &asked}, m)
		synctest.Wait()
		if asked.Load() != 3 {
			t.Fatalf("it has asked for %d parts of the outer hold", asked.Load())
		}
		time.Sleep(time.Millisecond) // tokens of other grants have the time
		testlock.Unlock(t, outer)
		after := testlock.Granted(t, next)
		if after.Token() <= outer.Token()+1 {
			t.Errorf("token %d after %d: passed on", after.Token(), outer.Token())
		}
		testlock.Unlock(t, after)
		testlock.Unlock(t, testlock.Granted(t, nested))
	})
}
