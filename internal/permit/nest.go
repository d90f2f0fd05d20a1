package permit

import (
	"context"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
)

// ErrUpgrade is why a holder of one permit does not get all of them.
var ErrUpgrade = errors.New("lockline: a reader cannot become the writer: unlock the read hold first")

// outer finds the live hold that an acquisition nests in, at found or above. nil: none. The error says that
// such a hold was lost. mu held.
func (a *acquisition) outer(found *Entry) (*Entry, error) {
	for o := found; o != nil; o = o.outer {
		switch o.state {
		case handover.Held:
			return o, nil
		case handover.Lost, handover.Closed:
			return nil, a.p.fail(handle.ErrorOf(o.state)) // to acquire afresh would hide the loss
		}
	}
	return nil, nil // all are unlocked: this is a newcomer
}

// nest enters the grant of a hold that it descends from. Neither an entry nor an error: the hold is over,
// look again. mu is held; nest releases it.
func (a *acquisition) nest(outer *Entry, try bool) (*Entry, error) {
	p, g := a.p, outer.g
	defer p.mu.Unlock()
	if a.want.exclusive() && !g.exclusive() {
		return nil, p.fail(ErrUpgrade)
	}
	for !outer.admits(a) {
		if try {
			return nil, p.kind.Locked(a.lockedHere(g))
		}
		if outer.changed == nil {
			outer.changed = make(chan struct{})
		}
		changed := outer.changed
		p.mu.Unlock() // whatever it waits for needs mu
		_, ok := wakeup.Await(&a.bounds, changed)
		p.mu.Lock()
		if !ok {
			return nil, a.over(a.lockedHere(g))
		}
		if outer.state != handover.Held || a.want.exclusive() && !g.exclusive() { // over, or reduced to a reader's share
			return nil, nil
		}
	}
	if outer.state != handover.Held {
		return nil, nil
	}
	if !time.Now().Before(g.deadline()) { // the timer that ends it is late
		p.mu.Unlock()
		g.end(handover.Lost, failure.ErrExpired)
		p.mu.Lock()
		return nil, nil
	}
	p.mu.Unlock() // the caller's context may run code of its own
	e := a.newNested(outer)
	p.mu.Lock()
	if outer.state != handover.Held || !outer.admits(a) || a.want.exclusive() && !g.exclusive() { // asked again: mu was free meanwhile
		e.cancel(failure.ErrUnlocked)
		return nil, nil
	}
	g.enter(e)
	e.outer = outer
	if outer.inner == nil {
		outer.inner = map[*Entry]struct{}{}
	}
	outer.inner[e] = struct{}{}
	depth := 1
	for o := outer; o != nil; o = o.outer {
		depth++
	}
	p.mu.Unlock()
	defer p.mu.Lock()      // for the deferred Unlock
	if a.want.Lease != 0 { // the grant lasts as long as any of its holds wants
		err := e.Extend(a.ctx, a.want.Lease)
		if over := e.Err(); over != nil && err == nil { // while that was asked
			err = p.fail(over)
		}
		if err != nil {
			_ = e.Unlock(context.WithoutCancel(a.ctx))
			return nil, err
		}
	}
	p.observe(a.ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(a.begun), Depth: depth, Token: e.token})
	return e, nil
}

// admits reports whether one may nest in e now, beside those that are: as in a lock of its own. mu held.
func (e *Entry) admits(a *acquisition) bool {
	for in := range e.inner {
		if in.write || a.want.exclusive() {
			return false
		}
	}
	return true
}

// wake has those look again that wait to nest in e. mu held.
func (e *Entry) wake() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// unnest takes e out of the hold that it is nested in. What is nested in e goes on there. mu held.
func (e *Entry) unnest() {
	outer := e.outer
	if outer != nil {
		delete(outer.inner, e)
	}
	for in := range e.inner {
		in.outer = outer
		if outer != nil {
			outer.inner[in] = struct{}{}
		}
	}
	e.inner = nil
	e.wake()
	if outer != nil {
		outer.wake() // there may be room beside e now
	}
}

// enter links a hold that counts among the grant's entries from now on. mu held.
func (g *Grant) enter(e *Entry) {
	g.entries++
	g.link(e)
}

// link makes e, which counts among the entries already, a hold. mu held.
func (g *Grant) link(e *Entry) {
	if e.write {
		g.writers++
	}
	e.token = g.token // counted up with each pass in memory
	g.used = true
	g.holds[e] = struct{}{}
}

// decline ends an entry that never was a hold. The caller must be counted in the session's work.
func (g *Grant) decline(ctx context.Context) {
	g.p.mu.Lock()
	tell := g.leave(false)
	g.p.mu.Unlock()
	if tell != nil {
		g.p.s().Go(func() { _ = tell.send(context.WithoutCancel(ctx)) }) // the caller has left and waits for nothing
	}
}
