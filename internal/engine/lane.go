package engine

import (
	"slices"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
)

// A lane has calls of a session that wait for one lock with equal Wants. Its attempts request grants from
// Redis on behalf of all these calls. A grant serves the first waiter, whichever attempt was granted. A
// TryLock that sends a request has a lane to itself. lockState.mu guards all fields except l, want and
// noWait, which never change.
//
// A fair lock serves the goroutines of all sessions in the order in which they came. A goroutine that joined
// a lane after the first request of this lane could overtake goroutines of other sessions. So when the first
// request is sent, the lane is sealed, and goroutines that come later join a new lane. A grant is passed on
// in memory only within its lane. The lanes of a fair lock send their first requests one after the other, so
// that they are queued in the order in which they were made.
type lane struct {
	l         *lockState
	want      Want
	waiters   []*waiter  // waiting calls, which are served in this order
	attempts  []*attempt // attempts that are requested or queued, the oldest first
	numQueued int32      // number of attempts that wait in the queue in Redis
	numGrants int32      // number of held grants that belong to this lane
	// numWithdrawing is the number of withdrawn attempts that may still be queued in Redis. It counts only
	// attempts for all permits of a lock that is not fair.
	numWithdrawing int32
	numLateBefore  int32         // initial value of attempt.numLate for the next attempt
	fillUntil      time.Duration // age until which the lane waits for more goroutines; 0: it does not wait
	outageAt       time.Duration // age at which to check whether an outage ends waits; 0 means never
	noWait         bool          // the lane is for one TryLock
	hadToQueue     bool          // Redis has queued an attempt, and has granted none at once since then
	sealed         bool          // goroutines that come now join another lane
	waits          bool          // the waiters have to wait, and were notified of that (settleWaits)

	// Initial space for attempts and waiters. Most lanes need no more, so this saves allocations.
	inlineAttempt [1]*attempt
	inlineWaiter  [1]*waiter
}

// laneFillTime is the longest time for which a lane of a fair lock waits for more goroutines before its first
// request. A lane waits if the session has the lock, or already waits for it, when the lane is made (isBusy).
// So the lane may be queued in Redis up to 1 ms later. Without this wait, each goroutine of a busy session
// would have a lane of its own, which costs two requests.
const laneFillTime = time.Millisecond

// findLane returns the lane that a waiter would join, or nil if there is none.
func (l *lockState) findLane(w Want) *lane {
	for _, ln := range slices.Backward(l.lanes) {
		if ln.want == w && !ln.sealed && !(l.kind.Fair && len(ln.waiters) >= protocol.Block) {
			return ln
		}
	}
	return nil
}

// allLanes iterates over the lanes of TryLock calls, and then over the lanes of Lock calls.
func (l *lockState) allLanes(yield func(*lane) bool) {
	for _, lanes := range [...][]*lane{l.tries, l.lanes} {
		for _, ln := range lanes {
			if !yield(ln) {
				return
			}
		}
	}
}

// laneFor returns the lane that a waiter joins. If findLane finds none, laneFor makes a lane behind all
// others.
func (l *lockState) laneFor(w Want, fx *effects) *lane {
	if ln := l.findLane(w); ln != nil {
		return ln
	}
	ln := &l.inlineLane
	if ln.l != nil {
		ln = new(lane)
	}
	ln.reset(l, w)
	if n := len(l.lanes); n > 0 && l.kind.Fair {
		l.lanes[n-1].sealed = true // otherwise later goroutines could join this lane and overtake the new one
		l.lanes[n-1].fillUntil = 0
	}
	l.lanes = append(l.lanes, ln)
	if l.kind.Fair && l.isBusy() {
		ln.fillUntil = fx.age + laneFillTime
	}
	return ln
}

// tryLane makes a lane for one TryLock.
func (l *lockState) tryLane(w Want) *lane {
	ln := new(lane)
	ln.reset(l, w)
	ln.noWait = true
	l.tries = append(l.tries, ln)
	return ln
}

