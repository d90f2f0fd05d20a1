package watchdog

import (
	"context"
	"testing"
	"time"
)

// unchanged says that the server has the leases, and has not prolonged them.
func unchanged(_ context.Context, _ any, batch []*Lease) []Result { return make([]Result, len(batch)) }

func TestAfterAnOutageEachLeaseIsConfirmedOnceAndAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var renewed, fixed, later Lease
		w.Add(&renewed, in(term), interval)
		w.Add(&fixed, in(term), 0)
		pass(3 * time.Second)
		outage := time.Now()
		pass(time.Second)
		w.Add(&later, in(term), interval) // the server had answered since
		w.Confirm(outage)
		pass(5 * time.Second)
		wantTimes(t, "renewals", f.calls(&renewed), 4*time.Second+confirmAfter)
		wantTimes(t, "confirmations of a fixed lease", f.calls(&fixed), 4*time.Second+confirmAfter)
		wantTimes(t, "renewals of one that was granted in the outage", f.calls(&later))
		if got := f.flights(); got != 1 {
			t.Errorf("%d flights, want 1", got)
		}
		wantEnds(t, f)
	})
}

func TestALeaseThatIsNotRenewedKeepsItsDeadlineWhenItIsConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.answer(unchanged)
		var fixed Lease
		w.Add(&fixed, in(term), 0)
		pass(time.Second)
		w.Confirm(time.Now())
		pass(term)
		wantTimes(t, "confirmations", f.calls(&fixed), time.Second+confirmAfter)
		wantEnds(t, f, end{&fixed, term, true})
	})
}

func TestALeaseThatTheServerHasForgottenIsLostAsSoonAsItIsConfirmed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var renewed, fixed Lease
		w.Add(&renewed, in(term), interval)
		w.Add(&fixed, in(term), 0)
		pass(time.Second)
		f.answer(func(_ context.Context, _ any, batch []*Lease) []Result {
			return all(batch, Result{Gone: true})
		})
		w.Confirm(time.Now())
		pass(time.Second)
		for _, l := range []*Lease{&renewed, &fixed} {
			if at := f.lostAt(l); at != time.Second+confirmAfter {
				t.Errorf("lost after %v", at)
			}
		}
	})
}

// A server that goes up and down many times a second must not be sent all renewals each time.
func TestConfirmationsKeepADistanceFromEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.Add(&l, in(term), interval)
		for range 100 {
			pass(10 * time.Millisecond)
			w.Confirm(time.Now())
		}
		if got := len(f.calls(&l)); got < 3 || got > 6 {
			t.Errorf("%d renewals in a second", got)
		}
	})
}

func TestAConfirmationThatFailsIsRepeatedAlsoIfTheLeaseIsFixed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.answer(func(_ context.Context, _ any, batch []*Lease) []Result {
			return all(batch, Result{Err: errRefused})
		})
		var fixed Lease
		w.Add(&fixed, in(term), 0)
		pass(time.Second)
		w.Confirm(time.Now())
		pass(10 * time.Second)
		if got := len(f.calls(&fixed)); got < 3 || got > 8 {
			t.Errorf("%d confirmations", got)
		}
		f.answer(unchanged)
		pass(6 * time.Second)
		sent := len(f.calls(&fixed))
		pass(10 * time.Second)
		if got := len(f.calls(&fixed)); got != sent {
			t.Errorf("%d more after one was answered", got-sent)
		}
	})
}
