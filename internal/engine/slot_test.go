package engine

import "testing"

// What locks do is tested in rlock, on servers; here is what needs none.

func TestASlotServesInOrderAndOwnersTogether(t *testing.T) {
	var s slot
	a, b := new(Owner), new(Owner)
	if !s.enter(nil, true) || s.enter(nil, true) || s.enter(a, true) {
		t.Fatal("an empty slot admits one")
	}
	join := func(o *Owner) *turn {
		t := newTurn(&acquisition{as: o})
		s.queue.push(t)
		return t
	}
	answer := func(t *turn) bool { return (<-t.ready).in }
	first, canceled, second, third := join(nil), join(nil), join(a), join(a)
	if !canceled.remove() || canceled.remove() {
		t.Error("a turn is canceled once")
	}
	if !s.leave() || !answer(first) || first.remove() {
		t.Error("the first in the queue is not admitted")
	}
	if !s.leave() || !answer(second) || s.owner != a {
		t.Error("the canceled one was not passed over")
	}
	if !s.enter(a, true) || s.enter(a, false) || s.enter(b, true) || s.enter(nil, true) {
		t.Error("only the owner inside is let in beside itself, and only where that is shared")
	}
	if s.queue.turnAway(b); s.queue.first != third {
		t.Error("turned away another owner's")
	}
	if s.queue.turnAway(a); answer(third) || s.queue.first != nil {
		t.Error("who shares must look again")
	}
	if s.leave() || s.inside != 1 || s.leave() || s.inside != 0 || s.owner != nil {
		t.Errorf("%d inside in the end", s.inside)
	}
}

func TestAWaiterThatDoesNotListenHoldsUpNobody(t *testing.T) {
	var q turns
	turn := newTurn(nil) // whose observer takes its time
	q.push(turn)
	for range 5 {
		turn.stand()
	}
	turn.answer(admission{in: true}) // under lock.mu, so it must not block
	if !(<-turn.ready).stood || !(<-turn.ready).in {
		t.Error("not told both")
	}
}
