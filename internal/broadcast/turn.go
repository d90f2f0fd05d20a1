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

// lookTime is the time between two looks whether the line moves.
const lookTime = time.Second

// place is a session's place in the turnstile of a lock.
type place struct {
	mutex.Turn
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

// awaitTurn stands in line until the turn has come. One that nobody is known to be in the way of asks at once. The others ask
// once before, too, after some time, or the error of a wait that ends could not name the holder.
func (c *crowd) awaitTurn(a *mutex.Acquisition) error {
	if c.turn != nil && !c.turn.goOn() {
		c.turn = nil
	}
	if c.turn == nil && (c.last || a.Progress() == mutex.Refused) && !a.Try {
		c.turn = &place{Turn: c.Kind.Turnstile(&c.Lock)}
		a.Announce()
	}
	c.last = false
	for c.turn != nil && !c.turn.come() && !a.Try {
		refused := a.Progress() == mutex.Refused
		d := lookTime
		if !refused {
			d = min(d, a.Left()/2)
		}
		if _, err := c.await(a, d, c.turn.Come()); err != nil {
			return err
		}
		a.Advance(mutex.Contested)
		c.turn.Look()
		if !refused {
			break
		}
	}
	if c.news != nil {
		c.news.Take() // what comes from here on is news
	}
	return nil
}
