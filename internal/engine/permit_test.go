package engine

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALaneIsForgottenWhenNobodyUsesIt(t *testing.T) {
	l := &lockState{kind: &Kind{}, s: newSession(t)}
	fx := l.begin()
	defer fx.unlock()
	w := Want{N: 1, Limit: 3}
	ln := l.laneFor(w, &fx)
	if l.laneFor(w, &fx) != ln || l.laneFor(Want{N: 2, Limit: 3}, &fx) == ln {
		t.Error("what is wanted alike has one lane, and other things have others")
	}
	ln.numQueued = 1 // which keeps it from beginning an attempt
	ln.waiters, ln.numGrants = append(ln.waiters, new(waiter)), 1
	for _, end := range []func(){func() { ln.remove(ln.waiters[0]) }, func() { ln.numGrants-- }} {
		l.settle(&fx)
		if l.findLane(w) != ln {
			t.Error("a lane that is used is forgotten")
		}
		end()
	}
	l.settle(&fx)
	if len(l.lanes) != 0 {
		t.Error("a lane that nobody uses is kept")
	}
}

// If the clock of a server was set back, the time in a message does not show that the grant has ended.
func TestAMessageOfAGrantThatIsOverIsIgnored(t *testing.T) {
	l := &lockState{s: newSession(t)}
	a := &attempt{lane: &lane{l: l}, state: queued, lastRefused: 7}
	for _, token := range []int64{0, 7} {
		fx := l.begin()
		// This would panic if it counted as a grant, because there is no registry.
		a.onGrantNotice(token, time.Now(), time.Minute, &fx)
		fx.unlock()
	}
}
