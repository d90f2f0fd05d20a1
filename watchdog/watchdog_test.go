package watchdog

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs test in fake time, with a watchdog that is closed at its end.
func bubble(t *testing.T, test func(t *testing.T, w *Watchdog, f *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		w := New(f)
		defer w.Close()
		test(t, w, f)
	})
}

// pass waits for d, and until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// hang returns a renew that takes d and ignores its context, as a read of go-redis does.
func hang(d time.Duration, then func(batch []*Lease) []Result) func(context.Context, any, []*Lease) []Result {
	return func(_ context.Context, _ any, batch []*Lease) []Result {
		time.Sleep(d)
		return then(batch)
	}
}

func TestALeaseIsRenewedAtItsIntervalAndLivesOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.Add(&l, in(term), interval)
		pass(45 * time.Second)
		wantTimes(t, "renewals", f.calls(&l), 10*time.Second, 20*time.Second, 30*time.Second, 40*time.Second)
		wantEnds(t, f)
		if got, want := w.Deadline(&l), f.start.Add(40*time.Second+term); !got.Equal(want) {
			t.Errorf("Deadline = %v, want %v", got, want)
		}
	})
}

func TestTheIntervalOfALeaseThatIsAloneCountsFromItsAdd(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		for range 3 {
			var l Lease
			pass(1234 * time.Millisecond)
			added := time.Since(f.start)
			w.Add(&l, in(term), interval)
			pass(25 * time.Second)
			wantTimes(t, "renewals", f.calls(&l), added+interval, added+2*interval)
			w.Remove(&l)
		}
	})
}

func TestALeaseTakenLaterIsRenewedALittleEarlyToTravelWithTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var first, second Lease
		w.Add(&first, in(term), interval)
		pass(2 * time.Second)
		w.Add(&second, in(term), interval)
		pass(30 * time.Second)
		want := []time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second}
		wantTimes(t, "renewals of the first", f.calls(&first), want...)
		wantTimes(t, "renewals of the second", f.calls(&second), want...)
		if got := f.flights(); got != 3 {
			t.Errorf("%d flights, want 3", got)
		}
	})
}

func TestALeaseThatIsShortAtFirstIsSoonRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.Add(&l, in(2*time.Second), interval)
		pass(15 * time.Second)
		wantTimes(t, "renewals", f.calls(&l), 100*time.Millisecond, 10*time.Second)
		wantEnds(t, f)
	})
}

func TestALeaseThatARenewalLeavesShortIsRenewedHalfwayToItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			return all(batch, Result{Deadline: in(4 * time.Second)})
		}
		var l Lease
		w.Add(&l, in(2*time.Second), interval)
		pass(5 * time.Second)
		wantTimes(t, "renewals", f.calls(&l), 100*time.Millisecond, 2100*time.Millisecond,
			4100*time.Millisecond)
		wantEnds(t, f)
	})
}

func TestARenewalThatAddsNothingDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result { return all(batch, Result{}) }
		var l Lease
		w.Add(&l, in(term), interval)
		pass(time.Minute)
		wantEnds(t, f, end{&l, term, true})
		if got := f.flights(); got > 20 {
			t.Errorf("%d flights for one lease", got)
		}
	})
}

func TestALeaseThatIsOnlyWatchedEndsExactlyAtItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.Add(&l, in(term), 0)
		pass(term - 1)
		wantEnds(t, f)
		pass(1)
		wantEnds(t, f, end{&l, term, true})
		if w.Len() != 0 || w.Remove(&l) || f.flights() != 0 {
			t.Error("the lease is still kept, or was renewed")
		}
	})
}

func TestALeaseWhoseDeadlineHasPassedAlreadyIsLostAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.Add(&l, in(-time.Second), interval)
		synctest.Wait()
		wantEnds(t, f, end{&l, 0, true})
	})
}

func TestALeaseWithoutADeadlineIsLostAtOnceAndOthersAreRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var none, l Lease
		pass(time.Second)
		w.Add(&none, time.Time{}, interval)
		w.Add(&l, in(term), interval)
		pass(time.Minute)
		wantEnds(t, f, end{&none, time.Second, true})
		wantTimes(t, "renewals", f.calls(&l), 11*time.Second, 21*time.Second, 31*time.Second, 41*time.Second,
			51*time.Second, 61*time.Second)
	})
}

