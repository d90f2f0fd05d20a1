package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
)

// This file implements re-entry. If the context of a call descends from a live hold of the same lock, the
// call nests in that hold. It gets another entry of the same grant. It waits for no other holders, unless
// they are nested in the same hold (hasRoom).

// ErrUpgrade is the error of a call that wants all permits although its context descends from a hold of one
// permit.
var ErrUpgrade = errors.New("lockline: a reader cannot become the writer: unlock the read hold first")

// descent is a waiter, converted to a context key. By this key, the waiter finds the nearest live hold of its
// lock in its context.
type descent waiter

// outer returns the nearest live hold from which the context descends. If there is no live hold, but the
// context descends from a lost or closed one, outer returns an error. If there is neither, both results are
// nil. The caller must not hold l.mu, because a context may have a type of the user's,
// whose methods may call this package.
func (w *waiter) outer() (*Entry, error) {
	d := (*descent)(w)
	d.lost = handle.Held
	if e, _ := w.ctx.Value(d).(*Entry); e != nil {
		return e, nil
	}
	if d.lost != handle.Held {
		return nil, w.l.named(handle.ErrorOf(d.lost)) // a new grant would hide the loss
	}
	return nil, nil
}

// nest nests the call in the hold outer. If both results are nil, outer has ended, and the caller must look
// for another hold.
func (w *waiter) nest(outer *Entry) (*Entry, error) {
	l, g := w.l, outer.g
	e := w.newNested(outer)
	depth, err := w.enterBelow(outer, e)
	if depth == 0 {
		e.cancel(nil) // frees the context, which no caller has received
		return nil, err
	}
	if w.cfg.Lease != 0 || l.kind.Counts { // the call may want a longer lease, or Redis stores the count
		err := g.extend(w.bounds.Until, cmp.Or(w.cfg.Lease, l.s.Lease))
		switch lossError := e.Err(); {
		case lossError != nil: // the hold ended while the request was in flight
			err = cmp.Or(err, l.named(lossError))
		case w.bounds.Over(): // a bound has ended the call, even if the reply has come
			var holder *failure.LockedError
			if w.waitedHere { // otherwise the call has only waited for Redis
				l.mu.Lock()
				holder = w.lockedHere(g)
				l.mu.Unlock()
			}
			err = w.endOfWait(holder)
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

// newNested makes an entry that the caller can nest in outer. The caller must not hold l.mu.
func (w *waiter) newNested(outer *Entry) *Entry {
	if w.want.exclusive() {
		e := w.newEntry(new(Entry), outer.g)
		e.given, e.root = outer.given, outer.root
		return e
	}
	// The hold in which a reader is nested may be unlocked while the reader still works. The context of the
	// reader must then stay valid, although the reader's call was given a context of the outer hold. From
	// then on, the reader's context follows the context that was given to the outermost call.
	e := &Entry{g: outer.g, fixed: w.cfg.Lease != 0, given: outer.given, root: outer.root}
	ctx, cancel := context.WithCancelCause(&readerContext{context.WithoutCancel(w.ctx), w.ctx, e.given})
	e.ctx, e.cancel = ctx, cancel
	follow := func(of context.Context, ended func()) {
		stop := context.AfterFunc(of, ended)
		context.AfterFunc(ctx, func() { stop() }) // otherwise the entry would stay reachable as long as `of`
	}
	follow(w.ctx, func() {
		// The context of the reader ends with a loss, with the session, if the caller cancels w.ctx, and with
		// the Unlock of a hold of another lock. The Unlock of an outer hold does not end it.
		if !e.root.unlockedBy(context.Cause(w.ctx)) {
			cancel(failure.OfContext(w.ctx))
			return
		}
		// An outer hold was unlocked. The context that was given to the outermost call still counts.
		follow(e.given, func() { cancel(failure.OfContext(e.given)) })
	})
	return e
}

// unlockedBy reports whether cause is the Unlock of a hold in the chain of root. If a hold in this chain is a
// part of a MultiLock that is held, the Unlock of the MultiLock counts, too.
func (root *Entry) unlockedBy(cause error) bool {
	var one *unlocked
	if errors.As(cause, &one) {
		return one.root == root
	}
	var several handle.Holding
	return errors.As(cause, &several) && errors.Is(cause, failure.ErrUnlocked) && root.isPartOf(several)
}

// isPartOf reports whether `of` is a hold in the chain of root, or has such a hold as a part.
func (root *Entry) isPartOf(of handle.Holding) bool {
	if one, ok := of.(*Entry); ok {
		return one.root == root
	}
	return slices.ContainsFunc(of.Parts(), func(hd *handle.Hold) bool { return root.isPartOf(hd.Of()) })
}

// readerContext is the context from which the context of a nested reader is made. It never ends by itself.
type readerContext struct {
	context.Context                 // has the values
	followed, given context.Context // contexts that end the context of the reader, see newNested
}

// Deadline returns the later deadline of the two contexts, because the context of the reader may outlive one
// of them. If one of them has no deadline, Deadline returns none.
func (c *readerContext) Deadline() (time.Time, bool) {
	d, ok := c.followed.Deadline()
	last, alsoOK := c.given.Deadline()
	if !ok || !alsoOK {
		return time.Time{}, false
	}
	if d.After(last) {
		last = d
	}
	return last, true
}

// enterBelow waits until outer has room for another hold, nests e in outer, and returns the depth of e
// (nestIn). If outer has no room, and the call must not wait or its wait ends, enterBelow returns an error.
// It also returns an error if a reader wants to become the writer. If the depth is 0 without an error, outer
// has ended.
func (w *waiter) enterBelow(outer, e *Entry) (depth int, err error) {
	l, g := w.l, outer.g
	for {
		fx := l.begin()
		switch {
		case outer.state != handle.Held:
			fx.unlock()
			return 0, nil
		case w.want.exclusive() && !outer.mayWrite():
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
		w.reportWaiting()
		if _, ok := call.Await(&w.bounds, changed); ok {
			continue
		}
		l.mu.Lock()
		held, holder := outer.state == handle.Held, w.lockedHere(g)
		l.mu.Unlock()
		if held {
			return 0, w.endOfWait(holder)
		}
	}
}

// nestIn makes e a hold that is nested in outer. It returns the depth of e, which is 2 if outer is an
// outermost hold.
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

// mayWrite reports whether a writer may nest in e, now or after a wait. This is so if e is a writer, or if e
// is a reader that is nested in a writer, and no other hold is nested beside e. Otherwise the call is
// refused, because two readers that waited for each other's end would wait forever.
func (e *Entry) mayWrite() bool {
	for ; !e.write; e = e.outer {
		if e.outer == nil || len(e.outer.inner) > 1 {
			return false
		}
	}
	return true
}

// hasRoom reports whether the call w may nest in e now, beside the holds that are already nested in e. As in
// a read-write lock, many readers or one writer may be nested in e. A writer that is nested in one of these
// readers keeps other readers out, too. For a writer, mayWrite must have returned true.
func (e *Entry) hasRoom(w *waiter) bool {
	if w.want.exclusive() {
		return len(e.inner) == 0
	}
	numWriters := int32(0)
	for o := e; o != nil; o = o.outer {
		if o.write {
			numWriters++
		}
	}
	return numWriters == e.g.numWriters
}

// notifyChanged wakes the goroutines that wait to nest in e. They then check again whether e has room.
func (e *Entry) notifyChanged() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// unnest removes e from the hold in which e is nested. The holds that were nested in e are then nested in
// that outer hold, or in none if e was an outermost hold.
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
	for ; outer != nil; outer = outer.outer {
		outer.notifyChanged() // there may be room now
	}
}
