package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// reportBroken is called with the first invariant that an event has broken; nil: invariants are not checked.
var reportBroken func(error)

// CheckInvariants makes every event of every session check the state that it leaves. It is for tests, and
// must be called before the first session is made. report is called under the mutex of a lock.
func CheckInvariants(report func(error)) { reportBroken = report }

// brokenInvariant returns the first invariant that the state does not have after settle; nil: it has all.
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
		return fmt.Errorf("a lane of Lock is among those of TryLock, or the reverse")
	case l.numReleases < 0:
		return fmt.Errorf("%d releases in flight", l.numReleases)
	case len(l.pending) > 0 && !l.kind.Alone:
		return fmt.Errorf("attempts are pending, which no TryLock waits for")
	case l.timerAt != 0 && l.timer == nil:
		return fmt.Errorf("no timer fires at %v", l.timerAt)
	case l.suspectAt != 0 && !l.timerFiresBy(l.suspectAt):
		return fmt.Errorf("no timer fires for the look for a wait for itself at %v", l.suspectAt)
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

// brokenInvariant returns an invariant that the lane does not have; nil: it has all.
func (ln *lane) brokenInvariant(fx *effects) error {
	l := ln.l
	numQueued, numGrants := int32(0), int32(0)
	for _, a := range ln.attempts {
		switch {
		case a.lane != ln:
			return fmt.Errorf("a lane has an attempt of another lane")
		case a.state != requested && a.state != queued:
			return fmt.Errorf("a lane has an attempt that is %v", a.state)
		case !a.inFlight && !l.timerFiresBy(a.nextRequestAt):
			return fmt.Errorf("no timer fires for the next request of an attempt at %v", a.nextRequestAt)
		case a.state == queued:
			numQueued++
		}
	}
	for _, g := range l.grants {
		if g.lane == ln {
			numGrants++
		}
	}
	for _, w := range ln.waiters {
		if w.answered || w.lane != ln || w.want != ln.want {
			return fmt.Errorf("a waiter has an answer, or is in the lane of another want")
		}
	}
	isQueueable := ln.want.exclusive() && !l.kind.Fair
	mostAttempts := len(ln.waiters)
	if ln.want.exclusive() || ln.want.Shared {
		mostAttempts = min(mostAttempts, 1)
	}
	fills := fx.age < ln.fillUntil && l.timerFiresBy(ln.fillUntil)
	comesNext := l.kind.Fair && (l.awaitsFirstReply() || fills)
	hasCause := len(ln.attempts) > 0 || ln.numGrants > 0 || ln.numWithdrawing > 0 || comesNext
	switch {
	case ln.isUnused():
		return fmt.Errorf("a lane is unused")
	case ln.numQueued != numQueued:
		return fmt.Errorf("%d attempts are queued, but %d are counted", numQueued, ln.numQueued)
	case ln.numGrants != numGrants:
		return fmt.Errorf("a lane has %d grants, but %d are counted", numGrants, ln.numGrants)
	case ln.numWithdrawing < 0 || ln.numWithdrawing > 0 && !isQueueable:
		return fmt.Errorf("%d attempts are being withdrawn", ln.numWithdrawing)
	case len(ln.attempts) > mostAttempts:
		return fmt.Errorf("%d waiters have %d attempts", len(ln.waiters), len(ln.attempts))
	case len(ln.waiters) > 0 && !hasCause:
		return fmt.Errorf("waiters wait for nothing")
	case ln.outageAt != 0 && !l.timerFiresBy(ln.outageAt):
		return fmt.Errorf("no timer fires for the look for an outage at %v", ln.outageAt)
	}
	return nil
}

// brokenInvariant returns an invariant that the grant does not have; nil: it has all.
func (g *Grant) brokenInvariant() error {
	l := g.l
	numWriters, numRenewed := int32(0), int32(0)
	chains := map[*Entry]int32{}
	for _, e := range g.holds {
		switch {
		case e.g != g || e.state != handle.Held || e.unlocked:
			return fmt.Errorf("a grant has a hold that is %v, or of another grant", e.state)
		case e.outer != nil && !slices.Contains(g.holds, e.outer):
			return fmt.Errorf("a hold is nested in one that has ended")
		}
		for in := range e.inner {
			if in.outer != e || !slices.Contains(g.holds, in) {
				return fmt.Errorf("a hold has a nested one that has ended, or is elsewhere")
			}
		}
		if e.write {
			numWriters++
		}
		if !e.fixed {
			numRenewed++
		}
		chains[e.root]++
	}
	for root, n := range chains {
		if root.chain.holds != n {
			return fmt.Errorf("a chain has %d holds, but %d are counted", n, root.chain.holds)
		}
	}
	switch {
	case !g.held():
		return fmt.Errorf("a grant that is %v is among the held ones", g.state)
	case !slices.Contains(l.lanes, g.lane) && !slices.Contains(l.tries, g.lane):
		return fmt.Errorf("a grant is of a lane that is forgotten")
	case g.reservedFor != nil:
		return fmt.Errorf("a grant is reserved after the event that brought it")
	case int(g.numEntries) < len(g.holds):
		return fmt.Errorf("%d holds have %d entries", len(g.holds), g.numEntries)
	case g.numEntries == 0 && !g.lingers:
		return fmt.Errorf("a grant is kept without an entry")
	case g.numWriters != numWriters || g.numRenewed != numRenewed:
		return fmt.Errorf("%d writers and %d renewed holds, but %d and %d are counted",
			numWriters, numRenewed, g.numWriters, g.numRenewed)
	case g.token < g.firstToken.(int64) || g.token-g.firstToken.(int64) != int64(g.numPasses):
		return fmt.Errorf("%d passes from token %d to %d", g.numPasses, g.firstToken, g.token)
	}
	return nil
}
