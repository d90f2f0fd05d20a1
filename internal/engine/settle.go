package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// settle decides what follows from an event. No other function makes these decisions, so settle is called
// after each event that may change one of them:
//   - which waiters are served from a grant that the session has (mayServe)
//   - which unused grants are released (mayKeep)
//   - which lanes begin an attempt (needsAttempt), and which attempts are withdrawn (isSurplus)
//   - when to look again (setTimer)
//
// The events are
//   - a call begins to wait, or gives up (acquire.go)
//   - a request has its reply, or a message has arrived (attempt.go)
//   - a hold is unlocked, or its release has a reply (unlock.go)
//   - a grant is lost, or its lease was changed (grant.go)
//   - an outage may have ended waits (lane.go)
//   - the time has come that setTimer has chosen
//
// A grant or an attempt that ended otherwise, as by a loss or an error, is released by the event itself. A
// TryLock looks at the grants by itself, with mayServe, before it waits for a reply.
func (l *lockState) settle(fx *effects) {
	if fx.closed {
		return
	}
	l.serveFromGrants(l.tries, fx)
	l.serveFromGrants(l.lanes, fx)
	for _, g := range slices.Backward(l.grants) { // backward, because a release removes the grant
		if g.numEntries == 0 && !l.mayKeep(g, fx) {
			l.releaseGrant(g, fx)
		}
	}
	l.settleAttempts(l.tries, fx)
	l.settleAttempts(l.lanes, fx)
	l.lanes = slices.DeleteFunc(l.lanes, (*lane).isUnused)
	l.tries = slices.DeleteFunc(l.tries, (*lane).isUnused)
	l.setTimer(fx)
	if reportBroken != nil {
		if err := l.brokenInvariant(fx); err != nil {
			reportBroken(fmt.Errorf("engine: %s %q: %w", l.kind.Letter, l.keys.Name, err))
		}
	}
}

