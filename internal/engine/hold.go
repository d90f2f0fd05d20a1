package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/watchdog"
)

// state is what became of a streak or a hold.
type state uint32

const (
	held state = iota
	released
	lost
	closed
)

func (s state) err() error { return [...]error{nil, ErrNotHeld, ErrLost, ErrClosed}[s] }

// streak is one grant of Redis and what is held under it: the outermost hold
// and those nested in it. Fields below the line are guarded by lock.mu.
type streak struct {
	grant
	lock  *lock
	fence int64         // the token
	since time.Duration // after Session.born
	lease watchdog.Lease
	// ---
	state   state
	n       int   // stays: holds, and goroutines admitted to become one
	seq     int64 // number of the last change of n
	renewed int   // holds that want the lease renewed
	holds   *hold // live ones, linked
	warned  bool  // said that the session waits for itself
	first   hold  // saves an allocation
}

// hold is one entry. It is the context that Lock returns, too, so it must not
// refer to the handle that the user may forget.
type hold struct {
	context.Context
	cancel context.CancelCauseFunc
	st     *streak
	outer  *hold // the hold it is nested in
	up     *hold // the next hold on the way up its context, of any lock
	as     *Owner
	fixed  bool // a lease of its own choice, not renewed
	state  atomic.Uint32
	// Guarded by lock.mu:
	unlocked   bool
	slot       slot // who nests under this one
	prev, next *hold
}

type holdKey struct{}
type ownerKey struct{}

// Value makes the hold findable from whatever descends from it.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

func (h *hold) String() string { return fmt.Sprintf("lockline.Hold(%q)", h.st.lock.keys.Name) }

// WithOwner makes all that runs below the returned context one owner.
func WithOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, new(Owner))
}

func (st *streak) held() time.Duration { return time.Since(st.lock.s.born) - st.since }

func (st *streak) deadline() time.Time { return st.lock.s.dog.Deadline(&st.lease) }

// link makes h a live hold of the streak. mu held.
func (st *streak) link(h *hold) {
	if h.next = st.holds; h.next != nil {
		h.next.prev = h
	}
	st.holds = h
	if !h.fixed {
		st.renewed++
	}
}

func (st *streak) unlink(h *hold) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		st.holds = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
	if !h.fixed {
		st.renewed--
	}
}

// slotOf is where the stay of something nested under outer counts: outer's slot,
// or, where outer is over, what outer itself was nested in. mu held.
func (l *lock) slotOf(outer *hold) *slot {
	for ; outer != nil; outer = outer.outer {
		if state(outer.state.Load()) == held {
			return &outer.slot
		}
	}
	return &l.root
}

// depart ends one stay under outer and reports whether it was the last: then the
// streak is over, and root stays occupied until Redis was told, if it is used to
// compete. mu held.
func (st *streak) depart(outer *hold) (last bool) {
	st.seq++
	if st.n--; st.n > 0 {
		if sl := st.lock.slotOf(outer); sl.leave() {
			st.n++ // whoever was admitted
			if sl.owner != nil {
				sl.turnAway(sl.owner) // who shares with it need not stand
			}
		}
		return false
	}
	st.state = released
	st.lock.streak = nil
	if st.lock.p.queues() {
		st.lock.root.inside = 0 // nobody stands behind it
	}
	return true
}

// end is the end of a streak that nobody asked for. It reports whether it was
// this call that ended it.
func (st *streak) end(why state) bool {
	l := st.lock
	l.mu.Lock()
	if st.state != held {
		l.mu.Unlock()
		return false
	}
	st.state = why
	holds := st.holds
	for h := holds; h != nil; h = h.next {
		h.state.Store(uint32(why))
		h.slot.turnAway(nil)
		if why == lost {
			h.as.lose(l, 1)
		}
	}
	l.streak = nil
	l.root.inside = 1
	l.root.leave()
	l.mu.Unlock()

	l.s.dog.Remove(&st.lease)
	for h := holds; h != nil; h = h.next { // a streak that is over is not linked any more
		h.cancel(why.err())
	}
	if l.s.begin() { // many may be lost at one instant: their contexts must not wait for a log
		go func() {
			defer l.s.end()
			st.report(why)
		}()
	} else {
		st.report(why)
	}
	l.drop()
	return true
}

