package permit

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockline/lockline/internal/handover"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestALaneIsForgottenWhenNobodyUsesIt(t *testing.T) {
	p := &pool{lanes: map[Want]*lane{}}
	w := Want{N: 1, Limit: 3}
	l := p.lane(w)
	if p.lane(w) != l || p.lane(Want{N: 2, Limit: 3}) == l {
		t.Error("what is wanted alike has one lane, and other things have others")
	}
	waits := handover.NewWaiter[*Grant](nil)
	l.waiters.Push(waits)
	l.grants++
	for _, end := range []func(){func() { waits.Withdraw() }, func() { l.grants-- }} {
		l.forget()
		if p.lanes[w] != l {
			t.Error("it is forgotten while it is used")
		}
		end()
	}
	l.forget()
	if p.lanes[w] != nil {
		t.Error("it is remembered")
	}
}

func TestAGrantIsCountedFromBeforeItWasMade(t *testing.T) {
	base := time.Now().Add(-time.Hour)
	a := &attempt{base: base}
	if got := a.since(5); got != base {
		t.Errorf("with no answer yet: %v", got.Sub(base))
	}
	a.redis = 1_000_000
	for at, want := range map[int64]time.Duration{
		1_000_000:         0,
		2_000_000:         990 * time.Millisecond,   // the clocks' rates may differ by the margin
		0:                 -1010 * time.Millisecond, // a clock that was set back
		8_000_000_000_000: time.Hour,                // one that was set forward: not after now
	} {
		if got := a.since(at).Sub(base); (got-want).Abs() > time.Minute/10 || want != time.Hour && got != want {
			t.Errorf("at %d: %v, want %v", at, got, want)
		}
	}
}
