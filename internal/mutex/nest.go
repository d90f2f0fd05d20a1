package mutex

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/session"
)

// nest enters the gate of the hold that it descends from. Lock.Mu is held; nest releases it.
func (a *Acquisition) nest(outer *Entry) (*Entry, error) {
	l := a.Lock
	gate, t := l.gateOf(outer), l.tenure
	switch {
	case gate.Enter():
		t.Enter()
		l.Mu.Unlock()
	case a.Try:
		err := a.LockedHere()
		l.Mu.Unlock()
		return nil, failure.Public(err)
	default:
		w := a.NewWaiter()
		gate.Waiters.Push(w)
		l.Mu.Unlock()
		a.Announce()
		h, err := a.Wait(w, func(bool) {}, func(Handoff) { t.Decline(a.Ctx, outer) })
		if err != nil || !h.In {
			return nil, err
		}
	}
	return a.join(t, outer)
}

// join makes an entry under a live tenure a hold. Redis gets the count, and a longer lease, before the caller
// may rely on the hold. A tenure that is gone there is noticed now, and is an error, not a fresh grant.
func (a *Acquisition) join(t *Tenure, outer *Entry) (*Entry, error) {
	l := a.Lock
	if err := a.tell(t.Update); err != nil { // the entry's end puts the count right, whatever comes of it
		t.Decline(a.Ctx, outer)
		return nil, err
	}
	e := a.newEntry(new(Entry), t)
	e.outer = outer
	l.Mu.Lock()
	e.token = t.Token
	if why := t.State(); why != handover.Held || !time.Now().Before(t.Deadline()) {
		l.Mu.Unlock()
		if why == handover.Held { // the timer that ends it is late
			why = handover.Lost
			t.end(handover.Lost, failure.ErrExpired)
		}
		e.cancel(handle.ErrorOf(why))
		return nil, l.Fail(handle.ErrorOf(why))
	}
	t.link(e)
	depth := int(t.Entries)
	l.Mu.Unlock()
	l.Observe(a.Ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(a.Begun), Depth: depth, Token: e.token})
	return e, nil
}

// Succeed makes a hold of a tenure whose only entry is ours. Neither a hold nor an error: the tenure has
// ended meanwhile, look again. That is no loss yet: no goroutine has held it in this term, so none can have
// acted under it.
func (a *Acquisition) Succeed(h Handoff) (*Entry, error) {
	l, t := a.Lock, h.Tenure
	passed := t.PassedOn() // only the present term's own entry could change it
	e := &t.first
	if passed {
		e = new(Entry)
	}
	e.token = h.Token
	a.newEntry(e, t)
	l.Mu.Lock()
	if why := t.State(); why != handover.Held || !time.Now().Before(t.Deadline()) {
		l.Mu.Unlock()
		e.cancel(failure.ErrLost)
		if why == handover.Held { // the timer that ends it is late
			t.end(handover.Lost, failure.ErrExpired)
		}
		if why == handover.Closed {
			return nil, l.Fail(failure.ErrClosed)
		}
		// There is no Hold whose Unlock would tell Redis.
		l.ReleaseUntilDone(t.unnamed(), t.Deadline(), nil)
		return nil, nil
	}
	t.link(e)
	l.Mu.Unlock()
	l.Observe(a.Ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(a.Begun), Depth: 1, Token: e.token, HandedOver: passed})
	return e, nil
}

// Take makes a tenure and a hold of what Redis granted at base or later. Unless it has begun, the grant is
// released in the background, and the root gate is still the caller's. If it has, but with neither a hold nor
// an error, it has ended already: look again.
func (a *Acquisition) Take(base time.Time, token int64) (e *Entry, begun bool, err error) {
	l := a.Lock
	t := l.NewTenure(a.Grant, token, a.Config.Lease != 0)
	t.contested = a.progress > Fresh
	l.Keep()
	l.Mu.Lock()
	err = t.Begin(base, a.Lease())
	l.Mu.Unlock()
	if err == nil {
		e, err = a.Succeed(Handoff{Tenure: t, Token: t.Token})
		return e, true, err
	}
	l.Drop()
	l.ReleaseUntilDone(a.Grant, time.Now().Add(a.Lease()), nil)
	return nil, false, err
}

// newEntry fills in what never changes. The context is the caller's, with a cancel of its own: the end of the
// tenure ends it, but its end does not end the tenure.
func (a *Acquisition) newEntry(e *Entry, t *Tenure) *Entry {
	e.t = t
	e.fixed = a.Config.Lease != 0
	e.ctx, e.cancel = context.WithCancelCause(a.Ctx)
	return e
}
