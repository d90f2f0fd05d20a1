package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Grant is a lease that Redis granted to one attempt, with the entries that goroutines have in it. At first,
// the state of a grant is held. The state changes once, to released, lost or closed (handle.State).
type Grant struct {
	// The following never change.
	l          *lockState
	owner      any // string, owner field of the attempt
	firstToken any // int64, the first token of the block that Redis granted
	info       any // string, the holder info of the attempt

	lease watchdog.Lease // guarded by the watchdog

	// lockState.mu guards the following.
	lane           *lane         // the lane whose goroutines may get the grant
	reservedFor    *lane         // lane whose attempt just got or prolonged the grant; nil after that event
	holds          []*Entry      // the live holds
	permits        int64         // number of permits; All excludes all other holders
	token          int64         // token of the present holder; of the last holder if there is none
	staleUntil     int64         // Redis time in µs until which a copy of the attempt's request may arrive
	revision       int64         // number of the last change of the hold count; Redis ignores older changes
	reservedToken  int64         // no later grant may have this token or a lower one; 0 means not set
	queueCheckedAt time.Duration // age of the session from which passOnTime counts
	takenUntil     time.Duration // age until which the grant stays taken, even without a hold (HoldAtLeast)
	allTakenUntil  time.Duration // age until which all permits stay taken (HoldAtLeast of a writer)
	numPasses      int32         // how often an exclusive grant was passed on in memory
	numEntries     int32         // number of entries, including those of waiters that have no hold yet
	numWriters     int32         // number of holds whose calls wanted all permits
	numRenewed     int32         // number of holds that need renewal of the lease
	state          handle.State
	used           bool // a goroutine has had a hold in this grant
	customLease    bool // a holder chose the lease, or made it longer
	fixedLease     bool // the lease is not renewed
	warnedOfItself bool // warnOfItself has logged a warning for this grant
	lingers        bool // the session may keep the grant while no goroutine has it (WithLinger)

	renewError   error         // error of the last renewal that failed; nil means none failed
	renewErrorAt time.Duration // age of the session when renewError was set
	lossReason   error         // why the grant was lost; nil means it was not lost

	// Space for the first hold. Most grants have one hold at a time, so this saves allocations. waiter.hold
	// fills inlineEntry without the mutex.
	inlineEntry Entry
	inlineHolds [1]*Entry
}

// newGrant makes the Grant for an attempt to which Redis has granted the lock. home is the lane of the grant,
// which is not always the lane of the attempt. base is a local time that is not after the grant. The error is
// ErrTooLate, ErrClosed or ErrNoToken. After an error the caller must release the grant in Redis.
func (l *lockState) newGrant(
	a *attempt, home *lane, token int64, base time.Time, lease time.Duration, fx *effects,
) (*Grant, error) {
	s := l.s
	exclusive := home.want.exclusive()
	deadline := base.Add(protocol.Valid(lease))
	// If the session has an exclusive grant with a higher token, the new grant has already ended.
	later := func(g *Grant) bool { return g.token > token }
	switch {
	case wire.Closed(s.Closing()): // checked under the mutex, so that Shutdown finds each grant
		return nil, failure.ErrClosed
	case token == 0:
		return nil, failure.ErrNoToken
	case !time.Now().Before(deadline), exclusive && slices.ContainsFunc(l.grants, later):
		return nil, ErrTooLate
	}
	if exclusive { // Redis has granted all permits, so it does not have the former grants any more
		for _, former := range slices.Clone(l.grants) { // end removes grants
			former.end(handle.Lost, failure.ErrGone, fx)
		}
	}
	g := &Grant{
		l: l, owner: a.owner, info: a.info, firstToken: token, token: token, staleUntil: a.staleUntil,
		fixedLease: a.lease != 0, customLease: a.lease != 0,
		lane: home, reservedFor: a.lane, permits: home.want.N, queueCheckedAt: fx.age,
	}
	g.lease.Owner, g.holds = g, g.inlineHolds[:0]
	home.numGrants++
	l.grants = append(l.grants, g)
	fx.uses++ // end or releaseGrant ends this use
	every := s.Lease / 3
	if g.fixedLease {
		every = 0 // the watchdog ends the lease, but does not renew it
	}
	s.Watchdog.Add(&g.lease, deadline, every)
	if lease < a.lease { // a handed-over grant has a short first lease
		fx.background(func() { g.completeLease(base.Add(a.lease)) })
	}
	return g, nil
}

// ErrTooLate is the error of a grant that had ended before its call could use it, usually because the reply
// took longer than the lease.
var ErrTooLate = fmt.Errorf("%w: the grant took longer than its lease", failure.ErrLost)

