package engine

import (
	"slices"
	"time"
)

// Of a fair kind, only the queue in Redis says which goroutine of all sessions is next. So a lane is the
// goroutines that had come when its request left: it is full then, and goroutines that come later make the
// next lane. A grant passes in memory within its lane alone. One lane asks at a time, so that they stand in
// the queue in the order of their making.

// order is what a pool knows of the turns of sessions and lanes: of most kinds, rivals alone. pool.mu guards
// it.
type order struct {
	asking *attempt      // whose first request is under way; nil, also of other kinds: none
	rivals bool          // other sessions want the lock, as far as is known
	back   int           // how many had the lock one after the other, and may come back
	until  time.Duration // age of the session until which they are waited for; 0: until their grant ends
}

// Goroutines that take turns at a lock stay together in the queue if they ask together.
// So goroutines that arrive while this session has the lock wait a moment for its unlock.
// Where other sessions wait, too, they also wait for the goroutine that unlocks last to
// come back: at most formTime, and not longer than formLong if its Unlock takes that long.
// Behind lanes of this session they wait for formLong, which saves requests.
// Each is about as long as a request takes, so waiting hardly costs them a later place.
const (
	formTime = 200 * time.Microsecond
	formLong = 2 * time.Millisecond
)

// forming is for how long a lane of a fair kind waits for more goroutines before it asks. mu held.
func (l *lane) forming() time.Duration {
	p := l.p
	switch {
	case p.behindOwn():
		return formLong
	case len(p.grants) > 0 || l.waiters.n < p.back && (p.until == 0 || p.s().Age() < p.until):
		return formTime
	}
	return 0
}

// behindOwn: as far as is known, only this session's attempts stand before the goroutines that make the next
// lane. So these lose nothing by waiting for more to join. mu held.
func (p *pool) behindOwn() bool {
	return !p.rivals && len(p.lanes) > 0 && len(p.lanes[0].attempts) > 0
}

// expect notes how many goroutines have the lock one after the other from now on. mu held.
func (p *pool) expect(n int) {
	if p.kind.Fair {
		p.back, p.until = n, 0
	}
}

// ended lets the next lane ask: a grant is over. told: Redis knows, or could not be told. mu held.
func (p *pool) ended(told bool) {
	if !p.kind.Fair || p.behindOwn() { // their time runs
		return
	}
	wait := formLong
	if told {
		wait = formTime
	}
	p.until = p.s().Age() + wait
	for _, l := range p.lanes {
		switch {
		case l.full || !l.wanting():
		case p.rivals:
			l.askAfter(wait)
		default:
			l.askNow()
		}
	}
}

// firstAnswered lets the next lane ask: the first request of an attempt is answered, or will be without an
// effect on it. mu held.
func (a *attempt) firstAnswered() {
	p := a.l.p
	if p.asking == a {
		p.asking = nil
		for _, l := range slices.Clone(p.lanes) { // one that asks may be forgotten
			l.askNow()
		}
	}
}

// others reports whether other sessions want the lock, as far as is known. mu is not held.
func (p *pool) others() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rivals
}