func TestALeaseEndsExactlyAtItsDeadlineWhileItsRenewalsHang(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = hang(time.Hour, func(batch []*Lease) []Result { return all(batch, kept()) })
		var l Lease
		w.Add(&l, in(term), interval)
		pass(term - 1)
		wantEnds(t, f)
		pass(1)
		wantEnds(t, f, end{&l, term, true})
		wantTimes(t, "renewals", f.calls(&l), 10*time.Second, 15*time.Second, 20*time.Second, 25*time.Second)
		pass(2 * time.Hour) // the late replies change nothing
		wantEnds(t, f, end{&l, term, true})
		if w.Len() != 0 {
			t.Error("a late reply brought the lease back")
		}
	})
}

func TestARenewalsContextEndsAtTheLatestDeadlineOfItsBatch(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var ended []time.Duration
		f.renew = func(ctx context.Context, _ any, batch []*Lease) []Result {
			<-ctx.Done()
			f.mu.Lock()
			ended = append(ended, time.Since(f.start))
			f.mu.Unlock()
			return all(batch, Result{Err: ctx.Err()})
		}
		var short, long Lease
		w.Add(&short, in(25*time.Second), interval)
		w.Add(&long, in(term), interval)
		pass(time.Hour)
		for _, at := range ended {
			if at != term {
				t.Errorf("contexts ended at %v, want all at %v", ended, term)
			}
		}
		wantEnds(t, f, end{&short, 25 * time.Second, true}, end{&long, term, true})
	})
}

func TestAFailedRenewalIsRetriedWithBackoffButNeverAfterTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			return all(batch, Result{Err: errRefused})
		}
		var l Lease
		w.Add(&l, in(term), interval)
		pass(time.Hour)
		wantEnds(t, f, end{&l, term, true})
		calls := f.calls(&l)
		const least = interval / 16
		backoff := least
		for i := 1; i < len(calls); i++ {
			for backoff > (term-calls[i-1])/2 && backoff > least {
				backoff /= 2
			}
			if gap := calls[i] - calls[i-1]; gap > backoff || gap <= backoff/2 {
				t.Errorf("retry %d came after %v, want (%v, %v]", i, gap, backoff/2, backoff)
			}
			backoff = min(2*backoff, interval/2)
		}
		if last := calls[len(calls)-1]; last >= term || last < term-least {
			t.Errorf("the last renewal left at %v; the deadline was %v", last, term)
		}
		if f.failures() != len(calls) {
			t.Errorf("Failed was called %d times for %d failures", f.failures(), len(calls))
		}
	})
}

func TestASuccessAfterFailuresEndsTheBackoff(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		down := true
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			f.mu.Lock()
			defer f.mu.Unlock()
			if down {
				return all(batch, Result{Err: errRefused})
			}
			return all(batch, kept())
		}
		set := func(v bool) { f.mu.Lock(); down = v; f.mu.Unlock() }
		var l Lease
		w.Add(&l, in(term), interval)
		pass(19 * time.Second)
		set(false)
		pass(16 * time.Second)
		n := len(f.calls(&l))
		set(true)
		pass(interval)
		calls := f.calls(&l)[n:]
		if len(calls) < 2 || calls[1]-calls[0] > interval/16 {
			t.Errorf("renewals after the second failure at %v, want a first retry after at most %v",
				calls, interval/16)
		}
	})
}

func TestLeasesThatFailedNearlyTogetherAreRetriedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			return all(batch, Result{Err: errRefused})
		}
		leases := make([]Lease, 100)
		for i := range leases {
			w.Add(&leases[i], in(19*time.Second), interval) // renewed, each alone, after half of that
			time.Sleep(4 * time.Millisecond)
		}
		pass(time.Minute)
		tries := len(f.calls(&leases[0]))
		if got, limit := f.flights(), len(leases)+4*tries; got > limit {
			t.Errorf("%d flights for %d tries of each lease, want at most %d", got, tries, limit)
		}
	})
}

func TestASilentServerDelaysNoOtherServersRenewals(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var silent, healthy Lease
		silent.Owner, healthy.Owner = "silent", "healthy"
		f.server = func(l *Lease) any { return l.Owner }
		f.renew = func(_ context.Context, server any, batch []*Lease) []Result {
			if server == "silent" {
				time.Sleep(time.Hour)
			}
			return all(batch, kept())
		}
		w.Add(&silent, in(term), interval)
		w.Add(&healthy, in(term), interval)
		pass(65 * time.Second)
		wantTimes(t, "renewals", f.calls(&healthy), 10*time.Second, 20*time.Second, 30*time.Second,
			40*time.Second, 50*time.Second, 60*time.Second)
		wantEnds(t, f, end{&silent, term, true})
		w.Close()
		time.Sleep(time.Hour)
	})
}

