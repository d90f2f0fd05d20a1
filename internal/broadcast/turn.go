package broadcast

import (
	"errors"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
)

// Turnstile has the sessions that wait for a lock stand in line.
type Turnstile interface {
	// Stand takes a place behind all others, and does not block. The caller is counted in the session's work.
	Stand(l *mutex.Lock) Turn
}

// Turn is a place in the line before a lock. It says which session should ask next, and grants nothing: a session that asks
// out of turn is only in the way of others. No method blocks.
type Turn interface {
	// Come is closed when it is the turn of this place, and when that cannot be found out.
	Come() <-chan struct{}
	// Look has the place move on to another server if the line's server does not answer. Look(true) asks for the holder of
	// the lock, for the error of a wait that ends. The goroutine that stands there calls it now and then, and is counted in
	// the session's work.
	Look(who bool)
	// Behind reports whether others stood in the line, too. Before the turn has come, they do.
	Behind() bool
	// Void reports whether the turn has come because there is no line.
	Void() bool
	// Leave gives the place up, in the background. It may be called again.
	Leave()
}

// A session that was refused stands in line, and asks again when its turn has come. The turn lasts while it holds the lock,
// so that the next in line asks when the lock is free. But:
//
//   - After showTime another session has its turn: it is notified of the release, however the lock gets free, and asks then.
//   - A turn that has not lasted for PassFor waits for returnTime after the release: a goroutine that comes back by then
//     goes on in it.
const (
	showTime   = 100 * time.Millisecond
	returnTime = 200 * time.Microsecond // about as long as a request takes
)

// Sessions that stand in line look after lookTime, and before that after firstLook if they have not learned which session has the lock.
// The first in line looks by asking.
const (
	lookTime  = time.Second
	firstLook = 100 * time.Millisecond
)

// line is a crowd that stands in line before it competes.
type line struct {
	crowd
	turnstile Turnstile

	// What follows belongs to the goroutine inside the root gate, and is handed to the next.
	turn   *place
	behind bool // it is the turn of others: the goroutine that comes next stands in line before it asks

	since *time.Time // of the place in which a goroutine stands; nil: none does. Guarded by Mu
}

// place is where the session stands.
type place struct {
	Turn
	since time.Time   // when the wait began of the goroutine that first stood there
	began time.Time   // when the lock was first granted in this turn
	end   *time.Timer // at which it is left; nil: none is set
}

// NewLine makes locks and their Waiting, for a mutex.Kind whose waiters stand in line.
func NewLine(t Turnstile) func(*session.Session) (*mutex.Lock, mutex.Waiting, error) {
	return func(*session.Session) (*mutex.Lock, mutex.Waiting, error) {
		l := &line{turnstile: t}
		return &l.Lock, l, nil
	}
}

// line is the crowd as one that stands in line; nil if it does not.
func (c *crowd) line() *line {
	l, _ := c.Waiting().(*line)
	return l
}

// come: it is the turn of the place, which may be nil.
func (p *place) come() bool { return p != nil && wakeup.Closed(p.Come()) }

func (p *place) leaveIn(d time.Duration) { p.end = time.AfterFunc(d, p.Leave) }

// stay keeps the place from being left, or reports that it has been.
func (p *place) stay() bool {
	end := p.end
	p.end = nil
	return end == nil || end.Stop()
}

// begin is called when the lock was granted. l may be nil.
func (l *line) begin() {
	if l == nil || l.turn == nil {
		return
	}
	if l.turn.began.IsZero() {
		l.turn.began = time.Now()
	}
	l.turn.leaveIn(showTime)
}

// Ended gives up the place of a turn that has lasted for PassFor before the release is sent. The next in line is notified by a
// message, and by the time at which its request comes, the lock is free.
func (l *line) Ended() {
	if p := l.turn; p.come() && time.Since(p.began) >= l.PassFor() {
		l.behind = p.Behind()
		l.leave()
	}
}

// turnOver is called when the lock was released. told is how many clients were notified of that.
func (l *line) turnOver(told int) {
	if l.news != nil { // this session is one of them
		told--
	}
	p := l.turn
	l.behind = l.behind || told > 0 || p != nil && p.Behind()
	if p.come() && time.Since(p.began) < l.PassFor() && p.stay() {
		p.leaveIn(returnTime)
	} else {
		l.leave()
	}
}

// stands: the session has a place, or is to take one. l may be nil.
func (l *line) stands() bool { return l != nil && (l.turn != nil || l.behind) }

// errLook ends a rest.
var errLook = errors.New("time to look")

// restless is sleep for the first in line, because while that one sleeps, all do. Where the data of a lock were deleted, another
// session can have taken and released the lock without any message about the grant that was in the way.
func restless(sleep func(time.Duration) error, most time.Duration) func(time.Duration) error {
	end := time.Now().Add(most)
	return func(d time.Duration) error {
		left := time.Until(end)
		if left <= 0 {
			return errLook
		}
		return sleep(min(d, left))
	}
}

// rested is called when the session has rested and asks again. l may be nil.
func (l *line) rested() {
	if l != nil && l.turn.Void() {
		l.leave() // there may be a turnstile by now
	}
}

// leave gives the place up, if there is one. l may be nil.
func (l *line) leave() {
	if l != nil && l.turn != nil {
		l.turn.Leave()
		l.turn = nil
	}
}

// standing notes since when the session has had the place in which the goroutine inside the root gate stands, or that it does not
// stand in line any more.
func (l *line) standing(since *time.Time) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.since = since
}

// awaitTurn stands in line until the turn has come. A goroutine asks at once if no other session is known to be in its way.
func (l *line) awaitTurn(a *mutex.Acquisition) error {
	if l.turn != nil && !l.turn.stay() {
		l.turn = nil
	}
	if l.turn == nil && (l.behind || a.Progress() == mutex.Refused) && !a.Try {
		l.turn = &place{Turn: l.turnstile.Stand(&l.Lock), since: a.Begun}
		a.Announce()
	}
	l.behind = false
	d := lookTime
	if a.Progress() != mutex.Refused {
		d = firstLook
	}
	if l.turn != nil && !l.turn.come() && !a.Try {
		l.standing(&l.turn.since) // those behind this one know as much of the holder as has been learned in this place
		defer l.standing(nil)
	}
	for l.turn != nil && !l.turn.come() && !a.Try {
		come, err := l.await(a, d, l.turn.Come())
		switch {
		case err != nil:
			return err
		case !come:
			l.turn.Look(d == firstLook)
			d = lookTime
		case l.turn.Behind(): // Redis has said so
			a.Advance(mutex.Refused)
		}
	}
	if l.news != nil {
		l.news.Take() // what comes from here on is news
	}
	return nil
}
