package engine

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// reportBroken is called after an event that has broken an invariant, with an error that describes the
// invariant. If reportBroken is nil, no invariant is checked.
var reportBroken func(error)

// CheckInvariants sets the function to which broken invariants are reported. From then on, each settle ends
// with a check of the state of its lock, in all sessions. Events of a closed session (effects.closed) are not
// checked. CheckInvariants is for tests, and must be called before the first session is made. report is
// called under the mutex of the lock.
func CheckInvariants(report func(error)) { reportBroken = report }

// brokenInvariant returns an error that describes an invariant which the state violates after settle, or
// nil.
func (l *lockState) brokenInvariant(fx *effects) error {
	numExclusive := 0
	for _, g := range l.grants {
		if g.exclusive() {
			numExclusive++
		}
	}
	isTry := func(ln *lane) bool { return ln.noWait }
	isLock := func(ln *lane) bool { return !ln.noWait }
	switch {
	case numExclusive > 1:
		return fmt.Errorf("%d exclusive grants at once", numExclusive)
	case slices.ContainsFunc(l.lanes, isTry), slices.ContainsFunc(l.tries, isLock):
		return errors.New("a lane of Lock is among the lanes of TryLock, or the reverse")
	case l.numReleases < 0:
		return fmt.Errorf("%d releases in flight", l.numReleases)
	case len(l.pending) > 0 && !l.kind.Alone:
		return errors.New("attempts are pending, although no TryLock of this kind waits for them")
	case l.timerAt != 0 && l.timer == nil:
		return fmt.Errorf("no timer fires at %v", l.timerAt)
	case l.suspectAt != 0 && !l.timerFiresBy(l.suspectAt):
		return fmt.Errorf("no timer fires at %v to check whether the session waits for itself", l.suspectAt)
	}
	for _, ln := range slices.Concat(l.lanes, l.tries) {
		if err := ln.brokenInvariant(fx); err != nil {
			return err
		}
	}
	for _, g := range l.grants {
		if err := g.brokenInvariant(); err != nil {
			return err
		}
	}
	return nil
}

// timerFiresBy reports whether the timer of the lock fires at this age of the session or before.
func (l *lockState) timerFiresBy(at time.Duration) bool { return l.timerAt != 0 && l.timerAt <= at }

// brokenInvariant returns an error that describes an invariant which the lane violates, or nil.
func (ln *lane) brokenInvariant(fx *effects) error {
	l := ln.l
	numQueued, numGrants := int32(0), int32(0)
	for _, a := range ln.attempts {
		if err := ln.brokenAttempt(a); err != nil {
			return err
		}
		if a.state == queued {
			numQueued++
		}
	}
	for _, g := range l.grants {
		if g.lane == ln {
			numGrants++
		}
	}
	mostAttempts := len(ln.waiters)
	if ln.want.exclusive() || ln.want.Shared {
		mostAttempts = min(mostAttempts, 1)
	}
	mayWithdraw := ln.want.exclusive() && !l.kind.Fair
	switch {
	case ln.isUnused():
		return errors.New("a lane is unused")
	case ln.numQueued != numQueued:
		return fmt.Errorf("%d attempts are queued, but %d are counted", numQueued, ln.numQueued)
	case ln.numGrants != numGrants:
		return fmt.Errorf("a lane has %d grants, but %d are counted", numGrants, ln.numGrants)
	case ln.numWithdrawing < 0 || ln.numWithdrawing > 0 && !mayWithdraw:
		return fmt.Errorf("%d attempts are being withdrawn", ln.numWithdrawing)
	case len(ln.attempts) > mostAttempts:
		return fmt.Errorf("%d waiters have %d attempts", len(ln.waiters), len(ln.attempts))
	case ln.outageAt != 0 && !l.timerFiresBy(ln.outageAt):
		return fmt.Errorf("no timer fires at %v to check whether an outage ends waits", ln.outageAt)
	}
	return ln.brokenWait(fx)
}

