package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// settle decides what follows from an event:
//   - which writer's grant becomes a reader's grant (hasOnlyReaders)
//   - which waiters are served from a grant that the session has (mayServe)
//   - which unused grants are released (mayKeep)
//   - which lanes begin an attempt (needsAttempt), and which attempts are withdrawn (isSurplus)
//   - which waiters are notified that they have to wait (settleWaits)
//   - when the timer fires (setTimer)
//
// settle is called after each event that may change one of these decisions, because no other function makes
// them. There are two exceptions. Before a TryLock sends a request, try decides by mayServe whether a grant
// of the session serves the call. When a call is not answered at once, waitIn sets the timer for the checks
// that a long wait needs. The events after which settle is called are
//   - a call begins to wait, or gives up (acquire.go)
//   - a reply or a message has arrived (attempt.go, and Grant.OnMessage)
//   - a hold is unlocked, or the reply to the release of its grant has arrived (unlock.go)
//   - a grant is lost, or its lease was changed (grant.go)
//   - an outage may have ended waits (lane.go)
//   - the timer fires
//
// settle does not release a grant that was lost or closed (see Grant.end), or an attempt that has failed (see
// attempt.fail).
func (l *lockState) settle(fx *effects) {
	if fx.closed {
		return
	}
	for _, g := range l.grants { // before waiting readers are served, because they may share the grant then
		if g.hasOnlyReaders() && fx.age >= g.allTakenUntil {
			g.downgrade(fx)
		}
	}
	l.serveFromGrants(fx)
	for _, g := range slices.Backward(l.grants) { // backward, because a release removes the grant
		if g.numEntries == 0 && !l.mayKeep(g, fx) {
			l.releaseGrant(g, fx)
		}
	}
	l.settleAttempts(fx)
	l.lanes = slices.DeleteFunc(l.lanes, (*lane).isUnused)
	l.tries = slices.DeleteFunc(l.tries, (*lane).isUnused)
	l.setTimer(fx)
	if reportBroken != nil {
		if err := l.brokenInvariant(fx); err != nil {
			reportBroken(fmt.Errorf("engine: %s %q: %w", l.kind.Letter, l.keys.Name, err))
		}
	}
}

// serveFromGrants serves the waiters of each lane in their order, as long as a grant of the session may serve
// the first of them.
func (l *lockState) serveFromGrants(fx *effects) {
	for ln := range l.allLanes {
		for len(ln.waiters) > 0 {
			g := l.servable(ln, ln.waiters[0], fx)
			if g == nil {
				break
			}
			ln.serve(g, fx)
		}
		for _, g := range l.grants {
			if g.reservedFor == ln && g.numEntries > 0 {
				g.reservedFor = nil
			}
		}
	}
}

// settleAttempts withdraws and begins attempts, notifies waiters that have to wait, and sends requests that
// are due. It first withdraws the surplus attempts of all lanes, because in a fair lock, an attempt of one
// lane may keep another lane from beginning an attempt.
func (l *lockState) settleAttempts(fx *effects) {
	for ln := range l.allLanes {
		for n := len(ln.attempts); n > 0 && ln.isSurplus(n-1); n-- {
			ln.attempts[n-1].withdraw(fx)
		}
	}
	for ln := range l.allLanes {
		for l.needsAttempt(ln, fx) {
			ln.newAttempt(fx)
		}
		ln.settleWaits()
		for _, a := range ln.attempts {
			a.sendIfDue(fx)
		}
	}
}

// servable returns a grant that w, a waiter of the lane, may get without a request. It returns nil if there
// is none.
func (l *lockState) servable(ln *lane, w *waiter, fx *effects) *Grant {
	for _, g := range l.grants {
		if l.mayServe(g, ln, w, fx) {
			return g
		}
	}
	return nil
}

