package redisson

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// A hold is the share of one call of Lock or TryLock in a grant. It must not refer to the rlock.Hold of the
// user. The session refers to the hold, so a forgotten rlock.Hold would otherwise stay reachable.
type hold struct {
	// These fields never change.
	g      *grant
	ctx    context.Context // ends with the hold; the context that Lock returns is made from ctx
	cancel context.CancelCauseFunc
	began  time.Duration // age of the session when the hold began
	fixed  bool          // the lease is fixed, so the hold does not need a renewal

	// lock.mu guards the fields below.
	state    handle.State
	unlocked bool
	changed  chan struct{} // closed when this hold ends, or can take a nested hold; nil: no goroutine waits
}

var _ handle.Holding = (*hold)(nil)

// newHold returns a hold for the call. If g has no hold yet, the result is g.first, which saves an
// allocation.
func (a *acquisition) newHold(g *grant) *hold {
	h := &g.first
	if h.g != nil {
		h = new(hold)
	}
	h.g, h.began, h.fixed = g, g.l.s.Age(), a.cfg.Lease != 0
	h.ctx, h.cancel = context.WithCancelCause(a.ctx)
	return h
}

// A nesting is an acquisition that is used as the key of a context value. By this key, the acquisition finds
// the hold in which it nests, see outer.
type nesting acquisition

// outer looks for holds of this lock from which a.ctx descends. It returns the innermost of these holds that
// is live. If no hold is live, but one was lost or closed, outer returns an error. If there is no hold of
// these states, both results are nil. The caller must not hold l.mu, because contexts may run code of their
// own.
func (a *acquisition) outer() (*hold, error) {
	n := (*nesting)(a)
	n.lost = handle.Held
	if h, _ := a.ctx.Value(n).(*hold); h != nil {
		return h, nil
	}
	if n.lost != handle.Held {
		return nil, a.l.fail(handle.ErrorOf(n.lost)) // a new grant would hide the loss
	}
	return nil, nil
}

// Find returns the hold if key is an acquisition of the same lock, and the hold is live. Otherwise it returns
// nil. If the hold was lost or closed, Find records that in the acquisition.
func (h *hold) Find(key any) any {
	l := h.g.l
	n, ok := key.(*nesting)
	// Find compares keys instead of pointers, because the lock of a lost hold may have been dropped and made
	// again.
	if !ok || n.l.s != l.s || n.l.n.keys.LockKey() != l.n.keys.LockKey() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch h.state {
	case handle.Held:
		return h
	case handle.Lost, handle.Closed:
		n.lost = h.state
	}
	return nil
}

// nest makes a hold that is nested in outer. It waits until no other hold is nested in outer (see enter), and
// then blocks for one request. If both results are nil, outer has ended, and the caller must look for another
// outer hold.
func (a *acquisition) nest(outer *hold) (*hold, error) {
	l, g := a.l, outer.g
	h := a.newHold(g) // called under no mutex, because the caller's context may run code of its own
	depth, err := a.enter(outer, h)
	if depth == 0 {
		h.cancel(nil) // no caller has the context of this hold
		return nil, err
	}
	err = g.extend(a.bounds.Until, cmp.Or(a.cfg.Lease, l.s.Lease))
	switch over := h.Err(); {
	case over != nil: // the grant ended while the request was in flight
		err = cmp.Or(err, l.fail(over))
	case a.bounds.Over(): // the call fails even if the request has succeeded
		var holder *failure.LockedError
		if a.barred { // if not, the call has waited only for Redis, and not for a holder
			holder = g.locked()
		}
		err = a.endOfWaitFor(holder)
	}
	if err != nil {
		if u, lost := h.beginUnlock(); lost == nil {
			l.s.Go(func() { _ = h.finishUnlock(context.WithoutCancel(a.ctx), u) }) // a.ctx may have ended
		}
		return nil, err
	}
	l.observe(a.ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(a.begun), Depth: depth,
		Token: g.token})
	return h, nil
}

