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

// Grant is permits that Redis gave to one attempt, and what goroutines have of them. It is held; then
// released, lost or closed.
type Grant struct {
	// What follows never changes.
	p     *pool
	owner any // string: the attempt's
	first any // int64: token of the grant
	info  any // string: the attempt's holder info

	lease watchdog.Lease // guarded by the watchdog
	one   Entry          // of the first goroutine, if no other shares the grant; saves an allocation
	hold  [1]*Entry      // the beginning of holds

	// pool.mu guards the following.
	l         *lane         // for whose goroutines it is
	holds     []*Entry      // live ones
	n         int64         // permits
	token     int64         // of the present holder
	late      int64         // Redis time until which a copy of the attempt's request may come
	change    int64         // number of the last change of entries: Redis ignores earlier ones that come late
	floor     int64         // no later grant may have this token or one below; 0: what Redis granted says so
	since     time.Duration // age of the session when Redis was last asked whether others wait
	stays     time.Duration // age of the session until which permits stay taken, also when no hold is left
	whole     time.Duration // the age until which that goes for all of them, as a writer has said
	passes    int32         // how many goroutines have had it before the present one
	entries   int32         // of goroutines, with those that are on their way
	writers   int32         // of these, how many exclude others
	renewed   int32         // how many holds want the lease renewed
	state     handle.State
	used      bool        // some goroutine has had it
	own       bool        // its lease is, or was made longer, as a holder chose
	unrenewed bool        // it is not
	warned    bool        // the log says that the session waits for itself
	lingers   bool        // the session may keep it while no goroutine has it
	lapse     *time.Timer // releases it then; nil: it was never idle

	renewError   error         // of the last renewal that failed; nil: none has
	renewErrorAt time.Duration // age of the session at that time
	lossReason   error         // nil: it was not lost
}

// newGrant makes a grant of what Redis gave, whose lease counts from base. After an error the caller gives it
// back: ErrTooLate, ErrClosed or ErrNoToken. mu held.
func (p *pool) newGrant(
	l *lane, owner, info any, token int64, base time.Time, lease, fixed time.Duration,
) (*Grant, error) {
	s := p.s
	deadline := base.Add(protocol.Valid(lease))
	// With mu held: Shutdown closes that before it lists the grants, so a grant is on its list or is not
	// made.
	later := func(g *Grant) bool { return g.token > token } // this one was forced before its answer came
	switch {
	case wire.Closed(s.Closing()):
		return nil, failure.ErrClosed
	case token == 0:
		return nil, failure.ErrNoToken
	case !time.Now().Before(deadline), l.want.exclusive() && slices.ContainsFunc(p.grants, later):
		return nil, ErrTooLate
	}
	var former []*Grant
	if l.want.exclusive() {
		former = slices.Clone(p.grants) // or Redis would not have granted again
	}
	g := &Grant{
		p: p, owner: owner, info: info, first: token, token: token, unrenewed: fixed != 0, own: fixed != 0,
		l: l, n: l.want.N, since: s.Age(),
	}
	g.lease.Owner, g.holds = g, g.hold[:0]
	l.grants++
	p.grants = append(p.grants, g)
	p.retain() // dropped by endNow, or when the release has ended (released)
	for _, old := range former {
		s.Go(old.endNow(handle.Lost, failure.ErrGone)) // cancels contexts, under no mutex
	}
	every := s.Lease / 3
	if g.unrenewed {
		every = 0 // watched, and not renewed
	}
	s.Watchdog.Add(&g.lease, deadline, every)
	if lease < fixed { // the first lease of a grant that was handed over
		s.Go(func() { g.complete(base.Add(fixed)) })
	}
	return g, nil
}

// ErrTooLate is why a grant is none: it came when its lease was over.
var ErrTooLate = fmt.Errorf("%w: the grant took longer than its lease", failure.ErrLost)

