package engine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// hold is one entry. It must not refer to its Hold, which its user may forget.
type hold struct {
	context.Context // ends with the hold; what the user has is the Hold's
	cancel          context.CancelCauseFunc
	st              *streak
	outer           *hold // the hold it is nested in
	up              *hold // the next hold on the way up its context, of any lock
	as              *Owner
	fence           int64 // the token
	fixed           bool  // a lease of its own choice, not renewed
	named           bool  // tell its loss with the lock's name
	state           atomic.Uint32
	// Guarded by lock.mu:
	unlocked   bool // or forgotten: nobody will unlock it
	slot       slot // who nests under this one
	prev, next *hold
}

type holdKey struct{}

type ownerKey struct{}

// heldContext is the context that Lock returns. It is the Hold by another type, and so the same
// allocation: as long as either can be reached, the collector forgets neither.
type heldContext Hold

func (hd *Hold) context() context.Context { return (*heldContext)(hd) }

func (c *heldContext) hold() *hold { return (*hold)(c.of.(*entry)) }

func (c *heldContext) Deadline() (time.Time, bool) { return c.hold().Context.Deadline() }

func (c *heldContext) Done() <-chan struct{} { return c.hold().Done() }

func (c *heldContext) Err() error { return c.hold().Context.Err() }

// Value makes the hold findable from whatever descends from it.
func (c *heldContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold()
	}
	return c.hold().Context.Value(key)
}

func (c *heldContext) String() string {
	return fmt.Sprintf("lockline.Hold(%q)", c.hold().st.lock.keys.Name)
}

// entry is the hold as its handle sees it. (A hold is a context, too, whose methods have other meanings.)
type entry hold

func (h *hold) handle() *Hold { return NewHold((*entry)(h)) }

// returned is the Hold of a plain lock on its way to the user, who may forget it.
func (hd *Hold) returned() *Hold {
	if e, ok := hd.of.(*entry); ok && (!e.fixed || e.as != nil) { // a fixed lease may be meant to run out
		WhenForgotten(hd, e, (*entry).forgotten)
	}
	return hd
}

// errForgotten is the cause that contexts see that descend from one that nobody could reach any more.
var errForgotten = fmt.Errorf("%w: neither its Hold nor its context could be reached any more, so it was released", ErrNotHeld)

// forgotten releases a hold whose Hold was collected, and with it the context: nobody can use it, or unlock it.
func (e *entry) forgotten() {
	if e.fixed {
		(*hold)(e).forgive()
		return
	}
	go func() {
		if state(e.state.Load()) == held {
			e.st.lock.s.warn("a Hold and its context were forgotten without Unlock; releasing the lock", "lock", e.Name(), "token", e.fence)
			e.cancel(errForgotten)
		}
		_ = e.Unlock(context.Background())
	}()
}

// forgive clears the loss that the hold's owner remembers: nobody can act under that hold any more.
func (h *hold) forgive() {
	l := h.st.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	h.unlocked = true
	if state(h.state.Load()) == lost {
		h.as.lose(l, -1)
	}
}

func (e *entry) Name() string { return e.st.lock.keys.Name }

func (e *entry) Token() int64 { return e.fence }

func (e *entry) Deadline() time.Time { return e.st.deadline() }

func (e *entry) Parts() []*Hold { return nil }

func (e *entry) Err() error {
	if err := state(e.state.Load()).err(); err != nil {
		return err
	}
	// The timer may be late, in a process that was stopped for a while.
	if !time.Now().Before(e.st.deadline()) {
		return ErrLost
	}
	return nil
}

func (e *entry) Extend(ctx context.Context, d time.Duration) error {
	s := e.st.lock.s
	if !s.begin() {
		return &nameError{name: e.Name(), err: ErrClosed}
	}
	done := make(chan error, 1)
	go func() {
		defer s.end()
		done <- e.st.tell(ctx, d, nil).Err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &nameError{name: e.Name(), err: ctxErr(ctx)}
	}
}

// unlockWait bounds Unlock's wait where its context is done already.
const unlockWait = 5 * time.Second

func (e *entry) Unlock(ctx context.Context) error { return (*hold)(e).unlock(ctx) }

func (h *hold) unlock(ctx context.Context) error {
	u, err := h.leave(ctx, nil)
	if u.st == nil {
		return err
	}
	sending := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		return u.send(sending)
	}
	done := make(chan error, 1)
	go func() { done <- u.send(sending) }()
	wait, cancel := unlockBound(ctx)
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-wait.Done():
		return h.st.lock.fail(ctxErr(wait))
	}
}

// unlockBound bounds the wait of an Unlock.
func unlockBound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), unlockWait)
}

// unlocking is an Unlock that Redis has to be told of, and counted in Session.work
// until it has been.
type unlocking struct {
	st   *streak
	last bool // the streak is over
	was  reign
}

func (u unlocking) send(ctx context.Context) error {
	l := u.st.lock
	defer l.s.end()
	if u.last {
		return l.release(ctx, u.st, u.was)
	}
	return u.st.tell(ctx, 0, nil).Err
}

// leave ends the hold in this process. Without a streak in what it returns, that is all.
func (h *hold) leave(ctx context.Context, to *heir) (unlocking, error) {
	st := h.st
	l := st.lock
	s := l.s
	fail := func(err error) (unlocking, error) { return unlocking{}, l.fail(err) }
	open := s.begin()
	l.mu.Lock()
	again := h.unlocked
	h.unlocked = true
	why := state(h.state.Load())
	if why == held && !open {
		why = closed // Shutdown is about to give it back
	}
	if again || why != held {
		if !again && why == lost {
			h.as.lose(l, -1)
		}
		l.mu.Unlock()
		if again || why == closed || !open {
			if open {
				s.end()
			}
			if again {
				return fail(ErrNotHeld)
			}
			h.cancel(why.err())
			return fail(why.err())
		}
		// Believed lost, but Redis may still count its lease: whoever waits need not.
		go func() {
			defer s.end()
			g := st.grant
			g.token, g.used = "", "" // and what a late copy of its request was granted since
			l.giveBack(context.WithoutCancel(ctx), g, 1)
		}()
		return fail(ErrLost)
	}
	h.state.Store(uint32(released))
	st.unlink(h)
	if nested := h.slot.inside; nested > 0 { // it goes on without h
		sl := l.slotOf(h.outer)
		if sl.inside == 1 { // only h
			sl.owner = h.slot.owner
		}
		sl.inside += nested
		h.slot.inside = 0
		if sl.owner != nil {
			sl.queue.turnAway(sl.owner)
		}
	}
	h.slot.queue.turnAway(nil)
	left, was := st.depart(h.outer, to)
	if left == theLast {
		s.dog.Remove(&st.lease)
	}
	l.mu.Unlock()
	h.cancel(errUnlocked)
	if left == passedOn {
		was.ended(ctx, l, nil)
		if to.place(l) < 0 { // else until it is inherited, or reclaimed
			s.end()
		}
		return unlocking{}, nil
	}
	return unlocking{st, left == theLast, was}, nil
}

var errNilContext = errors.New("lockline: the context is nil")