// serveFromGrants serves waiters as long as a grant of the session may serve the first one.
func (l *lockState) serveFromGrants(lanes []*lane, fx *effects) {
	for _, ln := range lanes {
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

// settleAttempts withdraws and begins attempts, and sends requests that are due. It withdraws in all lanes
// first, because an attempt may keep another lane of a fair lock from beginning one.
func (l *lockState) settleAttempts(lanes []*lane, fx *effects) {
	for _, ln := range lanes {
		for n := len(ln.attempts); n > 0 && ln.isSurplus(n-1); n-- {
			ln.attempts[n-1].withdraw(fx)
		}
	}
	for _, ln := range lanes {
		for l.needsAttempt(ln, fx) {
			ln.newAttempt(fx)
		}
		for _, a := range ln.attempts {
			a.sendIfDue(fx)
		}
	}
}

// servable returns a grant that the next waiter of the lane may have without a request. It returns nil if
// there is none.
func (l *lockState) servable(ln *lane, w *waiter, fx *effects) *Grant {
	for _, g := range l.grants {
		if l.mayServe(g, ln, w, fx) {
			return g
		}
	}
	return nil
}

// mayServe reports whether a waiter of the lane may have a grant of this session without a request to Redis.
//
// A grant that has just come from Redis is for the lane that requested it: for the first waiter, or for all
// if they share it. The same holds when Redis has confirmed a shared grant because no other session waits.
//
// Later, a grant does not serve a waiter
//   - if the grant is of another lane, because that wants something else, or has another place in the queue;
//   - if the waiter or a holder chose a lease, because that lease is not for others;
//   - if the grant is not shared and somebody has it, or HoldAtLeast keeps it taken;
//   - if the time of WithHandover has passed since Redis last said whether another session waits, because
//     other sessions must not wait indefinitely. If the session may keep the grant, the time of WithLinger
//     counts if it is longer. A fair lock needs no such limit, because no goroutine joins a lane after
//     its first request;
//   - if the tokens of its block are used up;
//   - if too little of its lease is left, or the session is closing.
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
	// The first lease of a grant that Redis handed over in the queue is at most the smallest of these three.
	return !wire.Closed(l.s.Closing()) &&
		time.Until(g.deadline()) >= min(l.s.Lease, l.s.WaiterTimeout, protocol.FirstLease)/4
}

// passOnTime returns for how long after queueCheckedAt the grant may be passed on, or joined, in memory.
func (g *Grant) passOnTime() time.Duration {
	if s := g.l.s; g.lingers {
		return max(s.Handover, s.Linger)
	}
	return g.l.s.Handover
}

// mayKeep reports whether the session may keep an unused grant. It may if Redis allows it (WithLinger), no
// call of Lock waits, HoldAtLeast has passed, and the grant may still be passed on.
func (l *lockState) mayKeep(g *Grant, fx *effects) bool {
	return g.lingers && g.reservedFor == nil && fx.age >= g.takenUntil && g.mayPassOn(fx) && !l.hasWaiters()
}

// hasWaiters reports whether a call of Lock waits.
func (l *lockState) hasWaiters() bool {
	return slices.ContainsFunc(l.lanes, func(ln *lane) bool { return len(ln.waiters) > 0 })
}

// willPassOn reports whether a grant is expected to be passed on to the lane when its holder unlocks. If it
// is released instead, the lane may begin an attempt in that event.
func (l *lockState) willPassOn(ln *lane, fx *effects) bool {
	if !ln.want.exclusive() || ln.waiters[0].cfg.Lease != 0 {
		return false
	}
	return slices.ContainsFunc(l.grants, func(g *Grant) bool {
		return g.lane == ln && !g.customLease && fx.age >= g.takenUntil
	})
}

// needsAttempt reports whether the lane should begin another attempt. A lane has no more attempts than
// waiters, and only one if one grant can serve the whole lane, or if another session wants the lock.
//
// The lane of a TryLock begins its attempt at once. Any other lane begins none while
//   - one of its attempts is queued in Redis, which is the place of the whole lane;
//   - a withdrawn attempt may still be queued: the lane would wait behind itself;
//   - a grant of this session is going to be passed on to it;
//   - another lane of a fair lock waits for its first reply, because lanes must be queued in order;
//   - it waits for more goroutines, as isFilling says.
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

// awaitsFirstReply reports whether a lane of a fair lock waits for the reply to its first request.
func (l *lockState) awaitsFirstReply() bool {
	return slices.ContainsFunc(l.lanes, func(ln *lane) bool {
		return slices.ContainsFunc(ln.attempts, func(a *attempt) bool { return a.state == requested })
	})
}

// isFilling reports whether a lane of a fair lock waits for more goroutines (laneFillTime). If the session
// has nothing any more, it does not wait on: its request may come before the release, which then serves it.
// But if another session wants the lock, that one is next, and the goroutine that has just unlocked may
// come back.
func (l *lockState) isFilling(ln *lane, fx *effects) bool {
	return fx.age < ln.fillUntil && (l.contended || l.isBusy())
}

// isBusy reports whether the session has the lock, or waits for it in Redis.
func (l *lockState) isBusy() bool {
	hasAttempts := func(ln *lane) bool { return len(ln.attempts) > 0 }
	return len(l.grants) > 0 || slices.ContainsFunc(l.lanes, hasAttempts)
}

// isSurplus reports whether no waiter needs the attempt with this index, which is the last of the lane: there
// are more attempts than waiters, or the first waiter wants another lease.
func (ln *lane) isSurplus(i int) bool {
	return i >= len(ln.waiters) || ln.want.exclusive() && ln.attempts[i].lease != ln.waiters[0].cfg.Lease
}

// setTimer sets the timer to the next time at which settle may decide differently without another event. A
// timer that is set is only ever made to fire earlier. If it fires too early, settle runs once more.
func (l *lockState) setTimer(fx *effects) {
	next := time.Duration(0)
	lookAt := func(at time.Duration) {
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	lookAt(l.suspectAt)
	for _, lanes := range [...][]*lane{l.lanes, l.tries} {
		for _, ln := range lanes {
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
	}
	for _, g := range l.grants {
		if g.numEntries == 0 { // which the session keeps
			lookAt(g.queueCheckedAt + g.passOnTime())
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

// onTimer handles the event that time has passed.
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
	for _, lanes := range [...][]*lane{l.lanes, l.tries} {
		for _, ln := range lanes {
			if ln.outageAt != 0 && ln.outageAt <= fx.age {
				ln.outageAt = 0
				fx.background(ln.endWaitsInOutage)
			}
		}
	}
	fx.commit()
}
