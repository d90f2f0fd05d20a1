package engine

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestAWaiterThatDoesNotListenHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a send that blocks ends the test
		var l waiters
		w, g := new(waiter), new(Grant)
		l.push(w)
		w.queued() // before it listens
		w.listen()
		for range 5 {
			w.queued()
		}
		w.answer(g, nil)
		if <-w.ready != queued || <-w.ready != answered || w.g != g {
			t.Error("it is not told both")
		}
	})
}

func TestAWaiterIsAnsweredOnce(t *testing.T) {
	var l waiters
	early, late, gone := new(waiter), new(waiter), new(waiter)
	for _, w := range []*waiter{early, late, gone} {
		l.push(w)
	}
	late.listen()
	gone.listen()
	first := errors.New("first")
	early.answer(nil, first)
	early.listen() // it was answered before
	late.answer(nil, first)
	for _, w := range []*waiter{early, late} {
		w.answer(nil, errors.New("second"))
		if w.withdraw() || w.err != first || len(w.ready) != 1 || <-w.ready != answered {
			t.Errorf("%v, and %d answers more", w.err, len(w.ready))
		}
	}
	if !gone.withdraw() || gone.withdraw() {
		t.Error("it is not withdrawn, once")
	}
	if gone.answer(nil, first); gone.answered || len(gone.ready) != 0 {
		t.Error("one that was withdrawn is answered")
	}
}

func TestWaitersComeAndGoInTheirOrder(t *testing.T) {
	var l waiters
	all := make([]*waiter, 5)
	for i := range all {
		all[i] = new(waiter)
		l.push(all[i])
	}
	want := slices.Clone(all)
	for _, i := range []int{2, 0, 4, 1, 3} { // from the middle, the beginning, the end
		all[i].withdraw()
		want = slices.DeleteFunc(want, func(w *waiter) bool { return w == all[i] })
		var got []*waiter
		for w := l.first; w != nil; w = w.next {
			got = append(got, w)
		}
		if !slices.Equal(got, want) || l.n != len(want) {
			t.Errorf("without %d: %d of %d waiters, or another order", i, len(got), l.n)
		}
	}
	l.push(all[0])
	if l.first != all[0] || l.last != all[0] || l.n != 1 {
		t.Error("one that comes back does not wait")
	}
}