// report tells operators and observers of an end that nobody asked for.
func (st *streak) report(why state) {
	l := st.lock
	e := Event{Kind: EventReleased, Token: st.fence, Held: st.held()}
	if why == lost {
		e.Kind, e.Err = EventLost, ErrLost
		l.s.warn("lock lost", "lock", l.keys.Name, "token", st.fence, "held", e.Held)
	}
	l.observe(l.s.ctx, e)
}

// keepRequest tells Redis the streak's present count. mu held.
func (st *streak) keepRequest(lease any) request {
	return st.lock.keys.request(keepScript, st.owner, st.token, st.seq, st.n, lease, keepMemoryArg)
}

// telling is the request that keeps a streak, with what is true when it leaves.
type telling struct {
	st    *streak
	lease time.Duration
}

func (t *telling) request(time.Time) request {
	t.st.lock.mu.Lock()
	defer t.st.lock.mu.Unlock()
	return t.st.keepRequest(t.lease.Milliseconds())
}

// tell brings Redis up to date with the hold count, and the lease to at least lease.
func (st *streak) tell(ctx context.Context, lease time.Duration, left *atomic.Bool) outcome {
	l := st.lock
	o := l.s.call(ctx, keepScript, &telling{st, lease}, tries, left)
	switch {
	case o.err != nil:
		o.err = l.keys.failed(o.err)
	case o.reply != "K":
		st.end(lost)
		l.mu.Lock()
		why := st.state
		l.mu.Unlock()
		if why != released { // else the last Unlock overtook this
			o.err = &nameError{name: l.keys.Name, err: why.err()}
		}
	case lease > 0:
		l.s.dog.Extend(&st.lease, o.sent.Add(valid(lease)))
	}
	return o
}

// entry is the hold as its handle sees it. (A hold is a context, too, whose methods have other meanings.)
type entry hold

func (h *hold) handle() *Hold {
	e := (*entry)(h)
	hd := NewHold(e)
	if !h.fixed { // a fixed lease may be meant to run out
		WhenForgotten(hd, e, (*entry).forgotten)
	}
	return hd
}

// forgotten releases a hold whose handle was collected: nobody else can.
func (e *entry) forgotten() {
	go func() {
		if state(e.state.Load()) == held {
			e.st.lock.s.warn("a Hold was forgotten without Unlock; releasing it", "lock", e.Name(), "token", e.st.fence)
		}
		_ = e.Unlock(context.Background())
	}()
}

func (e *entry) Name() string { return e.st.lock.keys.Name }

func (e *entry) Token() int64 { return e.st.fence }

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
		done <- e.st.tell(ctx, d, nil).err
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
	st := h.st
	l := st.lock
	s := l.s
	fail := func(err error) error { return &nameError{name: l.keys.Name, err: err} }
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
			g.token = "" // and what a late copy of its request was granted since
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
			sl.turnAway(sl.owner)
		}
	}
	h.slot.turnAway(nil)
	last := st.depart(h.outer)
	if last {
		s.dog.Remove(&st.lease)
	} else if st.renewed == 0 { // under mu, or it could follow the next hold's switching on
		s.dog.SetInterval(&st.lease, 0)
	}
	l.mu.Unlock()
	h.cancel(ErrNotHeld)

	done := make(chan error, 1)
	sending := context.WithoutCancel(ctx)
	go func() {
		defer s.end()
		if last {
			done <- l.release(sending, st)
			return
		}
		done <- st.tell(sending, 0, nil).err
	}()
	wait := ctx
	if ctx.Err() != nil {
		bound, cancel := context.WithTimeout(sending, unlockWait)
		defer cancel()
		wait = bound
	}
	select {
	case err := <-done:
		return err
	case <-wait.Done():
		return fail(ctxErr(wait))
	}
}

// release frees the lock in Redis and then lets the next goroutine of this
// session compete for it.
func (l *lock) release(ctx context.Context, st *streak) error {
	o := l.giveBack(ctx, st.grant, tries)
	var err error
	switch {
	case o.err != nil:
		err = l.keys.failed(o.err)
		l.settle(st.grant, st.deadline())
	case !strings.HasPrefix(o.reply, "R") && o.unanswered != nil:
		// An unanswered copy may have released it, and somebody else lost it since.
		err = l.keys.failed(o.unanswered)
	case !strings.HasPrefix(o.reply, "R"):
		err = &nameError{name: l.keys.Name, err: ErrLost}
	}
	if !l.p.queues() {
		l.pass()
	}
	l.drop()
	l.observe(ctx, Event{Kind: EventReleased, Token: st.fence, Held: st.held(), Err: err})
	return err
}

var errNilContext = errors.New("lockline: the context is nil")
