package engine

import (
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// trying is the request of one that does not wait. It belongs to the goroutine that sends it.
type trying struct {
	a *acquisition
	asker
	notAfter int64
	late     int64
}

// Request makes a copy.
func (t *trying) Request(now time.Time) wire.Request {
	p := t.a.p
	if n := p.s().Clock.Now(now); n != 0 { // else it comes too late on purpose; the answer has the time
		t.notAfter = max(t.notAfter, n+protocol.Patience(t.a.asksFor()).Microseconds())
	}
	at := nowhere
	if p.lingers(t.a.lease) { // it is told of wishes
		at.mode = p.all.inbox.mode(p.keys.Lock())
	}
	return p.acquireRequest(t.a.want, t.a.lease, t.owner, 1, t.notAfter, at)
}

// Send sends it.
func (t *trying) Send(most int, abandoned *atomic.Bool) wire.Outcome {
	for n := 1; ; n++ {
		o, expired := t.onReply(t.a.p.s().Link.Call(t.a.bounds.Until, t.a.p.kind.Acquire, t, most, abandoned))
		if !expired || n == protocol.MaxExpired || abandoned.Load() {
			return o
		}
	}
}

// onReply takes in how it ended. expired: it is to be sent again, since the answer has brought the time.
func (t *trying) onReply(o wire.Outcome) (_ wire.Outcome, expired bool) {
	if o.Unanswered != nil {
		t.late = t.notAfter // a copy may still come until then
	}
	r, err := t.a.p.read(o, nil)
	if err != nil {
		o.Err = err // a reply that cannot be read is a failure, too
	}
	return o, r.Status == protocol.Expired
}

// RollBack gives back what its caller no longer waits for.
func (t *trying) RollBack(o wire.Outcome) {
	defer t.a.p.drop()
	r, err := protocol.Read(o)
	if err != nil || r.Status == protocol.Granted || t.late != 0 { // else it took nothing, and no copy comes
		p := t.a.p
		p.releaseUntilDone(t.owner, "", t.late, time.Now().Add(t.a.asksFor()))
	}
}

// try asks once. refused: what is wanted is not free.
func (a *acquisition) try() (g *Grant, refused bool, err error) {
	p := a.p
	t := &trying{a: a, asker: asker{p: p, owner: p.s().Attempt()}}
	if p.lingers(a.lease) {
		p.all.inbox.add(t.owner.(string), t)
		defer func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.has(g)
		}()
	}
	p.retain() // for the rollback, if this caller leaves
	o, ok := call.Exchange(&a.bounds, p.s(), p.silent(a.bounds.Until), t)
	if !ok { // its goroutine rolls back
		p.mu.Lock()
		defer p.mu.Unlock()
		return nil, false, a.over(nil)
	}
	defer p.drop()
	r, err := protocol.Read(o)
	refused = r.Status == protocol.Queued
	switch {
	case err != nil:
		err = p.kind.Failed(p.keys, err)
	case r.Status == protocol.Expired:
		err = p.fail(protocol.TooLate(a.asksFor()))
	case r.Status == protocol.Stale:
		err = p.fail(protocol.ErrOver)
	case r.Status == protocol.Limited:
		err = p.kind.Limited(p.keys.Name, a.want, r.Limit)
	case refused:
		e := r.Locked(p.keys.Name)
		if p.s().Holds(r.Holder) {
			p.mu.Lock()
			e.Hint = a.hint(p.grantOf(r.Holder))
			p.mu.Unlock()
		}
		err = p.kind.Locked(e)
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		l := p.lane(a.want)
		g, failed := p.begin(l, t.owner, r.Token, o.Sent, a.asksFor(), a.lease)
		if failed == nil {
			g.late = t.late
			g.entries = 1 // for this goroutine, before it has a hold
			t.mayLinger = r.MayLinger
			if a.want.Shared {
				l.live = g // the next readers join this one, which is younger
			}
			return g, false, nil
		}
		l.forget()
		err = p.fail(failed)
		if a.want.exclusive() && p.hasAbove(r.Token) {
			err = p.kind.Locked(a.lockedHere(p.grants[0]))
		}
	}
	mayHave := o.Err != nil && wire.Judge(o.Err).Unknown || r.Status == protocol.Granted || t.late != 0
	if err != nil && mayHave { // or may get it yet
		p.releaseLater(t.owner, "", t.late, time.Now().Add(a.asksFor()))
	}
	return nil, refused, err
}