func TestABatchThatHangsStarvesNoneBehindIt(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		hung := false
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			f.mu.Lock()
			first := !hung
			hung = true
			f.mu.Unlock()
			if first {
				time.Sleep(time.Hour)
			}
			return all(batch, kept())
		}
		leases := make([]Lease, 3*MaxBatch)
		for i := range leases {
			w.Add(&leases[i], in(term), interval)
		}
		pass(time.Minute)
		wantEnds(t, f)
		f.mu.Lock()
		if f.sent[1].at != interval+interval/2 {
			t.Errorf("the second flight left at %v, want %v", f.sent[1].at, interval+interval/2)
		}
		f.mu.Unlock()
		w.Close()
		time.Sleep(time.Hour)
	})
}

func TestBatchesToOneServerFollowOneAnotherAndSkipWhoNeedsThemNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = hang(time.Second, func(batch []*Lease) []Result { return all(batch, kept()) })
		leases := make([]Lease, 5*MaxBatch)
		for i := range leases {
			w.Add(&leases[i], in(term), interval)
		}
		pass(interval + time.Second/2) // the first batch is out
		f.mu.Lock()
		first := f.sent[0].batch
		f.mu.Unlock()
		for i := range leases {
			switch {
			case slices.Contains(first, &leases[i]):
			case w.Len() > 3*MaxBatch:
				w.Remove(&leases[i])
			case i%2 == 0:
				w.SetInterval(&leases[i], 0)
			}
		}
		pass(3 * time.Second)
		needed := 0
		for i := range leases {
			if leases[i].place > 0 && leases[i].every > 0 {
				needed++
			}
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		sent := 0
		for i, s := range f.sent {
			sent += len(s.batch)
			if s.at != interval+time.Duration(i)*time.Second {
				t.Errorf("batch %d left at %v", i, s.at)
			}
			if i < len(f.sent)-1 && len(s.batch) != MaxBatch {
				t.Errorf("batch %d took %d leases", i, len(s.batch))
			}
		}
		if sent != needed || len(f.sent) != 2 {
			t.Errorf("%d leases sent in %d batches, want %d", sent, len(f.sent), needed)
		}
	})
}

func TestALeaseThatAnotherFlightHasRenewedIsNotSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var hung bool
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			f.mu.Lock()
			first := !hung
			hung = true
			f.mu.Unlock()
			if first {
				time.Sleep(6 * time.Second) // until after the second flight has renewed all
				return all(batch, Result{Err: errRefused})
			}
			return all(batch, kept())
		}
		leases := make([]Lease, 2*MaxBatch)
		for i := range leases {
			w.Add(&leases[i], in(term), interval)
		}
		pass(interval + 7*time.Second)
		if got := f.flights(); got != 3 { // a flight that hangs, and two with all leases
			t.Errorf("%d flights, want 3", got)
		}
		if f.failures() != 0 {
			t.Error("a failure was reported for leases that had been renewed since")
		}
	})
}

func TestRenewalsOutForOneLeaseStayFewHoweverLongItLives(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = func(ctx context.Context, _ any, batch []*Lease) []Result {
			<-ctx.Done()
			return all(batch, Result{Err: ctx.Err()})
		}
		var l Lease
		w.Add(&l, in(24*time.Hour), interval)
		pass(24 * time.Hour)
		if got := f.flights(); got < 4 || got > 20 {
			t.Errorf("%d renewals out for one lease", got)
		}
		wantEnds(t, f, end{&l, 24 * time.Hour, true})
	})
}

func TestAReplySlowerThanTheIntervalStillKeepsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = func(_ context.Context, _ any, batch []*Lease) []Result {
			r := kept()
			time.Sleep(interval + interval/3)
			return all(batch, r)
		}
		var l Lease
		w.Add(&l, in(term), interval)
		pass(100 * interval)
		wantEnds(t, f)
		if got := f.flights(); got > 250 {
			t.Errorf("%d flights in 100 intervals", got)
		}
		w.Remove(&l)
		time.Sleep(2 * interval)
	})
}

func TestALeaseThatIsGoneIsLostOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = hang(8*time.Second, func(batch []*Lease) []Result { return all(batch, Result{Gone: true}) })
		var l Lease
		w.Add(&l, in(term), interval)
		pass(time.Minute)
		wantEnds(t, f, end{&l, 18 * time.Second, false}) // a second flight says so, too, three seconds later
		if f.flights() != 2 {
			t.Errorf("%d flights, want 2", f.flights())
		}
	})
}