// completeLease prolongs the short first lease of a handed-over grant until the time at which the fixed lease
// of the call must end. The watchdog does not renew a fixed lease. So completeLease tries again until it
// succeeds, or until trying again would not help. It also stops when the grant, its lease or the session
// ends.
func (g *Grant) completeLease(until time.Time) {
	s := g.l.s
	for try := 1; ; try++ {
		d := time.Until(until)
		// Send one copy at a time. The grant may be released after each copy, and then no other copy is
		// needed.
		o := s.Link.Call(s.Ctx, &update{g, protocol.Milliseconds(d)}, 1, nil)
		err := g.onUpdate(o, d)
		if err == nil || !wire.Judge(err).Unsettled() || !time.Now().Before(g.deadline()) ||
			!g.pause(wire.Backoff(try, 20*time.Millisecond, 200*time.Millisecond)) {
			return
		}
	}
}

// pause waits for d, and reports whether the grant is still held. It returns false early if the grant is lost
// or closed, or if the session ends. If the grant is released meanwhile, pause may notice this only at the
// reply to the release.
func (g *Grant) pause(d time.Duration) bool {
	l := g.l
	b, at := call.Bounds{Until: l.s.Ctx}, time.Now().Add(d)
	for {
		l.mu.Lock()
		held, released := g.held(), l.nextRelease()
		l.mu.Unlock()
		d := time.Until(at)
		if !held || d <= 0 {
			return held
		}
		if _, ended := b.Sleep(d, released); ended {
			return false
		}
	}
}

// held reports whether the grant is still held. The caller must hold l.mu.
func (g *Grant) held() bool { return g.state == handle.Held }

// exclusive reports whether the grant excludes all other holders. The caller must hold l.mu.
func (g *Grant) exclusive() bool { return g.permits == All }

// hasOnlyReaders reports whether a writer's grant is left to readers that were nested in the writer. The
// caller must hold l.mu.
func (g *Grant) hasOnlyReaders() bool {
	return g.exclusive() && g.numWriters == 0 && len(g.holds) > 0
}

// deadline returns the local time at which the grant expires.
func (g *Grant) deadline() time.Time { return g.l.s.Watchdog.Deadline(&g.lease) }

// addEntry counts an entry for a waiter that the grant serves. A grant that has not just come from Redis is
// passed on in memory. In this case, an exclusive grant moves to the next token of its block, because each
// holder has its own token.
func (g *Grant) addEntry() {
	if g.reservedFor == nil && g.exclusive() {
		g.token++
		g.numPasses++
	}
	g.numEntries++
}

// about returns the holder info that Redis has for the grant.
func (g *Grant) about() string { return strings.TrimSpace(g.info.(string)) }

// leave sets the state of a grant that has ended, and removes the grant from the lock state.
func (g *Grant) leave(why handle.State) {
	l := g.l
	g.state = why
	for _, ln := range l.lanes {
		if len(ln.waiters) > 0 { // errors name this holder until another one is known
			now := time.Now()
			owner := g.owner.(string)
			l.lastHolder = &failure.Sighting{Holder: owner, About: g.about(), At: now, Until: now}
			break
		}
	}
	l.grants = slices.DeleteFunc(l.grants, func(other *Grant) bool { return other == g })
	g.lane.numGrants--
	g.endLinger()
	l.s.Watchdog.Remove(&g.lease)
}

// endLinger ends the permission to keep the grant while no goroutine has it, and removes the grant from the
// inbox.
func (g *Grant) endLinger() {
	if g.lingers {
		g.lingers = false
		g.l.registry.inbox.remove(g.owner.(string))
	}
}

// end ends a grant without an Unlock, because the grant was lost or the session closes. For a loss, reason is
// the cause of the loss. The contexts of the grant's holds are canceled before any waiter is woken. When the
// deadline passes, Redis has not granted the lock to others yet, because the lease in Redis ends later. So
// the contexts are canceled before another session can get the lock, unless the timer is late.
//
// end releases a lost grant that has no entry, because no Unlock will follow. A lost grant that has an entry
// is released by the first Unlock of a hold, or by a waiter that finds the grant lost (hold, dropEntry).
// Shutdown releases a closed grant.
func (g *Grant) end(why handle.State, reason error, fx *effects) {
	l := g.l
	if !g.held() {
		return // an earlier event has ended the grant
	}
	g.leave(why)
	if why == handle.Lost {
		g.lossReason = reason
	}
	holds := g.holds // the list does not change any more
	for _, e := range holds {
		e.state = why
		e.notifyChanged() // wakes goroutines that wait to nest in e
	}
	l.notifyReleaseDone() // a TryLock of the session may wait for the end of the grant
	held, token := fx.age-g.queueCheckedAt, g.token
	events := g.endChains(why, reason, fx)
	if g.numEntries == 0 && why == handle.Lost {
		g.releaseLost(fx)
	}
	fx.uses--
	if len(holds) == 0 {
		return
	}
	report := func() {
		if reason != nil {
			l.warnLost(token, held, reason)
		}
		for _, e := range events {
			l.observe(l.s.Ctx, e)
		}
	}
	closed := fx.closed
	fx.call(func() {
		// Cancel nested holds first. Otherwise the end of the outer hold would be the cause of their end.
		for _, e := range slices.Backward(holds) {
			held = max(held, l.s.Age()-e.began)
			e.cancel(handle.ErrorOf(why))
		}
		if closed {
			go report() // in its own goroutine, because contexts of other holds must not wait for a log
		} else {
			l.s.Go(report)
		}
	})
}