// reset makes ln an empty lane.
func (ln *lane) reset(l *lockState, w Want) {
	*ln = lane{l: l, want: w}
	ln.attempts, ln.waiters = ln.inlineAttempt[:0], ln.inlineWaiter[:0]
}

// isUnused reports whether the lane has nothing left, so that it can be removed.
func (ln *lane) isUnused() bool {
	return len(ln.waiters) == 0 && len(ln.attempts) == 0 && ln.numGrants == 0 && ln.numWithdrawing == 0
}

// settleWaits notifies the waiters when they have to wait. This is so if an attempt is queued, or if the lane
// needs no attempt yet. But if an attempt is in the state requested, its reply may still bring a grant at
// once. Only observers need the notice (EventWaiting).
func (ln *lane) settleWaits() {
	before := ln.waits
	ln.waits = len(ln.waiters) > 0 && (ln.numQueued > 0 || len(ln.attempts) == 0)
	if ln.waits && !before && ln.l.s.Observer != nil {
		for _, w := range ln.waiters {
			w.notifyWaits()
		}
	}
}

// remove takes a waiter out of the lane. It returns false if the waiter was answered already.
func (ln *lane) remove(w *waiter) bool {
	i := slices.Index(ln.waiters, w)
	switch {
	case i == 0 && len(ln.waiters) > 1: // do not move the other waiters, of which there may be very many
		ln.waiters[0] = nil
		ln.waiters = ln.waiters[1:]
	case i >= 0:
		ln.waiters = slices.Delete(ln.waiters, i, i+1)
	}
	return i >= 0
}

// serve gives the first waiter an entry of a grant.
func (ln *lane) serve(g *Grant, fx *effects) {
	g.addEntry()
	if !ln.want.Shared {
		g.reservedFor = nil
	}
	ln.answer(ln.waiters[0], g, nil, fx)
}

// fail answers waiters when an attempt has ended with an error. If the goroutines of the lane share grants,
// all get the error. Otherwise the first waiter gets it, and the others wait for another attempt.
func (ln *lane) fail(err error, fx *effects) {
	for len(ln.waiters) > 0 {
		ln.answer(ln.waiters[0], nil, err, fx)
		if !ln.want.Shared {
			break
		}
	}
}

// answer gives a waiter its grant or its error, takes it out of the lane, and wakes it. If the waiter is not
// in the lane any more, answer does nothing.
func (ln *lane) answer(w *waiter, g *Grant, err error, fx *effects) {
	if ln.remove(w) {
		w.grant, w.err, w.answered = g, err, true
		if w.news != nil {
			fx.wake(w)
		}
	}
}

// watchOutage makes sure that endWaitsInOutage runs at this age of the session, or earlier. An error of a
// request can also end a wait in an outage (call.OutageIsTooLong). But this is not enough, because a
// request that is stuck for longer than the lease returns no error in time.
func (ln *lane) watchOutage(at time.Duration) {
	if ln.outageAt == 0 || at < ln.outageAt {
		ln.outageAt = at
	}
}

// endWaitsInOutage ends each wait of the lane that has no deadline, and has been in an outage for as long as
// the session's lease. If other waits without a deadline remain, endWaitsInOutage runs again when the first
// of them may have to end.
func (ln *lane) endWaitsInOutage() {
	l := ln.l
	since, err := l.s.Link.Trouble(l.s.Ctx, l.keys.LockKey()) // without the mutex, because Trouble may block
	fx := l.begin()
	now := time.Now()
	for _, w := range slices.Clone(ln.waiters) { // answer removes waiters
		if w.bounded {
			continue
		}
		begun := since // start of the outage, or of the wait if that is later
		if begun.Before(w.begun) {
			begun = w.begun
		}
		end := begun.Add(l.s.Lease)
		if err == nil {
			end = now.Add(l.s.Lease)
		}
		if left := end.Sub(now); left > 0 {
			ln.watchOutage(fx.age + left)
		} else {
			ln.answer(w, nil, l.kind.Failed(l.keys, failure.Outage(begun, err)), &fx)
		}
	}
	fx.commit()
}