func TestARemovedLeaseIsNotBroughtBackOrLostByARenewalInFlight(t *testing.T) {
	for _, result := range []Result{
		{Gone: true}, {Err: errRefused}, {Deadline: time.Now().Add(1000 * time.Hour)},
	} {
		bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
			f.renew = hang(4*time.Second, func(batch []*Lease) []Result { return all(batch, result) })
			var l Lease
			w.Add(&l, in(term), interval)
			pass(interval + time.Second)
			if !w.Remove(&l) {
				t.Error("Remove = false for a lease that was kept")
			}
			if w.Remove(&l) {
				t.Error("Remove = true for a lease that was removed")
			}
			pass(time.Hour)
			wantEnds(t, f)
			if w.Len() != 0 || f.flights() != 1 || f.failures() != 0 {
				t.Errorf("after Remove: %d kept, %d flights, %d failures", w.Len(), f.flights(), f.failures())
			}
		})
	}
}

func TestExtendMovesTheDeadlineLaterOnly(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.Extend(&l, in(term))
		if w.Len() != 0 || !w.Deadline(&l).IsZero() {
			t.Error("Extend did something to a lease that is not kept")
		}
		w.Add(&l, in(20*time.Second), 0)
		w.Extend(&l, in(10*time.Second))
		pass(15 * time.Second)
		wantEnds(t, f)
		w.Extend(&l, in(term))
		pass(term - 1)
		wantEnds(t, f)
		pass(1)
		wantEnds(t, f, end{&l, 15*time.Second + term, true})
		w.Extend(&l, in(term))
		pass(time.Hour)
		wantEnds(t, f, end{&l, 15*time.Second + term, true})

		var over Lease // a lease whose deadline has passed, before its tick or after it
		w.Add(&over, in(0), 0)
		w.Extend(&over, in(term))
		pass(time.Hour)
		if ends := f.ends(); len(ends) != 2 || ends[1].at != 15*time.Second+term+time.Hour {
			t.Errorf("Extend brought back a lease after its deadline: %v", ends)
		}
	})
}

func TestAnIntervalOfZeroStopsRenewalsAndAnotherStartsThemAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var l Lease
		w.SetInterval(&l, interval) // not kept: nothing
		w.Add(&l, in(term), interval)
		pass(12 * time.Second)
		w.SetInterval(&l, 0)
		pass(13 * time.Second)
		wantTimes(t, "renewals", f.calls(&l), 10*time.Second)
		w.SetInterval(&l, 6*time.Second)
		pass(6 * time.Second)
		if got := len(f.calls(&l)); got != 2 {
			t.Errorf("%d renewals, want a second one within the new interval", got)
		}
		w.SetInterval(&l, 0)
		pass(time.Hour)
		if ends := f.ends(); len(ends) != 1 || len(f.calls(&l)) != 2 {
			t.Errorf("ends %v after renewals at %v", ends, f.calls(&l))
		}
	})
}

func TestAFailureThatArrivesAfterRenewalsWereSwitchedOffIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.renew = hang(time.Second, func(batch []*Lease) []Result {
			return all(batch, Result{Err: errRefused})
		})
		var l Lease
		w.Add(&l, in(term), interval)
		pass(interval)
		w.SetInterval(&l, 0)
		pass(time.Hour)
		wantTimes(t, "renewals", f.calls(&l), interval)
		wantEnds(t, f, end{&l, term, true})
		if f.failures() != 0 {
			t.Error("a failure was reported that is not retried")
		}
	})
}

func TestASlowCallbackDelaysNothingElseThatIsDue(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var slow, other, far, near Lease
		near.Owner, far.Owner = "near", "far"
		f.server = func(l *Lease) any {
			if l == &far {
				time.Sleep(time.Second)
			}
			return l.Owner
		}
		f.onLost = func(l *Lease) {
			if l == &slow {
				time.Sleep(time.Minute)
			}
		}
		w.Add(&far, in(term), interval) // the slow Server of this lease must not delay the ends of others
		w.Add(&near, in(term), interval-time.Second)
		w.Add(&slow, in(interval), 0)
		w.Add(&other, in(interval+1), 0)
		pass(interval + time.Second)
		wantEnds(t, f, end{&slow, interval, true}, end{&other, interval + 1, true})
		wantTimes(t, "renewals of the near one", f.calls(&near), interval-time.Second)
		wantTimes(t, "renewals of the far one", f.calls(&far), interval+time.Second)
	})
}