// brokenAttempt returns an error that describes an invariant which an attempt of the lane violates, or nil.
func (ln *lane) brokenAttempt(a *attempt) error {
	switch {
	case a.lane != ln:
		return errors.New("a lane has an attempt of another lane")
	case a.state != requested && a.state != queued:
		return fmt.Errorf("a lane has an attempt that is %v", a.state)
	case !a.inFlight && !ln.l.timerFiresBy(a.nextRequestAt):
		return fmt.Errorf("no timer fires at %v for the next request of an attempt", a.nextRequestAt)
	}
	return nil
}

// brokenWait returns an error that describes an invariant which the waiters of the lane violate, or nil.
func (ln *lane) brokenWait(fx *effects) error {
	l := ln.l
	for _, w := range ln.waiters {
		if w.answered || w.lane != ln || w.want != ln.want {
			return errors.New("a waiter in a lane has an answer, another lane, or another Want")
		}
	}
	if len(ln.waiters) == 0 || len(ln.attempts) > 0 || ln.numGrants > 0 || ln.numWithdrawing > 0 {
		return nil
	}
	fills := fx.age < ln.fillUntil && l.timerFiresBy(ln.fillUntil)
	if !l.kind.Fair || !fills && !l.awaitsFirstReply() {
		return errors.New("waiters wait for nothing")
	}
	return nil
}

// brokenInvariant returns an error that describes an invariant which the grant violates, or nil.
func (g *Grant) brokenInvariant() error {
	l := g.l
	numWriters, numRenewed := int32(0), int32(0)
	for _, e := range g.holds {
		if err := g.brokenHold(e); err != nil {
			return err
		}
		if e.write {
			numWriters++
		}
		if !e.fixed {
			numRenewed++
		}
	}
	first := g.firstToken.(int64)
	switch {
	case !g.held():
		return fmt.Errorf("a grant that is %v is among the held grants", g.state)
	case !slices.Contains(l.lanes, g.lane) && !slices.Contains(l.tries, g.lane):
		return errors.New("a grant belongs to a lane that was removed")
	case g.reservedFor != nil:
		return errors.New("a grant is reserved after the event that brought it")
	case int(g.numEntries) < len(g.holds):
		return fmt.Errorf("%d holds have %d entries", len(g.holds), g.numEntries)
	case g.numEntries == 0 && !g.lingers:
		return errors.New("a grant without an entry is kept")
	case g.numWriters != numWriters || g.numRenewed != numRenewed:
		return fmt.Errorf("%d writers and %d renewed holds, but %d and %d are counted",
			numWriters, numRenewed, g.numWriters, g.numRenewed)
	case g.hasOnlyReaders() && !l.timerFiresBy(g.allTakenUntil):
		return errors.New("no timer fires to downgrade a writer's grant that only readers have")
	case g.token-first != int64(g.numPasses):
		return fmt.Errorf("%d passes from token %d to %d", g.numPasses, first, g.token)
	}
	return nil
}

// brokenHold returns an error that describes an invariant which a hold of the grant violates, or nil.
func (g *Grant) brokenHold(e *Entry) error {
	numInChain := int32(0)
	for _, other := range g.holds {
		if other.root == e.root {
			numInChain++
		}
	}
	switch {
	// When the session closes, an Unlock leaves its hold Held until registry.Shutdown ends the grant.
	case e.g != g || e.state != handle.Held:
		return fmt.Errorf("a grant has a hold that is %v, or of another grant", e.state)
	case e.outer != nil && !slices.Contains(g.holds, e.outer):
		return errors.New("a hold is nested in a hold that has ended")
	case e.root.chain.holds != numInChain:
		return fmt.Errorf("a chain has %d holds, but %d are counted", numInChain, e.root.chain.holds)
	}
	for o := e; e.write && o.outer != nil; o = o.outer {
		if len(o.outer.inner) > 1 {
			return errors.New("a writer is nested beside another hold")
		}
	}
	for in := range e.inner {
		if in.outer != e || !slices.Contains(g.holds, in) {
			return errors.New("a nested hold has ended, or has another outer hold")
		}
	}
	return nil
}
