package watchdog

import "time"

const (
	shortest = time.Millisecond // between renewals or retries
	longest  = never / 8        // between renewals; keeps sums from overflowing
)

// The callers of all functions here hold Watchdog.mu, and put the lease into its new place in the heap.

// setInterval makes every the interval of l and plans its next renewal. A lease that is short at first, as
// that of a lock that was handed over, is soon renewed: until then a short outage ends it.
func (w *Watchdog) setInterval(l *Lease, every, now time.Duration) {
	l.every = 0
	if every > 0 {
		l.every = min(max(every, shortest), longest)
	}
	l.since, l.backoff = now, 0
	w.plan(l, now, now)
	if left := l.deadline - now; left < 2*l.every {
		l.next = min(l.next, now+max(left/20, shortest))
	}
}

// plan has l renewed an interval after from, or sooner if its deadline is near.
func (w *Watchdog) plan(l *Lease, from, now time.Duration) {
	if l.every == 0 {
		l.next = never
		return
	}
	l.next = slot(from+l.every, l.every/4, w.phase)
	if left := l.deadline - now; left < 2*l.every {
		// But not ever closer: with a Keeper that adds nothing to the deadline, it would never be reached.
		l.next = min(l.next, now+max(left/2, shortest))
	}
}

// planAgain has l, which takes off now, take off again for the case that it does not come back. In time, the
// distance doubles: a lease with hours to live must not send hundreds of renewals to a server that hangs.
func (w *Watchdog) planAgain(l *Lease, now time.Duration) {
	l.next = slot(now+max(l.every/2, now-l.since-2*l.every), l.every/4, w.phase)
}

// planRetry has l renewed again after a failure. The slots keep together what failed together, or a server
// that comes back would be greeted with a flight for each lease; their offset, which differs between
// processes, is the jitter.
func (w *Watchdog) planRetry(l *Lease, now time.Duration) {
	least := max(l.every/16, shortest)
	l.backoff = max(min(2*l.backoff, l.every/2), least)
	// A server that is back just before the deadline is back in time.
	for l.backoff > (l.deadline-now)/2 && l.backoff >= 2*least {
		l.backoff /= 2
	}
	l.next = slot(now+l.backoff, l.backoff/2, -w.jitter)
}

// slot returns the start of the slot that t is in; slots are width wide and one starts at phase, which is not
// after t. So the result is after t-width.
func slot(t, width, phase time.Duration) time.Duration {
	return t - (t-phase)%width
}