// mayServe reports whether w, a waiter of the lane, may get the grant g of this session without a request to
// Redis.
//
// A grant that has just arrived from Redis serves only the lane that requested it. It serves the first waiter
// of this lane, or all waiters of the lane if they share the grant. If Redis has just prolonged a shared
// grant instead of granting another one (onConfirmed), the grant likewise serves only the lane whose request
// prolonged it.
//
// Later, a grant does not serve a waiter
//   - if the grant belongs to another lane, which has another Want or another place in the queue;
//   - if the waiter wants a fixed lease, or a holder has chosen or lengthened the lease, because such a lease
//     suits only the caller that chose it;
//   - if the grant is not shared, and is taken, because another goroutine has it or because of HoldAtLeast;
//   - if the time of WithHandover has passed since the grant began, because otherwise other sessions could
//     wait forever. The time begins again when Redis prolongs a shared grant because nobody is queued
//     (onConfirmed), and when a writer's grant becomes a reader's grant (downgrade). For a grant that the
//     session may keep while no goroutine has it, the limit is the longer of the times of WithHandover and
//     WithLinger. A fair lock needs no such limit, because no goroutine joins a lane after its first request;
//   - if all tokens of the grant's block are used up;
//   - if too little of the grant's lease is left, or the session is closing.
func (l *lockState) mayServe(g *Grant, ln *lane, w *waiter, fx *effects) bool {
	switch {
	case g.reservedFor != nil:
		return g.reservedFor == ln
	case g.lane != ln:
		return false
	case w.cfg.Lease != 0 || !ln.want.Shared && g.numEntries > 0:
		return false
	}
	return g.mayPassOn(fx)
}

// mayPassOn reports whether the grant may serve another goroutine. It is the part of mayServe that does not
// depend on the waiter.
func (g *Grant) mayPassOn(fx *effects) bool {
	l := g.l
	switch {
	case g.customLease, !g.lane.want.Shared && fx.age < g.takenUntil, g.numPasses >= protocol.Block-1:
		return false
	case !l.kind.Fair && fx.age-g.queueCheckedAt >= g.passOnTime():
		return false
	}
	// The smallest of these three counts, because the first lease of a handed-over grant is at most that
	// long.
	return !wire.Closed(l.s.Closing()) &&
		time.Until(g.deadline()) >= min(l.s.Lease, l.s.WaiterTimeout, protocol.FirstLease)/4
}

// passOnTime returns the time, counted from queueCheckedAt, in which the grant may be passed on, or joined,
// in memory.
func (g *Grant) passOnTime() time.Duration {
	if s := g.l.s; g.lingers {
		return max(s.Handover, s.Linger)
	}
	return g.l.s.Handover
}

// mayKeep reports whether the session may keep an unused grant. This is so if Redis allows it (WithLinger),
// no call of Lock waits, the time of HoldAtLeast has passed, and the grant may still be passed on.
func (l *lockState) mayKeep(g *Grant, fx *effects) bool {
	return g.lingers && g.reservedFor == nil && fx.age >= g.takenUntil && g.mayPassOn(fx) && !l.hasWaiters()
}

// hasWaiters reports whether a call of Lock waits.
func (l *lockState) hasWaiters() bool {
	return slices.ContainsFunc(l.lanes, func(ln *lane) bool { return len(ln.waiters) > 0 })
}

// willPassOn reports whether a grant will probably be passed on to the lane when its holder unlocks. If that
// Unlock releases the grant instead, its settle may begin an attempt for the lane.
func (l *lockState) willPassOn(ln *lane, fx *effects) bool {
	if !ln.want.exclusive() || ln.waiters[0].cfg.Lease != 0 {
		return false
	}
	return slices.ContainsFunc(l.grants, func(g *Grant) bool {
		return g.lane == ln && !g.customLease && fx.age >= g.takenUntil
	})
}

// needsAttempt reports whether the lane should begin another attempt. A lane has no more attempts than
// waiters. It has at most one attempt if one grant can serve the whole lane, or if its last attempt had to
// wait in the queue in Redis.
//
// The lane of a TryLock begins its attempt at once. Any other lane begins none while
//   - one of its attempts is queued in Redis, because the place of this attempt is for the whole lane;
//   - the lane wants all permits of a lock that is not fair, and a withdrawn attempt of the lane may still be
//     queued. A new attempt would wait behind the withdrawn attempt;
//   - a grant of this session will probably be passed on to the lane (willPassOn);
//   - the lock is fair, and a lane has an attempt in the state requested, because the lanes must be queued in
//     order;
//   - the lock is fair, and the lane waits for more goroutines (isFilling).
func (l *lockState) needsAttempt(ln *lane, fx *effects) bool {
	most := len(ln.waiters)
	if ln.hadToQueue || ln.want.Shared || ln.want.exclusive() {
		most = min(most, 1)
	}
	switch {
	case len(ln.attempts) >= most:
		return false
	case ln.noWait:
		return true
	case ln.numQueued > 0, ln.numWithdrawing > 0, l.willPassOn(ln, fx):
		return false
	}
	return !l.kind.Fair || !l.awaitsFirstReply() && !l.isFilling(ln, fx)
}

