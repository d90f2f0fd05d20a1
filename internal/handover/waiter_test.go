package handover

import (
	"testing"
	"testing/synctest"
)

func TestAWaiterThatDoesNotListenHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a send that blocks ends the test
		var l List[int]
		w := NewWaiter[int]() // whose observer takes its time
		l.Push(w)
		for range 5 {
			w.Queued()
		}
		w.Answer(Handoff[int]{In: true})
		if <-w.Ready != Queued || !answer(t, w).In {
			t.Error("it is not told both")
		}
	})
}

func TestAWaiterIsAnsweredOnce(t *testing.T) {
	var l List[int]
	answered, withdrawn := NewWaiter[int](), NewWaiter[int]()
	l.Push(answered)
	l.Push(withdrawn)
	answered.Answer(Handoff[int]{Token: 1})
	answered.Answer(Handoff[int]{Token: 2})
	withdrawn.Withdraw()
	withdrawn.Answer(Handoff[int]{Token: 3})
	if h := answer(t, answered); h.Token != 1 || !h.Passed() || len(answered.Ready) > 0 || len(withdrawn.Ready) > 0 {
		t.Errorf("%+v, and %d and %d answers more", h, len(answered.Ready), len(withdrawn.Ready))
	}
}
