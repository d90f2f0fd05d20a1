package engine

import (
	"errors"
	"testing"
	"testing/synctest"
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
