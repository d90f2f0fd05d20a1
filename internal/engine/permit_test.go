package engine

import (
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALaneIsForgottenWhenNobodyUsesIt(t *testing.T) {
	p := &pool{kind: &Kind{}}
	w := Want{N: 1, Limit: 3}
	l := p.lane(w)
	if p.lane(w) != l || p.lane(Want{N: 2, Limit: 3}) == l {
		t.Error("what is wanted alike has one lane, and other things have others")
	}
	waits := new(waiter)
	l.waiters = append(l.waiters, waits)
	l.grants++
	for _, end := range []func(){func() { l.withdraw(waits) }, func() { l.grants-- }} {
		l.forget()
		if p.lane(w) != l {
			t.Error("it is forgotten while it is used")
		}
		end()
	}
	l.forget()
	if slices.Contains(p.lanes, l) {
		t.Error("it is remembered")
	}
}

// Where a server's clock was set back, the time of a grant does not tell that it is over.
func TestAMessageOfAGrantThatIsOverIsIgnored(t *testing.T) {
	a := &attempt{l: &lane{p: &pool{}}, past: 7}
	for _, token := range []int64{0, 7} {
		// This would panic if it counted as a grant, because there is no session.
		a.receive(token, time.Now(), time.Minute)
	}
}
