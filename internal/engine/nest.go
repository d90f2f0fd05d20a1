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

// Re-entry: a call whose context descends from a live hold of the same name nests in that hold. It gets
// another entry of the same grant, without waiting for Redis.

// ErrUpgrade is the error of a holder of one permit that wants all permits.
var ErrUpgrade = errors.New("lockline: a reader cannot become the writer: unlock the read hold first")

// descent is a waiter as the key by which it finds, in its context, the nearest live hold of its name.
type descent waiter

// outer returns the nearest live hold from which the context descends. It returns nil if there never was one,
// and an error if all have ended by a loss. The caller must not hold l.mu, because contexts may run code of
// their own.
func (w *waiter) outer() (*Entry, error) {
	d := (*descent)(w)
	d.lost = handle.Held
	if e, _ := w.ctx.Value(d).(*Entry); e != nil {
		return e, nil
	}
	if d.lost != handle.Held {
		return nil, w.l.named(handle.ErrorOf(d.lost)) // to acquire the lock anew would hide the loss
	}
	return nil, nil
}

// nest enters the grant of the hold outer. If both results are nil, outer has ended, and the caller must look
// for another hold.
func (w *waiter) nest(outer *Entry) (*Entry, error) {
	l, g := w.l, outer.g
	e := w.newNested(outer)
	depth, err := w.enterBelow(outer, e)
	if depth == 0 {
		e.cancel(nil) // frees the context, which nobody has received
		return nil, err
	}
	if w.cfg.Lease != 0 || l.kind.Counts { // the grant lasts as long as any of its holds wants
		err := g.extend(w.bounds.Until, cmp.Or(w.cfg.Lease, l.s.Lease))
		switch lossError := e.Err(); {
		case lossError != nil: // while the request was in flight
			err = cmp.Or(err, l.named(lossError))
		case w.bounds.Over(): // a bound has ended the call, even if the reply has come
			var holder *failure.LockedError
			l.mu.Lock()
			if w.waitedHere { // otherwise the call has waited for Redis alone
				holder = w.lockedHere(g)
			}
			err = w.endOfWait(holder)
			l.mu.Unlock()
		}
		if err != nil {
			leave := e.Leave()
			l.s.Go(func() { _ = leave(context.WithoutCancel(w.ctx)) }) // w.ctx may have ended
			return nil, err
		}
	}
	l.observe(w.ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(w.begun), Depth: depth,
		Token: e.token})
	return e, nil
}

// newNested makes an entry that is to be nested in outer. The caller must not hold l.mu.
func (w *waiter) newNested(outer *Entry) *Entry {
	if w.want.exclusive() {
		e := w.newEntry(outer.g)
		e.given, e.root = outer.given, outer.root
		return e
	}
	// A reader may be nested in a writer that is unlocked first. The reader's context must not end then,
	// although it descends from the writer's context. It then depends on the context of the outermost call.
	e := &Entry{g: outer.g, fixed: w.cfg.Lease != 0, given: outer.given, root: outer.root}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(w.ctx))
	e.ctx, e.cancel = ctx, cancel
	follow := func(of context.Context, ended func()) {
		stop := context.AfterFunc(of, ended)
		context.AfterFunc(ctx, func() { stop() }) // otherwise `of` would keep the entry while it lives
	}
	follow(w.ctx, func() {
		// A loss, the end of the session, or the caller ends the hold. An Unlock above it does not.
		if !errors.Is(context.Cause(w.ctx), failure.ErrUnlocked) {
			cancel(failure.OfContext(w.ctx))
			return
		}
		// A writer above was unlocked, and the caller's own context still counts.
		follow(e.given, func() { cancel(failure.OfContext(e.given)) })
	})
	return e
}

// enterBelow waits until outer has room for another hold, nests e in outer, and returns the depth of e. If
// the depth is 0 without an error, outer has ended.
func (w *waiter) enterBelow(outer, e *Entry) (depth int, err error) {
	l, g := w.l, outer.g
	for {
		fx := l.begin()
		switch {
		case outer.state != handle.Held:
			fx.unlock()
			return 0, nil
		case w.want.exclusive() && !g.exclusive(): // or the grant was downgraded meanwhile
			fx.unlock()
			return 0, l.named(ErrUpgrade)
		case !time.Now().Before(g.deadline()): // the timer that ends the grant is late
			g.end(handle.Lost, failure.ErrExpired, &fx)
			fx.commit()
			return 0, nil
		case outer.hasRoom(w):
			depth = e.nestIn(outer, &fx)
			fx.unlock()
			return depth, nil
		case w.noWait:
			err := l.kind.locked(w.lockedHere(g))
			fx.unlock()
			return 0, err
		}
		if outer.changed == nil {
			outer.changed = make(chan struct{})
		}
		changed := outer.changed
		w.waitedHere = true
		fx.unlock()
		if _, ok := call.Await(&w.bounds, changed); ok {
			continue
		}
		l.mu.Lock()
		held := outer.state == handle.Held
		if held {
			err = w.endOfWait(w.lockedHere(g))
		}
		l.mu.Unlock()
		if held {
			return 0, err
		}
	}
}

// nestIn makes e a hold that is nested in outer, and returns its depth.
func (e *Entry) nestIn(outer *Entry, fx *effects) (depth int) {
	g := e.g
	g.numEntries++
	g.revision++
	g.addHold(e, fx)
	e.outer = outer
	if outer.inner == nil {
		outer.inner = map[*Entry]struct{}{}
	}
	outer.inner[e] = struct{}{}
	for o := e; o != nil; o = o.outer {
		depth++
	}
	return depth
}

// hasRoom reports whether the call may nest in e now, beside the holds that are nested there. The rule is
// that of a read-write lock: many readers, or one writer.
func (e *Entry) hasRoom(w *waiter) bool {
	for in := range e.inner {
		if in.write || w.want.exclusive() {
			return false
		}
	}
	return true
}

// notifyChanged wakes goroutines that wait to nest in e. They look again.
func (e *Entry) notifyChanged() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// unnest takes e out of the hold in which it is nested. The holds that are nested in e go on there.
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
	e.notifyChanged()
	if outer != nil {
		outer.notifyChanged() // there may be room beside e now
	}
}
