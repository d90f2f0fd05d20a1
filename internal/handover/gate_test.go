package handover

import "testing"

func TestAGateServesInOrder(t *testing.T) {
	var g Gate[int]
	if !g.Enter() || g.Enter() {
		t.Fatal("an empty gate admits one")
	}
	wait := func() *Waiter[int] {
		w := NewWaiter[int]()
		g.Waiters.Push(w)
		return w
	}
	admitted := func(w *Waiter[int]) bool { t.Helper(); return answer(t, w).In }
	first, withdrawn, second, third := wait(), wait(), wait(), wait()
	if !withdrawn.Withdraw() || withdrawn.Withdraw() {
		t.Error("a waiter is withdrawn once")
	}
	if !g.Leave() || !admitted(first) || first.Withdraw() {
		t.Error("the first in the list is not admitted")
	}
	if !g.Leave() || !admitted(second) {
		t.Error("the one that was withdrawn is not passed over")
	}
	if g.Waiters.Recheck(); admitted(third) || g.Waiters.First() != nil {
		t.Error("one that waits does not look again")
	}
	if g.Leave() || g.Entries() != 0 {
		t.Errorf("%d are inside in the end", g.Entries())
	}
}

func TestEntriesUnderAHoldStayInsideWithoutIt(t *testing.T) {
	var root, hold Gate[int]
	root.Enter()
	hold.Enter()
	waits := NewWaiter[int]()
	root.Waiters.Push(waits)
	root.Inherit(&hold)
	if root.Entries() != 2 || hold.Entries() != 0 {
		t.Errorf("%d inside, and %d under the hold", root.Entries(), hold.Entries())
	}
	if root.Leave() {
		t.Error("admits the next while one is inside")
	}
	if !root.Leave() || !answer(t, waits).In {
		t.Error("the last to leave does not admit the next")
	}
}