// endChains ends the chains of the grant's holds, and returns the events for the observer. If the observer
// has not been notified yet that the root of a chain was acquired, endChains keeps the event of this chain,
// and announce reports it later.
func (g *Grant) endChains(why handle.State, reason error, fx *effects) (events []session.Event) {
	for _, e := range g.holds {
		c := &e.root.chain
		if c.holds == 0 {
			continue // the chain of e was ended when the loop reached another hold of this chain
		}
		c.holds = 0
		event := session.Event{
			Kind: session.EventReleased, Token: e.root.token, Held: fx.age - e.root.began,
		}
		if why == handle.Lost {
			event.Kind, event.Err = session.EventLost, failure.Lost(reason)
		}
		if c.announced {
			events = append(events, event)
		} else {
			c.lost = &event
		}
	}
	return events
}

// warnLost logs that a hold, or a grant without a hold, was lost.
func (l *lockState) warnLost(token int64, held time.Duration, reason error) {
	l.s.Warn("lock lost", "lock", l.keys.Name, "kind", l.kind.Letter, "token", token, "held", held,
		"server", l.s.Link.NameOf(l.keys.LockKey()), "reason", reason)
}

// errorOf returns the error of a hold in this state, with the reason of a loss. The caller must hold l.mu.
func (g *Grant) errorOf(s handle.State) error {
	if s == handle.Lost {
		return failure.Lost(g.lossReason)
	}
	return handle.ErrorOf(s)
}

// lastUsed returns the highest token that no later grant may have. This is the token of the last holder, or
// reservedToken if that is higher. Later grants may have the other tokens of the grant's block. The result is
// an argument of scripts.
func (g *Grant) lastUsed() any {
	if last := max(g.token, g.reservedToken); last != g.firstToken.(int64) {
		return last
	}
	return g.firstToken // the usual case, which needs no allocation
}

// extend makes the lease last for at least d from now. For a kind that counts holds, extend also sends Redis
// the hold count. If d is 0, the lease stays as it is. extend blocks for the reply. If ctx ends first, a
// request that was sent may still be carried out.
func (g *Grant) extend(ctx context.Context, d time.Duration) error {
	l := g.l
	s := l.s
	fx := l.begin()
	g.customLease = g.customLease || d > s.Lease // before the reply, which may be lost
	fx.commit()
	r := &update{g, protocol.Milliseconds(d)}
	send := func(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
		return s.Link.Call(ctx, r, maxTries, nil)
	}
	b, begun := &call.Bounds{Until: ctx}, time.Now()
	o, answered := call.Ask(b, s, l.keys.LockKey(), call.Func(send), s.Lease)
	if !answered {
		return call.Unanswered(b, s, l.keys, l.kind.Noun, begun)
	}
	return g.onUpdate(o, d)
}

// onUpdate handles the reply to an update. d is the time for which the update makes the lease last; 0 means
// that it does not prolong the lease.
func (g *Grant) onUpdate(o wire.Outcome, d time.Duration) error {
	l := g.l
	switch {
	case o.Err != nil:
		return l.kind.Failed(l.keys, o.Err)
	case !strings.HasPrefix(o.Reply, "K"):
		fx := l.begin()
		g.end(handle.Lost, failure.ErrGone, &fx) // does nothing if g has ended already
		err := l.named(g.errorOf(g.state))
		fx.commit()
		return err
	case d > 0:
		l.s.Watchdog.Extend(&g.lease, o.Sent.Add(protocol.Valid(d)))
	}
	return nil
}

// update is a request that makes the lease last for at least ms milliseconds. If Redis stores the hold count,
// the update also sets this count. An update sets values and never adds to them, so a stale or second copy
// does no harm.
type update struct {
	g  *Grant
	ms any // string, milliseconds; "0" keeps the present lease
}