// awaitsFirstReply reports whether a lane of Lock calls has an attempt in the state requested. In a fair
// lock, such an attempt has not got its place in the queue yet.
func (l *lockState) awaitsFirstReply() bool {
	return slices.ContainsFunc(l.lanes, func(ln *lane) bool {
		return slices.ContainsFunc(ln.attempts, func(a *attempt) bool { return a.state == requested })
	})
}

// isFilling reports whether a lane of a fair lock waits for more goroutines (laneFillTime). When the session
// has neither a grant nor an attempt any more, the lane stops waiting. If the lane's request then reaches
// Redis before the session's last release does, that release hands the lock over to the lane. But if another
// session wants the lock, that session is next anyway. So the lane then keeps waiting, because the goroutine
// of the last Unlock may want the lock again, and join the lane.
func (l *lockState) isFilling(ln *lane, fx *effects) bool {
	return fx.age < ln.fillUntil && (l.contended || l.isBusy())
}

// isBusy reports whether the session has a grant, or an attempt of a Lock.
func (l *lockState) isBusy() bool {
	hasAttempts := func(ln *lane) bool { return len(ln.attempts) > 0 }
	return len(l.grants) > 0 || slices.ContainsFunc(l.lanes, hasAttempts)
}

// isSurplus reports whether no waiter needs the attempt with index i, which is the last of the lane. This is
// so if there are more attempts than waiters, or if an attempt for all permits requests another lease than
// the first waiter wants.
func (ln *lane) isSurplus(i int) bool {
	return i >= len(ln.waiters) || ln.want.exclusive() && ln.attempts[i].lease != ln.waiters[0].cfg.Lease
}

// setTimer sets the timer to the next time at which settle may decide differently without another event. A
// timer that is set already is only changed to fire earlier. A timer that fires too early does no harm,
// because settle then sets it again.
func (l *lockState) setTimer(fx *effects) {
	next := time.Duration(0)
	lookAt := func(at time.Duration) {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	lookAt(l.suspectAt)
	for ln := range l.allLanes {
		lookAt(ln.outageAt)
		if len(ln.waiters) > 0 && fx.age < ln.fillUntil {
			lookAt(ln.fillUntil)
		}
		for _, a := range ln.attempts {
			if !a.inFlight {
				lookAt(a.nextRequestAt)
			}
		}
	}
	for _, g := range l.grants {
		if g.numEntries == 0 { // the session keeps the grant
			lookAt(g.queueCheckedAt + g.passOnTime())
		}
		if g.hasOnlyReaders() { // HoldAtLeast of the writer keeps all permits until then
			lookAt(g.allTakenUntil)
		}
	}
	switch {
	case next == 0 || l.timerAt != 0 && l.timerAt <= next:
	case l.timer == nil:
		l.timer = time.AfterFunc(next-fx.age, l.onTimer)
		l.timerAt = next
	default:
		l.timer.Reset(next - fx.age)
		l.timerAt = next
	}
}

// onTimer handles the event that the timer fires.
func (l *lockState) onTimer() {
	if !l.s.Begin() {
		return // waiters and grants end because the session closes
	}
	defer l.s.End()
	fx := l.begin()
	l.timerAt = 0
	if l.suspectAt != 0 && l.suspectAt <= fx.age {
		l.warnOfItself(&fx)
	}
	for ln := range l.allLanes {
		if ln.outageAt != 0 && ln.outageAt <= fx.age {
			ln.outageAt = 0
			fx.background(ln.endWaitsInOutage)
		}
	}
	fx.commit()
}
