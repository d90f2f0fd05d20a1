package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
)

// ErrUpgrade is why a holder of one permit does not get all of them.
var ErrUpgrade = errors.New("lockline: a reader cannot become the writer: unlock the read hold first")

// descent is an acquisition as the key by which it finds, in its context, the nearest live hold of its name.
type descent acquisition

// outer finds the nearest live hold that the context descends from; nil for a newcomer, and an error if all
// that it descends from were lost. mu is not held: contexts may run code of their own.
func (a *acquisition) outer() (*Entry, error) {
	d := (*descent)(a)
	d.lost = handle.Held
	if e, _ := a.ctx.Value(d).(*Entry); e != nil {
		return e, nil
	}
	if d.lost != handle.Held {
		return nil, a.p.fail(handle.ErrorOf(d.lost)) // to acquire afresh would hide the loss
	}
	return nil, nil
}

// nest enters the grant of a hold that it descends from. Neither an entry nor an error: the hold is over,
// look again.
func (a *acquisition) nest(outer *Entry) (*Entry, error) {
	p, g := a.p, outer.g
	e := a.newNested(outer) // without mu: the caller's context may run code of its own
	depth, err := a.enterBelow(outer, e)
	if depth == 0 {
		e.cancel(failure.ErrUnlocked)
		return nil, err
	}
	if a.cfg.Lease != 0 || p.kind.Counts { // the grant lasts as long as any of its holds wants
		err := g.extend(a.bounds.Until, cmp.Or(a.cfg.Lease, p.s().Lease))
		switch over := e.Err(); {
		case over != nil: // while that was asked
			err = cmp.Or(err, p.fail(over))
		case a.bounds.Over(): // also if it was answered
			p.mu.Lock()
			err = a.over(a.lockedHere(g))
			p.mu.Unlock()
		}
		if err != nil {
			leave := e.Leave()
			p.s().Go(func() { _ = leave(context.WithoutCancel(a.ctx)) }) // a.ctx may be over
			return nil, err
		}
	}
	p.observe(a.ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(a.begun), Depth: depth,
		Token: e.token})
	return e, nil
}

// enterBelow makes e a hold that is nested in outer, once there is room, and returns how deep it is. 0
// without an error: outer is over.
func (a *acquisition) enterBelow(outer, e *Entry) (depth int, err error) {
	p, g := a.p, outer.g
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case outer.state != handle.Held:
			return 0, nil
		case a.want.exclusive() && !g.exclusive(): // or reduced to a share meanwhile
			return 0, p.fail(ErrUpgrade)
		case !time.Now().Before(g.deadline()): // the timer that ends it is late
			p.mu.Unlock()
			g.end(handle.Lost, failure.ErrExpired)
			p.mu.Lock()
			return 0, nil
		case outer.admits(a):
			e.began = p.s().Age()
			g.enter(e)
			e.outer = outer
			if outer.inner == nil {
				outer.inner = map[*Entry]struct{}{}
			}
			outer.inner[e] = struct{}{}
			for o := e; o != nil; o = o.outer {
				depth++
			}
			return depth, nil
		case a.once:
			return 0, p.kind.Locked(a.lockedHere(g))
		}
		if outer.changed == nil {
			outer.changed = make(chan struct{})
		}
		changed := outer.changed
		p.mu.Unlock() // whatever it waits for needs mu
		_, ok := call.Await(&a.bounds, changed)
		p.mu.Lock()
		if !ok && outer.state == handle.Held {
			return 0, a.over(a.lockedHere(g))
		}
	}
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
	g.change++
	g.link(e)
}

// link makes e, which counts among the entries already, a hold. mu held.
func (g *Grant) link(e *Entry) {
	if e.write {
		g.writers++
	}
	e.token = g.token // counted up with each pass in memory
	g.used = true
	if e.next = g.holds; e.next != nil {
		e.next.prev = e
	}
	g.holds = e
	if !e.fixed {
		g.renewed++
		g.renew(true)
	}
}

// unlink ends that. mu held.
func (g *Grant) unlink(e *Entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		g.holds = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	if !e.fixed {
		g.renewed--
		g.renew(g.renewed > 0 || g.entries == 1) // one that passes goes on
	}
}

// renew switches the renewal of the lease on or off. mu held.
func (g *Grant) renew(on bool) {
	if on != g.unrenewed {
		return
	}
	g.unrenewed = !on
	every := time.Duration(0)
	if on {
		every = g.p.s().Lease / 3
	}
	g.p.s().Watchdog.SetInterval(&g.lease, every)
}

// decline ends an entry that never was a hold. The caller must be counted in the session's work.
func (g *Grant) decline(ctx context.Context) {
	g.p.mu.Lock()
	tell := g.leave(false)
	if !g.held() && tell == nil { // lost, and there is no Hold whose Unlock would tell Redis
		g.giveBack()
	}
	g.p.mu.Unlock()
	if tell != nil {
		g.p.s().Go(func() { _ = tell.send(context.WithoutCancel(ctx)) }) // the caller has left
	}
}
