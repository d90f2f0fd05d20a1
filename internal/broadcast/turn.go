package broadcast

import (
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/wakeup"
)

// Where a kind has a turnstile, a session that was refused stands there in line, and asks again when its turn has come.
// Its turn lasts while it holds the lock, so that the next in line asks when the lock is free. But:
//
//   - After showTime another's turn comes: that session is told of the release, however the lock gets free, and asks then.
//   - A turn that has not lasted for PassFor waits for returnTime after the release: a goroutine that comes back by then
//     goes on in it.
const (
	showTime   = 100 * time.Millisecond
	returnTime = 200 * time.Microsecond // about as long as a request takes
)

// Those who stand look after lookTime, and before that after a firstLook if they have not learned who has the lock.
const (
	lookTime  = time.Second
	firstLook = 50 * time.Millisecond
)

// Turnstile is a mutex.Store that has those stand in line whom it has refused.
type Turnstile interface {
	// Stand takes a place behind all others. The caller is counted in the session's work.
	Stand(l *mutex.Lock) Turn
}

// Turn is a place in the line before a lock. It says who should ask next, and grants nothing: whoever asks out of turn is
// only in the way of others. No method blocks.
type Turn interface {
	// Come is closed when it is the turn of this place, and when that cannot be found out.
	Come() <-chan struct{}
	// Look has the place move on to another server if that of the line does not answer. With who, it asks who has the
	// lock, for the error of a wait that ends. Whoever stands there calls it now and then, and is counted in the session's work.
	Look(who bool)
	// Behind reports whether others stood in the line, too. Before the turn has come, they do.
	Behind() bool
	// Void reports whether the turn has come because there is no line.
	Void() bool
	// Leave gives the place up, in the background. It may be called again.
	Leave()
}

// turnstile is that of the lock's Store; nil: it has none.
func (c *crowd) turnstile() Turnstile {
	t, _ := c.Store().(Turnstile)
	return t
}

// place is a session's place in the turnstile of a lock.
type place struct {
	Turn
	began time.Time   // when the lock was first granted in this turn
	end   *time.Timer // at which the turn ends; nil: it goes on
}

// come: it is the turn of the place, which may be nil.
func (p *place) come() bool { return p != nil && wakeup.Closed(p.Come()) }

// begin is called when the lock was granted. p may be nil.
func (p *place) begin() {
	if p == nil {
		return
	}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.endIn(showTime)
}

func (p *place) endIn(d time.Duration) { p.end = time.AfterFunc(d, p.Leave) }

// goOn reports whether the place was not left.
func (p *place) goOn() bool {
	end := p.end
	p.end = nil
	return end == nil || end.Stop()
}

// turnOver is called when the lock was released, of which so many clients were told.
func (c *crowd) turnOver(told int) {
	if c.news != nil { // this session is one of them
		told--
	}
	p := c.turn
	c.last = told > 0 || p != nil && p.Behind()
	if p.come() && time.Since(p.began) < c.PassFor() && p.goOn() {
		p.endIn(returnTime)
	} else {
		c.leaveTurn()
	}
}

// leaveTurn leaves the turnstile.
func (c *crowd) leaveTurn() {
	if c.turn != nil {
		c.turn.Leave()
	}
	c.turn = nil
}

// awaitTurn stands in line until the turn has come. One that nobody is known to be in the way of asks at once.
func (c *crowd) awaitTurn(a *mutex.Acquisition, line Turnstile) error {
	if c.turn != nil && !c.turn.goOn() {
		c.turn = nil
	}
	if c.turn == nil && (c.last || a.Progress() == mutex.Refused) && !a.Try {
		c.turn = &place{Turn: line.Stand(&c.Lock)}
		a.Announce()
	}
	c.last = false
	d := lookTime
	if a.Progress() != mutex.Refused {
		d = firstLook
	}
	for c.turn != nil && !c.turn.come() && !a.Try {
		come, err := c.await(a, d, c.turn.Come())
		switch {
		case err != nil:
			return err
		case come && c.turn.Behind(): // Redis has said so
			a.Advance(mutex.Refused)
		case !come:
			c.turn.Look(d == firstLook)
			d = lookTime
		}
	}
	if c.news != nil {
		c.news.Take() // what comes from here on is news
	}
	return nil
}