// enter nests h in outer. Only one hold at a time may be nested in a hold. So while another hold is nested in
// outer, enter waits, but a try returns an error. enter returns the depth of h. If the depth is 0 and there
// is no error, outer has ended.
func (a *acquisition) enter(outer, h *hold) (depth int, err error) {
	g := outer.g
	l := g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case outer.state != handle.Held:
			return 0, nil
		case !time.Now().Before(g.deadline()): // the lease has ended, but the timer is late
			l.mu.Unlock()
			g.end(handle.Lost, failure.ErrExpired)
			l.mu.Lock()
			return 0, nil
		case g.holds[len(g.holds)-1] == outer:
			h.began = l.s.Age()
			g.change++
			g.add(h)
			return len(g.holds), nil
		case a.once:
			return 0, failure.Public(g.locked())
		}
		if outer.changed == nil {
			outer.changed = make(chan struct{})
		}
		changed := outer.changed
		a.barred = true
		l.mu.Unlock()
		a.reportWait()
		if _, ok := call.Await(&a.bounds, changed); !ok {
			err = a.endOfWaitFor(g.locked()) // not under l.mu, because methods of a.ctx may lock it
		}
		l.mu.Lock()
		if err != nil {
			return 0, err
		}
	}
}

// wake wakes the goroutines that wait to nest in h. The caller must hold l.mu.
func (h *hold) wake() {
	if h.changed != nil {
		close(h.changed)
		h.changed = nil
	}
}

// Name returns the name of the lock.
func (h *hold) Name() string { return h.g.l.n.keys.Name }

// Token returns the fencing token, which nested holds share.
func (h *hold) Token() int64 { return h.g.token }

// Deadline returns the local time at which the hold expires.
func (h *hold) Deadline() time.Time { return h.g.deadline() }

// Parts returns nil, because the hold is of one lock.
func (h *hold) Parts() []*handle.Hold { return nil }

// Context returns the context that ends with the hold.
func (h *hold) Context() context.Context { return h.ctx }

// OwnerField returns the owner field of the grant.
func (h *hold) OwnerField() string { return h.g.ownerField() }

// Stay does nothing. It is never called, because these locks reject HoldAtLeast.
func (h *hold) Stay(time.Duration) {}

// NeverStays returns the error with which a MultiLock rejects HoldAtLeast if the lock is one of its members.
func (h *hold) NeverStays() error { return h.g.l.fail(errStays) }

// Err returns nil while the hold is live. After that, it returns ErrNotHeld, ErrLost or ErrClosed of package
// failure.
func (h *hold) Err() error {
	l := h.g.l
	l.mu.Lock()
	err := handle.ErrorOf(h.state)
	l.mu.Unlock()
	// If the process was stopped for a while, the timer that ends the hold may be late.
	if err == nil && !time.Now().Before(h.g.deadline()) {
		return failure.ErrLost
	}
	return err
}

// LossReason returns the reason of the loss. It returns nil if the lock was not lost.
func (h *hold) LossReason() error {
	h.g.l.mu.Lock()
	defer h.g.l.mu.Unlock()
	return h.g.lossReason
}

// Extend extends the lease to at least d from now. It returns an error if Redis does not have the hold any
// more. It blocks for the reply, at most until ctx ends.
func (h *hold) Extend(ctx context.Context, d time.Duration) error {
	l := h.g.l
	if !l.s.Begin() {
		return l.fail(failure.ErrClosed)
	}
	defer l.s.End()
	return h.g.extend(ctx, d)
}

// WaitReplicas blocks until at least n replicas have the grant. The wait also ends with ctx, with the hold or
// with the session, and at an error that another try cannot mend.
func (h *hold) WaitReplicas(ctx context.Context, n int) error {
	l := h.g.l
	if !l.s.Begin() {
		return l.fail(failure.ErrClosed)
	}
	defer l.s.End()
	return l.s.Link.WaitReplicas(ctx, h, l.n.keys.LockKey(), n, l.s.Go)
}

// Forgotten releases a hold that its user can no longer reach. If the hold has a fixed lease, Forgotten does
// nothing, because the lease will expire. Forgotten is called by a cleanup of the runtime. Cleanups wait for
// each other, so the release has its own goroutine.
func (h *hold) Forgotten() {
	l := h.g.l
	go func() {
		if h.fixed {
			return
		}
		l.mu.Lock()
		held := h.state == handle.Held
		l.mu.Unlock()
		if held {
			l.s.Warn("a Hold and its context were forgotten without Unlock; releasing it",
				"lock", l.n.keys.Name, "kind", protocol.Redisson, "token", h.g.token)
			h.cancel(failure.ErrForgotten)
		}
		_ = h.Unlock(context.Background())
	}()
}

// Unlock ends the hold in the session and in Redis. ctx only bounds the wait for the reply. The request is
// sent even if ctx has ended.
func (h *hold) Unlock(ctx context.Context) error {
	u, err := h.beginUnlock()
	if err != nil {
		return err
	}
	return h.finishUnlock(ctx, u)
}

// unlocked is the cause with which the context of an unlocked hold has ended. It is the hold itself,
// converted to another type, so that an Unlock allocates no error.
type unlocked hold

