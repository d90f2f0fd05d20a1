package mutex_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/option"
)

// Where a context is observed by its Done channel alone, nothing but its hold knows the cause.
func TestAForgottenHoldEndsWithACauseOfItsOwn(t *testing.T) {
	l := newLock(t)
	e, err := l.m.Admitted(bg, mutex.Config{}, false)
	if err != nil {
		t.Fatal(err)
	}
	e.Forget()
	<-e.Context().Done()
	if err := context.Cause(e.Context()); !errors.Is(err, mutex.ErrForgotten) || !errors.Is(err, failure.ErrNotHeld) {
		t.Error(err)
	}
}

func TestTheLossOfAForgottenHoldIsNotItsOwners(t *testing.T) {
	for _, lostFirst := range []bool{false, true} {
		l := newLock(t)
		ctx := option.WithOwner(bg)
		e, err := l.m.Admitted(ctx, mutex.Config{Lease: time.Minute}, false)
		if err != nil {
			t.Fatal(err)
		}
		e.Lock().Mu.Lock()
		tenure := e.Lock().Tenure()
		e.Lock().Mu.Unlock()
		hasLost := func() bool {
			_, again, err := l.m.Acquire(ctx, mutex.Config{}, true)
			_ = again.Unlock(bg)
			return errors.Is(err, failure.ErrLost)
		}
		hold := e.Handle()
		if lostFirst {
			tenure.LeaseLost(true)
			runtime.GC()
			if !hasLost() {
				t.Error("the loss of a hold that can be unlocked is not counted")
			}
		}
		runtime.KeepAlive(hold)
		for deadline := time.Now().Add(30 * time.Second); !e.Unlocked(); runtime.GC() {
			if time.Now().After(deadline) {
				t.Fatal("still not: forgotten")
			}
		}
		if !lostFirst {
			tenure.LeaseLost(true)
		}
		if hasLost() {
			t.Errorf("lost first %v: the loss of a forgotten hold is counted", lostFirst)
		}
	}
}
