package handover

import "testing"

func TestAGateServesInOrderAndOwnersTogether(t *testing.T) {
	var g Gate[int]
	a, b := new(Owner), new(Owner)
	if !g.Enter(nil, true) || g.Enter(nil, true) || g.Enter(a, true) {
		t.Fatal("an empty gate admits one")
	}
	wait := func(o *Owner) *Waiter[int] {
		w := NewWaiter[int](o)
		g.Waiters.Push(w)
		return w
	}
	admitted := func(w *Waiter[int]) bool { t.Helper(); return answer(t, w).In }
	first, withdrawn, second, third := wait(nil), wait(nil), wait(a), wait(a)
	if !withdrawn.Withdraw() || withdrawn.Withdraw() {
		t.Error("a waiter is withdrawn once")
	}
	if !g.Leave() || !admitted(first) || first.Withdraw() {
		t.Error("the first in the list is not admitted")
	}
	if !g.Leave() || !admitted(second) || g.Owner() != a {
		t.Error("the one that was withdrawn is not passed over")
	}
	if !g.Enter(a, true) || g.Enter(a, false) || g.Enter(b, true) || g.Enter(nil, true) {
		t.Error("only the owner inside is let in beside itself, and only where that is shared")
	}
	if g.Waiters.Recheck(b); g.Waiters.First() != third {
		t.Error("a goroutine of another owner looks again")
	}
	if g.Waiters.Recheck(a); admitted(third) || g.Waiters.First() != nil {
		t.Error("a goroutine that may share does not look again")
	}
	if g.Leave() || g.Entries() != 1 || g.Leave() || g.Entries() != 0 || g.Owner() != nil {
		t.Errorf("%d are inside in the end", g.Entries())
	}
}

func TestEntriesUnderAHoldStayInsideWithoutIt(t *testing.T) {
	var root, hold Gate[int]
	a := new(Owner)
	root.Enter(nil, false)
	hold.Enter(a, false)
	hold.Enter(a, true)
	shares, waits := NewWaiter[int](a), NewWaiter[int](nil)
	root.Waiters.Push(shares)
	root.Waiters.Push(waits)
	root.Inherit(&hold)
	if root.Entries() != 3 || root.Owner() != a || hold.Entries() != 0 {
		t.Errorf("%d inside, and %d under the hold", root.Entries(), hold.Entries())
	}
	if answer(t, shares).In || root.Waiters.First() != waits {
		t.Error("only the goroutine that may share now looks again")
	}
	for left := 2; left > 0; left-- {
		if root.Leave() {
			t.Errorf("admits the next while %d are inside", left)
		}
	}
	if !root.Leave() || !answer(t, waits).In {
		t.Error("the last to leave does not admit the next")
	}
}
