package permit

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Unlock ends the hold here, and tells Redis if no goroutine of this session goes on with the grant. The
// request is sent whatever becomes of ctx, which bounds only the wait for its answer.
func (e *Entry) Unlock(ctx context.Context) error {
	g := e.g
	p := g.p
	s := p.s()
	if !s.Begin() {
		return e.tooLate(handover.Closed)
	}
	p.mu.Lock()
	if e.unlocked || e.state != handover.Held {
		p.mu.Unlock()
		defer s.End()
		return e.tooLate(handover.Held)
	}
	e.unlocked = true
	e.state = handover.Released
	e.unnest()
	delete(g.holds, e)
	g.l.brief = time.Since(e.began) < soon // whether those that wait ask at once: patience
	tell := g.leave(e.write)
	if tell != nil {
		p.unlock.Begin()
	}
	p.mu.Unlock()
	e.cancel(failure.ErrUnlocked) // before Redis can give the permits to another session
	if tell == nil {
		return e.ended(ctx, nil)
	}
	f := &farewell{tell, wakeup.Bounds{Until: handle.UnlockContext(ctx)}, e}
	o, answered := call.Ask(&f.Bounds, s, p.silent(f.Until), f, handle.UnlockWait)
	if !answered {
		return p.fail(handle.UnlockError(f.Until))
	}
	return e.told(f.Until, tell.took(o))
}

// told ends an Unlock of which Redis was told, or could not be.
func (e *Entry) told(ctx context.Context, err error) error {
	p := e.g.p
	p.mu.Lock()
	p.unlock.End()
	p.mu.Unlock()
	return e.ended(ctx, err)
}

// ended ends an Unlock.
func (e *Entry) ended(ctx context.Context, err error) error {
	p := e.g.p
	defer p.s().End()
	if !e.nested { // the observer is told when the outermost ends
		p.observe(ctx, session.Event{Kind: session.EventReleased, Token: e.token, Held: time.Since(e.began), Err: err})
	}
	return err
}

// farewell is the request of an Unlock. What it tells Redis holds, though its caller may have left.
type farewell struct {
	*news
	wakeup.Bounds
	e *Entry
}

func (f *farewell) Send(most int, _ *atomic.Bool) wire.Outcome {
	return f.g.p.s().Link.Call(f.Until, f.Script, f.news, most, nil)
}

func (f *farewell) RollBack(o wire.Outcome) { _ = f.e.told(context.WithoutCancel(f.Until), f.took(o)) }

// tooLate is the error of an Unlock that ends nothing. why: the session has ended.
func (e *Entry) tooLate(why handover.State) error {
	g := e.g
	p := g.p
	p.mu.Lock()
	defer p.mu.Unlock()
	again := e.unlocked
	e.unlocked = true
	if e.state != handover.Held {
		why = e.state // it was over before the session was
	}
	switch {
	case again:
		return p.fail(failure.ErrNotHeld)
	case why == handover.Lost:
		// It is lost to us, but Redis may still count its lease: no waiter need wait for that.
		if !wakeup.Closed(p.s().Closing()) { // else this call may not be counted, and starts no work
			p.releaseLater(g.owner, g.late, time.Now().Add(p.s().Lease)) // a copy of its request may still come
		}
	}
	return p.fail(handle.ErrorOf(why))
}

// news is what to tell Redis about an entry that has ended here.
type news struct {
	protocol.Same
	g    *Grant
	took func(o wire.Outcome) error // takes in how it ended
}

// send tells it, and blocks for the answer.
func (n *news) send(ctx context.Context) error {
	return n.took(n.g.p.s().Link.Call(ctx, n.Script, n, wire.Tries, nil))
}

// leave ends an entry. What it returns is to be sent, and what it took taken in; nil: there is nothing to
// tell. The caller must be counted in the session's work. mu held.
func (g *Grant) leave(write bool) (tell *news) {
	l := g.l
	g.entries--
	if write {
		g.writers--
	}
	switch {
	case !g.held():
		return nil // Shutdown or the Unlock of a lost hold gives it back, if need be
	case g.entries > 0:
		if g.exclusive() && g.writers == 0 && time.Now().After(g.whole) {
			return g.reduce()
		}
		return nil // the last entry tells Redis
	case g.mayPass():
		if g.exclusive() {
			g.token++ // each writer has its own token of the block
		}
		l.admit(g)
		l.trim() // there may be an attempt more than waiters now
		return nil
	}
	g.over(handover.Released)
	g.p.s().Watchdog.Remove(&g.lease)
	l.ask() // if that comes before the release, the release serves it
	return g.news()
}

// mayPass reports whether the next in the lane gets it without a request. mu held.
func (g *Grant) mayPass() bool {
	return g.l.waiters.Len() > 0 && time.Now().After(g.stays) && time.Since(g.since) < g.p.s().Streak &&
		g.lasts() && g.token < g.first+protocol.Block-1
}

// reduce has readers go on with what a writer held: they have nested in it. mu held.
func (g *Grant) reduce() (tell *news) {
	p := g.p
	lastUsed := g.lastUsed() // before n changes: only a grant of all has a block
	g.n = 1
	g.since = time.Now()
	limit := g.l.want.Limit
	g.leaveLane() // those that wait there have an attempt, or will ask (askAfter)
	g.l = p.lane(Want{N: 1, Limit: limit, Shared: true})
	g.l.grants++
	g.l.since = g.since
	if g.l.live == nil && !g.own { // an own lease is not for those that join
		g.l.live = g
	}
	args := &p.s().Args
	same := protocol.Same{Script: reduceScript, Keys: p.keys, Argv: []any{g.owner, g.first, args.Channels, args.Keep, lastUsed}}
	return &news{Same: same, g: g, took: func(o wire.Outcome) error {
		r, err := p.took(o, nil)
		switch {
		case err != nil: // the lease of all is given back with the last of the readers
			return p.kind.Failed(p.keys, err)
		case r.Status == protocol.Lost && g.end(handover.Lost, failure.ErrGone): // else the last reader's release was faster
			return p.fail(failure.ErrLost)
		}
		return nil
	}}
}