// complete extends the short first lease of a grant that was handed over to the fixed lease that the caller
// chose, which ends at until. The watchdog does not renew that lease, so complete tries again until the grant
// or its lease ends.
func (g *Grant) complete(until time.Time) {
	s := g.p.s
	for try := 1; ; try++ {
		d := time.Until(until)
		// One copy at a time: after each, the grant may have been released.
		o := s.Link.Call(s.Ctx, &update{g, protocol.Milliseconds(d)}, 1, nil)
		err := g.updated(o, d)
		if err == nil || !wire.Judge(err).Unsettled() || !time.Now().Before(g.deadline()) ||
			!g.pause(wire.Backoff(try, 20*time.Millisecond, 200*time.Millisecond)) {
			return
		}
	}
}

// pause waits for d, and reports whether the grant is still held. It returns early if the grant is released.
func (g *Grant) pause(d time.Duration) bool {
	p := g.p
	b, at := call.Bounds{Until: p.s.Ctx}, time.Now().Add(d)
	for {
		p.mu.Lock()
		held, released := g.held(), p.nextRelease()
		p.mu.Unlock()
		d := time.Until(at)
		if !held || d <= 0 {
			return held
		}
		if _, ended := b.Sleep(d, released); ended {
			return false
		}
	}
}

// held reports whether the grant goes on. mu held.
func (g *Grant) held() bool { return g.state == handle.Held }

// exclusive reports whether it excludes all others. mu held.
func (g *Grant) exclusive() bool { return g.n == All }

// deadline is until when it is valid.
func (g *Grant) deadline() time.Time { return g.p.s.Watchdog.Deadline(&g.lease) }

// lasts reports whether enough is left of its lease to give it to another goroutine. mu held.
func (g *Grant) lasts() bool {
	s := g.p.s
	// A grant that was served in the queue has no longer lease at first than the least of these three.
	return g.held() && !g.own && !wire.Closed(s.Closing()) &&
		time.Until(g.deadline()) >= min(s.Lease, s.Liveness, protocol.FirstLease)/4
}

// about returns the holder info that Redis has of the grant.
func (g *Grant) about() string { return strings.TrimSpace(g.info.(string)) }

// leavePool ends it for its session. mu held.
func (g *Grant) leavePool(why handle.State) {
	p := g.p
	g.state = why
	for _, l := range p.lanes {
		if len(l.waiters) > 0 { // they remember it until they learn of another holder
			now := time.Now()
			p.seen = &failure.Sighting{Holder: g.owner.(string), About: g.about(), At: now, Until: now}
			break
		}
	}
	p.grants = slices.DeleteFunc(p.grants, func(other *Grant) bool { return other == g })
	g.leaveLane()
	g.endLinger()
}

// leaveLane takes it out of its lane. mu held.
func (g *Grant) leaveLane() {
	if g.l.live == g {
		g.l.live = nil
	}
	g.l.grants--
	g.l.forget()
}

// end ends the grant without an Unlock, for a reason if it was lost. It reports whether this call ended it;
// then the caller, or the Unlock of a hold, gives it back. If the deadline has passed, contexts are canceled
// before Redis can give the permits to others.
func (g *Grant) end(why handle.State, reason error) bool {
	g.p.mu.Lock()
	if !g.held() {
		g.p.mu.Unlock()
		return false // whatever ended it gives it back
	}
	after := g.endNow(why, reason)
	g.p.mu.Unlock()
	after()
	return true
}

// endNow ends a grant that is held. What follows, as the end of its contexts, is after, which needs mu free.
// mu held.
func (g *Grant) endNow(why handle.State, reason error) (after func()) {
	p := g.p
	s := p.s
	g.leavePool(why)
	if why == handle.Lost {
		g.lossReason = reason
	}
	holds := g.holds // those of a grant that is over change no more
	for _, e := range holds {
		e.state = why
		e.wake() // whichever goroutines wait to nest in it look again
	}
	p.endsRelease() // a try of the session may have waited for its Unlock
	held, token := s.Age()-g.since, g.token
	events := g.endChains(why, reason)
	if len(g.l.waiters) > 0 && s.Begin() { // they may have waited for it in memory
		g.l.ask()
		s.End()
	}
	if g.entries == 0 && why == handle.Lost && s.Begin() { // no Unlock will tell Redis
		g.giveBack()
		s.End()
	}
	return func() {
		s.Watchdog.Remove(&g.lease)
		report := func() { g.report(token, held, reason, events) }
		// Before the user, whose context ends, may close the session.
		counted := len(holds) > 0 && why == handle.Lost && s.Begin()
		for _, e := range slices.Backward(holds) { // nested ones first, or the outer's end would be the cause
			held = max(held, s.Age()-e.began)
			e.cancel(handle.ErrorOf(why)) // without mu: what hangs on the context runs
			if e.part != nil {
				e.part.Lost()
			}
		}
		switch { // many may be lost at once: their contexts must not wait for a log
		case len(holds) == 0:
		case counted:
			go func() {
				defer s.End()
				report()
			}()
		case why == handle.Closed:
			s.Go(report) // Shutdown, which has called this, has yet to wait for the session's work
		default:
			go report()
		}
		p.drop()
	}
}

