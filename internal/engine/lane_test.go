package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
)

func TestAWaiterThatDoesNotListenHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a send that blocks ends the test
		var l lane
		w, g := new(waiter), new(Grant)
		l.waiters = append(l.waiters, w)
		w.queued() // before it listens
		w.listen()
		for range 5 {
			w.queued()
		}
		l.answer(w, g, nil)
		if <-w.ready != queued || <-w.ready != answered || w.g != g {
			t.Error("it is not told both")
		}
	})
}

func TestAWaiterIsAnsweredOnce(t *testing.T) {
	var l lane
	early, late, gone := new(waiter), new(waiter), new(waiter)
	l.waiters = []*waiter{early, late, gone}
	late.listen()
	gone.listen()
	first := errors.New("first")
	l.answer(early, nil, first)
	early.listen() // it was answered before
	l.answer(late, nil, first)
	for _, w := range []*waiter{early, late} {
		l.answer(w, nil, errors.New("second"))
		if l.withdraw(w) || w.err != first || len(w.ready) != 1 || <-w.ready != answered {
			t.Errorf("%v, and %d answers more", w.err, len(w.ready))
		}
	}
	if !l.withdraw(gone) || l.withdraw(gone) {
		t.Error("it is not withdrawn, once")
	}
	if l.answer(gone, nil, first); gone.answered || len(gone.ready) != 0 {
		t.Error("one that was withdrawn is answered")
	}
}

func TestATryWaitsForAHoldOfItsSessionIfThatIsOnItsWayOut(t *testing.T) {
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var server server
			_, p := newLock(t, &server)
			k := *kind
			k.Alone = alone
			m := New(p.s, &k, "y", Config{})
			server.answers <- "G 1000000 7"
			server.answers <- "G 1000000 8"
			hold := granted(t, lock(t, &m, context.Background()))
			tried := make(chan error, 1)
			go func() {
				_, hold, err := m.Acquire(context.Background(), Exclusive, Config{}, true)
				if err == nil {
					err = hold.Unlock(context.Background())
				}
				tried <- err
			}()
			time.Sleep(100 * time.Millisecond) // in fake time
			unlock(t, hold)
			if err := <-tried; alone != (err == nil) {
				t.Errorf("alone: %v, TryLock: %v", alone, err)
			}
		})
	}
}

// The hold of a fixed lease ends by itself: the Unlock that the try waits for may never come.
func TestATryThatWaitsForAHoldOfItsSessionLearnsOfTheEndOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var server server
		_, p := newLock(t, &server)
		k := *kind
		k.Alone = true
		m := New(p.s, &k, "y", Config{})
		server.answers <- "G 1000000 7"
		server.answers <- "G 1000000 8"
		ctx, start := context.Background(), time.Now()
		_, lost, err := m.Acquire(ctx, Exclusive, Config{Lease: time.Second}, false)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(900 * time.Millisecond)
		_, hold, err := m.Acquire(ctx, Exclusive, Config{}, true)
		if took := time.Since(start); err != nil || took > time.Second {
			t.Fatalf("TryLock: %v after %v, where the lease is a second", err, took)
		}
		unlock(t, hold)
		if err := lost.Unlock(ctx); !errors.Is(err, failure.ErrLost) {
			t.Errorf("Unlock: %v", err)
		}
	})
}
