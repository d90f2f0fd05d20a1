package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/testing/fake"
)

func TestAWaiterThatDoesNotListenHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a send that blocks would end the test
		l := &lockState{s: newSession(t)}
		ln, w, g := &lane{l: l}, new(waiter), new(Grant)
		ln.waiters = append(ln.waiters, w)
		w.notifyWaits() // before the waiter listens
		w.news = make(chan news, 2)
		for range 5 {
			w.notifyWaits()
		}
		fx := l.begin()
		ln.answer(w, g, nil, &fx)
		fx.run()
		if <-w.news != newsWaits || <-w.news != newsAnswered || w.grant != g {
			t.Error("it is not notified of both")
		}
	})
}

func TestAWaiterIsAnsweredOnce(t *testing.T) {
	l := &lockState{s: newSession(t)}
	ln := &lane{l: l}
	silent, listening, gone := new(waiter), new(waiter), new(waiter)
	ln.waiters = []*waiter{silent, listening, gone}
	listening.news, gone.news = make(chan news, 2), make(chan news, 2)
	first := errors.New("first")
	for _, err := range []error{first, errors.New("second")} {
		fx := l.begin()
		ln.answer(silent, nil, err, &fx)
		ln.answer(listening, nil, err, &fx)
		fx.run()
	}
	if !silent.answered || silent.err != first || listening.err != first || len(listening.news) != 1 {
		t.Errorf("%v and %v, with %d answers", silent.err, listening.err, len(listening.news))
	}
	if !ln.remove(gone) || ln.remove(gone) || ln.remove(listening) {
		t.Error("a waiter is not removed once")
	}
	fx := l.begin()
	ln.answer(gone, nil, first, &fx)
	fx.run()
	if gone.answered || len(gone.news) != 0 {
		t.Error("a waiter that was removed is answered")
	}
}

// A call whose grant is lost before it has a hold waits again.
func TestAWaiterThatWaitsAgainIsWokenAlone(t *testing.T) {
	l := &lockState{s: newSession(t)}
	ln := &lane{l: l}
	again, other := new(waiter), new(waiter)
	again.news, other.news = make(chan news, 2), make(chan news, 2)
	for _, waiters := range [][]*waiter{{again, other}, {again}} {
		ln.waiters = slices.Clone(waiters)
		fx := l.begin()
		for _, w := range waiters {
			ln.answer(w, nil, failure.ErrLost, &fx)
		}
		fx.run()
	}
	if len(again.news) != 2 || len(other.news) != 1 {
		t.Errorf("woken %d and %d times, want 2 and 1", len(again.news), len(other.news))
	}
}

// newSession returns a session whose requests all fail.
func newSession(t *testing.T) *session.Session {
	return fake.Session(t, fake.Client(t, func(fake.Call) (string, error) { return "", errors.New("down") }))
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

// A hold with a fixed lease ends by itself, so the Unlock for which the try waits may never come.
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