// Request returns the next copy of the request, with the present hold count.
func (u *update) Request(time.Time) *wire.Request {
	g, l := u.g, u.g.l
	keep := l.s.Args.Retention
	if !l.kind.Counts {
		return l.keys.Request(renewScript, g.owner, g.firstToken, "0", "1", u.ms, keep, "0")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := max(g.numEntries, 1) // an unused grant that is kept counts as one hold
	return l.keys.RequestFew(renewScript, g.owner, g.firstToken, g.revision, holds, u.ms, keep,
		g.reservedToken)
}

var _ session.Lessee = (*Grant)(nil)

func (g *Grant) LeaseKey() string { return g.l.keys.LockKey() }

func (g *Grant) Renewal() (r *wire.Request, prolongs bool) {
	g.l.mu.Lock()
	prolongs = !g.fixedLease
	g.l.mu.Unlock()
	lease := any("0")
	if prolongs {
		lease = g.l.s.Args.Lease
	}
	return (&update{g, lease}).Request(time.Time{}), prolongs
}

// LeaseLost handles the event that the watchdog has ended the lease.
func (g *Grant) LeaseLost(deadlinePassed bool) {
	reason := g.whyLost(deadlinePassed)
	closed := !g.l.s.Begin()
	fx := g.l.begin()
	fx.closed = closed
	g.end(handle.Lost, reason, &fx)
	fx.commit()
	if !closed {
		g.l.s.End()
	}
}

// whyLost returns the reason for which the watchdog has ended the lease. If a lease that should have been
// renewed has expired, the reason includes the last error of a renewal or of the server, if one is known.
func (g *Grant) whyLost(deadlinePassed bool) error {
	l := g.l
	reason := failure.LossReason(deadlinePassed)
	if !deadlinePassed {
		return reason
	}
	l.mu.Lock()
	last, at, fixed := g.renewError, g.renewErrorAt, g.fixedLease
	l.mu.Unlock()
	// An error that is older than one lease cannot explain the loss, because a later renewal has succeeded.
	if last == nil || l.s.Age()-at > l.s.Lease {
		_, last = l.s.Link.Trouble(l.s.Ctx, l.keys.LockKey())
	}
	switch {
	case fixed:
		return failure.ErrFixedLeaseOver
	case last == nil:
		return reason
	}
	return fmt.Errorf("%w; the last renewal failed: %s", reason, failure.Unnamed(l.kind.Failed(l.keys, last)))
}

// RenewalFailed keeps the error, which is part of the reason of a later loss (whyLost). It also calls the
// observer.
func (g *Grant) RenewalFailed(err error) {
	g.l.mu.Lock()
	token := g.token
	g.renewError, g.renewErrorAt = err, g.l.s.Age()
	g.l.mu.Unlock()
	g.l.observe(g.l.s.Ctx, session.Event{Kind: session.EventRenewFailed, Token: token, Err: err})
}

// renew switches the renewal of the lease on or off.
func (g *Grant) renew(on bool) {
	if on != g.fixedLease {
		return
	}
	g.fixedLease = !on
	every := time.Duration(0)
	if on {
		every = g.l.s.Lease / 3
	}
	g.l.s.Watchdog.SetInterval(&g.lease, every)
}

// A grant that the session may keep is a recipient of messages.

func (g *Grant) Key() string { return g.l.keys.LockKey() }

// OnMessage handles a message without words. Such a message means that another session was refused the lock,
// or that messages may have been missed. So the session may no longer keep the grant while no goroutine has
// it.
func (g *Grant) OnMessage(words []string) {
	if len(words) == 0 {
		fx := g.l.begin()
		g.endLinger()
		fx.commit()
	}
}

// LongWait is the time after which a wait for a holder of the same session is logged, with the text
// WaitsForItself. Such a wait may never end.
const (
	LongWait       = 10 * time.Second
	WaitsForItself = "goroutines have waited for 10 s for a holder of this same session; if the holder " +
		"called the waiter, pass the waiter the context that the holder's Lock returned"
)

// warnOfItself logs that goroutines have waited for LongWait for a holder of their own session. It does so
// once for each grant, and only if the holder has had its hold for LongWait, too.
func (l *lockState) warnOfItself(fx *effects) {
	l.suspectAt = 0
	for _, ln := range l.lanes {
		if len(ln.waiters) == 0 {
			continue
		}
		l.suspectAt = fx.age + LongWait
		for _, g := range l.grants {
			isLong := func(e *Entry) bool { return fx.age-e.began >= LongWait }
			heldLong := slices.ContainsFunc(g.holds, isLong)
			inWay := ln.want.exclusive() || g.exclusive()
			if heldLong && inWay && time.Since(ln.waiters[0].begun) >= LongWait && !g.warnedOfItself {
				g.warnedOfItself = true
				fx.background(func() { l.s.Warn(WaitsForItself, "lock", l.keys.Name) })
			}
		}
	}
}