// endChains ends the chains of the grant's holds, and returns the events for the observer. If the observer
// does not know of a hold yet, because the hold has just begun, its event is kept until then (announced). The
// caller must hold pool.mu.
func (g *Grant) endChains(why handle.State, reason error) (events []session.Event) {
	for _, e := range g.holds {
		c := &e.root.chain
		if c.holds == 0 {
			continue // another of its holds was before this one
		}
		c.holds = 0
		event := session.Event{
			Kind: session.EventReleased, Token: e.root.token, Held: g.p.s.Age() - e.root.began,
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

// announced notes that the observer knows of the hold, and tells it of a loss that was faster.
func (e *Entry) announced() {
	p := e.g.p
	if p.s.Observer == nil {
		return
	}
	p.mu.Lock()
	event := e.chain.lost
	e.chain.announced = true
	p.mu.Unlock()
	if event != nil {
		p.observe(p.s.Ctx, *event)
	}
}

// report logs a loss, and tells observers what has become of the holds. reason is nil for a grant that the
// session gives back as it closes.
func (g *Grant) report(token int64, held time.Duration, reason error, events []session.Event) {
	if reason != nil {
		g.p.warnLost(token, held, reason)
	}
	for _, e := range events {
		g.p.observe(g.p.s.Ctx, e)
	}
}

// warnLost logs that a hold or an idle grant was lost.
func (p *pool) warnLost(token int64, held time.Duration, reason error) {
	p.s.Warn("lock lost", "lock", p.keys.Name, "kind", p.kind.Letter, "token", token, "held", held,
		"reason", reason)
}

// errorOf returns the error of a hold in this state, with the reason of a loss. The caller must hold pool.mu.
func (g *Grant) errorOf(s handle.State) error {
	if s == handle.Lost {
		return failure.Lost(g.lossReason)
	}
	return handle.ErrorOf(s)
}

// lastUsed returns the last token that was used of the grant, for scripts. The caller must hold pool.mu.
func (g *Grant) lastUsed() any {
	if max(g.token, g.floor) == g.first.(int64) { // which is so with most
		return g.first // which is boxed
	}
	return max(g.token, g.floor)
}

// extend makes its lease at least d, unless that is 0, and tells Redis what is held. It blocks for the
// answer, and the request goes on when ctx has ended.
func (g *Grant) extend(ctx context.Context, d time.Duration) error {
	p := g.p
	s := p.s
	p.mu.Lock()
	g.own = g.own || d > s.Lease // before the request, which may work though its answer is lost
	p.mu.Unlock()
	r := &update{g, protocol.Milliseconds(d)}
	send := func(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
		return s.Link.Call(ctx, r, maxTries, nil)
	}
	b, begun := &call.Bounds{Until: ctx}, time.Now()
	o, answered := call.Ask(b, s, p.keys.LockKey(), call.Func(send), s.Lease)
	if !answered {
		return call.Unanswered(b, s, p.keys, p.kind.Noun, begun)
	}
	return g.updated(o, d)
}

// updated takes in how an update has ended, of a lease of at least d.
func (g *Grant) updated(o wire.Outcome, d time.Duration) error {
	p := g.p
	switch {
	case o.Err != nil:
		return p.kind.Failed(p.keys, o.Err)
	case !strings.HasPrefix(o.Reply, "K"):
		g.end(handle.Lost, failure.ErrGone) // nothing happens if it was unlocked meanwhile
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.fail(g.errorOf(g.state))
	case d > 0:
		p.s.Watchdog.Extend(&g.lease, o.Sent.Add(protocol.Valid(d)))
	}
	return nil
}

// update is a request that tells Redis what is held, and makes the lease at least so long. It sets and never
// adds, so a copy that comes twice or late changes nothing.
type update struct {
	g  *Grant
	ms any // "0" leaves the lease as it is
}

// Request makes a copy, of what is true when it leaves.
func (u *update) Request(time.Time) *wire.Request {
	g, p := u.g, u.g.p
	keep := p.s.Args.Keep
	if !p.kind.Counts {
		return p.keys.Request(renewScript, g.owner, g.first, "0", "1", u.ms, keep, "0")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	holds := max(g.entries, 1) // that of an idle one is the next goroutine's
	return p.keys.RequestFew(renewScript, g.owner, g.first, g.change, holds, u.ms, keep, g.floor)
}

// A Grant is a session.Lessee.

// LeaseKey is the holders' key.
func (g *Grant) LeaseKey() string { return g.p.keys.LockKey() }

func (g *Grant) Renewal() (r *wire.Request, prolongs bool) {
	g.p.mu.Lock()
	prolongs = !g.unrenewed
	g.p.mu.Unlock()
	lease := any("0")
	if prolongs {
		lease = g.p.s.Args.Lease
	}
	return (&update{g, lease}).Request(time.Time{}), prolongs
}

// LeaseLost ends the grant.
func (g *Grant) LeaseLost(deadlinePassed bool) {
	g.end(handle.Lost, g.whyLost(deadlinePassed))
}

// whyLost returns why the watchdog has given the lease up, with what kept it from being renewed.
func (g *Grant) whyLost(deadlinePassed bool) error {
	p := g.p
	reason := failure.LossReason(deadlinePassed)
	if !deadlinePassed {
		return reason
	}
	p.mu.Lock()
	last, at, fixed := g.renewError, g.renewErrorAt, g.unrenewed
	p.mu.Unlock()
	if last == nil || p.s.Age()-at > p.s.Lease { // the lease was renewed since
		_, last = p.s.Link.Trouble(p.s.Ctx, p.keys.LockKey())
	}
	switch {
	case fixed:
		return failure.ErrFixedLeaseOver
	case last == nil:
		return reason
	}
	return fmt.Errorf("%w; the last renewal failed: %s", reason, failure.Unnamed(p.kind.Failed(p.keys, last)))
}

// RenewalFailed keeps the error for the log of a loss, and tells the observer.
func (g *Grant) RenewalFailed(err error) {
	g.p.mu.Lock()
	token := g.token
	g.renewError, g.renewErrorAt = err, g.p.s.Age()
	g.p.mu.Unlock()
	g.p.observe(g.p.s.Ctx, session.Event{Kind: session.EventRenewFailed, Token: token, Err: err})
}

// LongWait is after which time a wait for the session's own holder is logged, with WaitsForItself: it may be
// one without end.
const (
	LongWait       = 10 * time.Second
	WaitsForItself = "goroutines have waited for 10 s for a holder of this same session; if the waiter was " +
		"called by the holder, it must be passed the context that the holder's Lock returned"
)

// suspect has a wait looked at later: the session may wait for itself. One timer does for all waits of the
// pool. mu held.
func (p *pool) suspect() {
	if p.kind.Reentrant && p.suspicion == nil {
		p.suspicion = time.AfterFunc(LongWait, p.warnOfItself)
	}
}

// warnOfItself logs, once for each grant, that goroutines have waited for long for a holder of their own
// session.
func (p *pool) warnOfItself() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspicion = nil
	for _, l := range p.lanes {
		if len(l.waiters) == 0 {
			continue
		}
		p.suspect()
		for _, g := range p.grants {
			held := false
			for _, e := range g.holds {
				held = held || p.s.Age()-e.began >= LongWait
			}
			inWay := l.want.exclusive() || g.exclusive()
			long := held && inWay && time.Since(l.first().begun) >= LongWait
			if long && !g.warned && p.s.Begin() {
				g.warned = true
				go func() { // loggers run under no mutex
					defer p.s.End()
					p.s.Warn(WaitsForItself, "lock", p.keys.Name)
				}()
			}
		}
	}
}