func (u *unlocked) Error() string { return failure.UnlockedText("", u.g.l.n.keys.Name) }
func (u *unlocked) Unwrap() error { return failure.ErrUnlocked }

// beginUnlock ends the hold in the session, and returns the request for Redis. If it returns no error, the
// caller must call finishUnlock. Until the request has ended, the caller is counted as work of the session.
func (h *hold) beginUnlock() (*unlocking, error) {
	g := h.g
	l := g.l
	if !l.s.Begin() {
		return nil, h.tooLate(false)
	}
	l.mu.Lock()
	if h.unlocked || h.state != handle.Held {
		l.mu.Unlock()
		defer l.s.End()
		return nil, h.tooLate(true)
	}
	h.unlocked = true
	h.state = handle.Released
	g.remove(h)
	h.wake()
	for _, other := range g.holds { // after h has ended, another hold may nest in the outer hold
		other.wake()
	}
	u := &unlocking{h: h}
	if len(g.holds) == 0 {
		g.detach(handle.Released)
		l.s.Watchdog.Remove(&g.lease)
		u.release = g.beginRelease()
	}
	l.mu.Unlock()
	h.cancel((*unlocked)(h)) // the context must end before Redis can grant the lock to another client
	return u, nil
}

// tooLate returns the error of an Unlock that is called after its hold has ended, or after Shutdown has
// begun. counted is true if the caller is counted as work of the session, so that Shutdown waits for the
// caller.
func (h *hold) tooLate(counted bool) error {
	g := h.g
	l := g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	again := h.unlocked
	h.unlocked = true
	switch {
	case again:
		return l.fail(failure.ErrUnlockedBefore)
	case h.state == handle.Held:
		return l.fail(failure.ErrClosed)
	case h.state == handle.Lost && counted:
		g.giveBack()
	}
	return l.fail(g.errorOf(h.state))
}

// giveBack releases a lost grant in the background. The lease of the grant may still be valid in Redis, and
// waiters should not have to wait until it ends. giveBack tries for the time of one more lease, even after
// the deadline of the grant, because a copy of the attempt's request may still arrive and take the lock. The
// caller must be counted as work of the session (Session.Begin).
func (g *grant) giveBack() {
	l := g.l
	r := l.n.release(l.s, g.owner, "", g.late)
	until := time.Now().Add(l.s.Lease)
	l.s.Go(func() { l.repeat(&r, until) })
}

// An unlocking is the request of an Unlock. It releases the lock or, if other holds are left, sets the hold
// count in Redis.
type unlocking struct {
	h       *hold
	release *release        // nil if other holds are left
	ctx     context.Context // context for the observer
}

// finishUnlock sends the request of an Unlock, and waits for the reply within the bounds of
// handle.UnlockBounds.
func (h *hold) finishUnlock(ctx context.Context, u *unlocking) error {
	l := h.g.l
	ctx, atMost := handle.UnlockBounds(ctx, l.s.Lease)
	u.ctx = ctx
	o, answered := call.Ask(&call.Bounds{Until: ctx}, l.s, l.n.keys.LockKey(), u, atMost)
	if !answered {
		return l.fail(handle.UnlockError(ctx))
	}
	return u.onReply(ctx, o)
}

// Send sends at most maxTries copies, and blocks for the reply.
func (u *unlocking) Send(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
	var r wire.Copier = u.release
	if u.release == nil {
		r = &update{u.h.g, "0"}
	}
	return u.h.g.l.s.Link.Call(ctx, r, maxTries, nil)
}

// RollBack handles the outcome if the caller of Unlock has left. It rolls nothing back, because the hold has
// ended all the same.
func (u *unlocking) RollBack(o wire.Outcome) { _ = u.onReply(context.WithoutCancel(u.ctx), o) }

// onReply handles the outcome of the request, and ends the Unlock.
func (u *unlocking) onReply(ctx context.Context, o wire.Outcome) error {
	g := u.h.g
	l := g.l
	defer l.s.End()
	if u.release == nil {
		err := g.onUpdate(o, 0)
		if errors.Is(err, failure.ErrNotHeld) { // the Unlock of the last hold has overtaken this request
			return nil
		}
		return err
	}
	err := u.release.onReply(o)
	event := session.Event{
		Kind: session.EventReleased, Token: g.token, Held: l.s.Age() - g.began, Err: err,
	}
	if isLost(err) { // Redis did not have the grant any more
		g.warnLost(event.Held, failure.ErrGone)
		event.Kind, event.Err = session.EventLost, failure.Lost(failure.ErrGone)
	}
	l.observe(ctx, event)
	return err
}
