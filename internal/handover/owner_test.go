package handover

import "testing"

func TestALockIsLostToItsOwnerUntilTheLastLostHoldIsOver(t *testing.T) {
	session, lock := new(int), func(of *int, name string) LostLock { return LostLock{Session: of, Lock: name} }
	x := lock(session, "x")
	var o Owner
	o.Lose(x, 2)
	o.Lose(lock(session, "z"), 1)
	o.Lose(x, -1)
	if !o.HasLost(x) {
		t.Error("one lost hold is left, and forgotten")
	}
	if o.HasLost(lock(session, "y")) || o.HasLost(lock(new(int), "x")) {
		t.Error("another lock is lost, too")
	}
	if o.Lose(x, -1); o.HasLost(x) || !o.HasLost(lock(session, "z")) || len(o.lost) != 1 {
		t.Errorf("%d locks are lost in the end", len(o.lost))
	}
}

func TestWithoutAnOwnerNothingIsRemembered(t *testing.T) {
	var none *Owner
	none.Lose(LostLock{Lock: "x"}, 1)
	if none.HasLost(LostLock{Lock: "x"}) {
		t.Error("nobody has lost a lock")
	}
}