func TestThousandsOfLeasesTakenAtDifferentMomentsTravelInFullBatches(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		const n = 10_000
		leases := make([]Lease, n)
		for i := range leases {
			// Some that are only watched lie between them and must not keep them apart.
			w.Add(&leases[i], in(term), interval)
			if i%100 == 0 {
				w.Add(new(Lease), in(time.Hour+time.Duration(i)*time.Millisecond), 0)
			}
			time.Sleep(interval / n)
		}
		pass(interval)
		before := f.flights()
		pass(10 * interval)
		perInterval := float64(f.flights()-before) / 10
		if least := float64(n / MaxBatch); perInterval < least || perInterval > least+4 {
			t.Errorf("%v flights an interval, want about %v", perInterval, least)
		}
		wantEnds(t, f)
		if got := len(f.calls(&leases[n/2])); got != 11 && got != 12 {
			t.Errorf("a lease was renewed %d times in 11 intervals", got)
		}
	})
}

func TestCloseDropsAllLeasesAndWaitsForNoRenewalThatHangs(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		var canceled time.Duration
		f.renew = func(ctx context.Context, server any, batch []*Lease) []Result {
			<-ctx.Done()
			f.mu.Lock()
			canceled = time.Since(f.start)
			f.mu.Unlock()
			time.Sleep(time.Hour) // ignores the context
			return all(batch, Result{Gone: true})
		}
		leases := make([]Lease, 2*MaxBatch)
		for i := range leases {
			w.Add(&leases[i], in(term), interval)
		}
		pass(12 * time.Second)
		w.Close()
		if d := time.Since(f.start); d != 12*time.Second {
			t.Errorf("Close returned after %v", d-12*time.Second)
		}
		synctest.Wait()
		f.mu.Lock()
		if canceled != 12*time.Second {
			t.Errorf("the flight's context ended at %v, want at the Close", canceled)
		}
		f.mu.Unlock()
		pass(2 * time.Hour)
		wantEnds(t, f)
		if w.Len() != 0 || w.Remove(&leases[0]) || f.flights() != 1 {
			t.Errorf("after Close: %d kept, %d flights", w.Len(), f.flights())
		}
		if w.Add(&leases[0], in(term), interval) {
			t.Error("a closed watchdog took a lease")
		}
		w.Close() // twice is harmless
	})
}

func TestCloseWaitsForACallbackThatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
		f.onLost = func(*Lease) { time.Sleep(time.Second) }
		var l Lease
		w.Add(&l, in(term), 0)
		pass(term)
		w.Close()
		if d := time.Since(f.start); d != term+time.Second {
			t.Errorf("Close returned at %v, want %v", d, term+time.Second)
		}
	})
}

func TestAddingALeaseTwicePanics(t *testing.T) {
	for _, removed := range []bool{false, true} {
		bubble(t, func(t *testing.T, w *Watchdog, f *fake) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			var l Lease
			w.Add(&l, in(term), 0)
			if removed {
				w.Remove(&l)
			}
			w.Add(&l, in(term), 0)
		})
	}
}

func TestAddAndRemoveAllocateNothing(t *testing.T) {
	w := New(newFake())
	defer w.Close()
	leases := make([]Lease, 1000)
	for i := range leases {
		w.Add(&leases[i], in(time.Hour), time.Minute)
	}
	var l Lease
	w.Add(&l, in(time.Hour), time.Minute) // makes room in the heap
	w.Remove(&l)
	l = Lease{}
	if n := testing.AllocsPerRun(1000, func() {
		w.Add(&l, in(time.Hour), time.Minute)
		w.Remove(&l)
		l = Lease{}
	}); n != 0 {
		t.Errorf("%v allocations for Add and Remove", n)
	}
}

func BenchmarkAddRemove(b *testing.B) {
	for _, others := range []int{0, 100, 50_000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			w := New(newFake())
			defer w.Close()
			leases := make([]Lease, others)
			for i := range leases {
				w.Add(&leases[i], in(time.Hour), time.Duration(rand.Int64N(int64(time.Hour))))
			}
			var l Lease
			b.ReportAllocs()
			for b.Loop() {
				w.Add(&l, in(30*time.Second), 10*time.Second)
				w.Remove(&l)
				l = Lease{}
			}
		})
	}
}

// BenchmarkCollect measures how long a tick holds the mutex when a quarter of 50,000 leases is due.
func BenchmarkCollect(b *testing.B) {
	w := New(newFake())
	defer w.Close()
	leases := make([]Lease, 50_000)
	for i := range leases {
		w.Add(&leases[i], in(time.Hour), time.Hour/4)
	}
	for b.Loop() {
		b.StopTimer()
		w.mu.Lock()
		now := time.Since(w.start)
		for i := range leases {
			leases[i].next = now + time.Duration(1+i%4)*time.Minute - time.Minute
		}
		heap.Init(&w.leases)
		w.mu.Unlock()
		b.StartTimer()
		if _, due, _ := w.collect(); len(due) != len(leases)/4 {
			b.Fatal(len(due))
		}
	}
}
