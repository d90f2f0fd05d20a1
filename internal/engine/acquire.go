package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Permits are those of one name in a session. They keep no state of any acquisition.
type Permits struct {
	s    *session.Session
	all  *pools
	kind *Kind
	keys *protocol.Keys
	cfg  Config
	err  error // of New, returned by every use
}

// New names permits. Acquisitions start from cfg. What is wrong with the session or the name, every use
// returns.
func New(s *session.Session, kind *Kind, name string, cfg Config) Permits {
	ps := Permits{s: s, kind: kind, cfg: cfg}
	if s == nil {
		ps.err = kind.Named(name, failure.ErrNilSession)
		return ps
	}
	if ps.keys, ps.err = kind.newKeys(s, name); ps.err != nil {
		return ps
	}
	ps.all, ps.err = session.PartOf(s, poolsKey{}, newPools)
	if ps.err != nil {
		ps.err = kind.Named(name, ps.err)
	}
	return ps
}

var errZero = errors.New("lockline: the lock, semaphore or election is nil or a zero value; " +
	"make one with New")

// CheckUse says what is wrong with a call that has this context.
func (ps *Permits) CheckUse(ctx context.Context) error {
	switch {
	case ps == nil || ps.s == nil && ps.err == nil:
		return errZero
	case ps.err != nil:
		return ps.err
	case ctx == nil:
		return ps.kind.Named(ps.keys.Name, failure.ErrNilContext)
	}
	return nil
}

// Name is the name; "" where there is none.
func (ps *Permits) Name() string {
	if ps == nil || ps.keys == nil {
		return ""
	}
	return ps.keys.Name
}

// Config is what acquisitions start from.
func (ps *Permits) Config() (c Config) {
	if ps != nil {
		c = ps.cfg
	}
	return c
}

// ID is equal for Permits that are of one name in one session.
func (ps *Permits) ID() any { return permitsID{ps.s, ps.keys.LockKey()} }

type permitsID struct {
	s   *session.Session
	key string
}

// Session, Keys and Kind are those of good Permits.
func (ps *Permits) Session() *session.Session { return ps.s }
func (ps *Permits) Keys() *protocol.Keys      { return ps.keys }
func (ps *Permits) Kind() *Kind               { return ps.kind }

// Wanted reports, without a request, whether goroutines of this session want the lock or are giving it back,
// and whether other sessions are known to want it.
func (ps *Permits) Wanted() (here, elsewhere bool) {
	if ps.err != nil {
		return false, false
	}
	ps.all.mu.Lock()
	p := ps.all.pool[ps.keys.LockKey()]
	ps.all.mu.Unlock()
	if p == nil {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	here = p.releases > 0 || slices.ContainsFunc(p.lanes, func(l *lane) bool { return len(l.waiters) > 0 })
	return here, p.rivals
}

// acquisition is one call of Acquire. It belongs to its goroutine.
type acquisition struct {
	p        *pool
	ctx      context.Context
	want     Want
	once     bool // it asks once, and does not wait
	cfg      Config
	bounds   call.Bounds
	begun    time.Time
	w        waiter       // of its present wait
	at       attempt      // the first that asks for it; saves an allocation
	asked    bool         // at is used
	lost     handle.State // what became of holds that it descends from; Held: none was lost
	observed bool         // as waiting
	barred   bool         // the call has waited for another hold that is nested in the same hold
	trouble  error        // of the last request, in an outage that it rides out; pool.mu guards it
}

// Acquire waits until what is wanted is held, or asks once. After an error the context is the one given, and
// nothing is held; what an unanswered request may have taken is given back in the background.
func (ps *Permits) Acquire(
	ctx context.Context, want Want, cfg Config, try bool,
) (context.Context, *handle.Hold, error) {
	e, err := ps.Admitted(ctx, want, cfg, try)
	if err != nil {
		return ctx, nil, err
	}
	if cfg.AtLeast > 0 {
		e.Stay(cfg.AtLeast)
	}
	ctx, hd := handle.New(ctx, e)
	return ctx, hd, nil
}

// Admitted is Acquire for a caller that forgets no hold.
func (ps *Permits) Admitted(ctx context.Context, want Want, cfg Config, try bool) (*Entry, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return nil, err
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if want == (Want{}) {
		want = ps.kind.Want
	}
	want.Shared = want.Shared && cfg.Lease == 0 // no other joins a lease that one goroutine chose for itself
	if ps.kind.Fair || !want.exclusive() {
		want.Lease = cfg.Lease
	}
	p := ps.all.use(ps.kind, ps.keys)
	defer p.drop() // grants and attempts keep the pool for themselves
	a := &acquisition{p: p, ctx: ctx, want: want, once: cfg.Once(try), cfg: cfg, begun: time.Now()}
	e, err := a.run()
	if err != nil {
		if errors.Is(err, wire.ErrUnsent) { // it has not been asked for
			return nil, err
		}
		p.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(a.begun), Err: err})
		return nil, err
	}
	return e, nil
}

// ownRelease is until when, from its beginning, one that tries waits for releases of its own session: an
// outage is not worth more.
const ownRelease = 250 * time.Millisecond

func (a *acquisition) run() (*Entry, error) {
	p := a.p
	s := p.s
	if !s.Begin() {
		return nil, p.fail(failure.ErrClosed)
	}
	defer s.End() // until then Shutdown waits, and work may be begun in the background
	until, stop := a.cfg.Until(a.ctx)
	defer stop()
	a.bounds = call.Bounds{Until: until, Closing: s.Closing()}
	if a.ctx.Err() != nil {
		return nil, p.fail(failure.OfContext(a.ctx))
	}
	for again := false; ; again = true { // until there is a hold: what was entered may be over by then
		var outer *Entry
		if p.kind.Reentrant {
			var err error
			if outer, err = a.outer(); err != nil {
				return nil, err
			}
		}
		if again && a.bounds.Over() { // the hold that has ended may have been its context
			p.mu.Lock()
			defer p.mu.Unlock()
			return nil, a.endOfWait(a.holder(nil))
		}
		if outer != nil {
			if e, err := a.nest(outer); e != nil || err != nil {
				return e, err
			}
			continue // the outer hold has ended meanwhile
		}
		p.mu.Lock() // enter releases it
		g, err := a.enter()
		if err != nil {
			return nil, err
		}
		if e := a.hold(g); e != nil {
			return e, nil
		}
	}
}

// enter gets an entry of a grant. One that asks once waits for releases of its own session that are under
// way: they may give back all that it wants. mu is held; enter releases it.
func (a *acquisition) enter() (*Grant, error) {
	p := a.p
	releases := int32(0) // that one which wants less than all waits for: others may begin all the time
	for waited := int32(0); ; waited++ {
		if g := a.idle(); g != nil {
			p.mu.Unlock()
			return g, nil
		}
		if waited == 0 {
			releases = p.releases // with those that idle has begun
		}
		l := p.lane(a.want)
		switch {
		case l.joinable():
			g := l.live
			g.entries++ // before mu is released, or an Unlock could give the grant back first
			p.mu.Unlock()
			return g, nil
		case !a.once:
			return a.wait(l)
		}
		l.forget() // lane may have made it for this call alone
		all := a.want.exclusive()
		busy, clears := len(l.waiters) > 0 || all && len(p.grants) > 0, p.releasing()
		if busy {
			clears = p.kind.Alone // else others were first
		}
		var released <-chan struct{} // nil: this look is the last
		if clears {
			released = p.nextRelease() // while mu is held
		}
		var g *Grant
		var err error
		if busy || all && clears { // else Redis would refuse it
			err = p.kind.locked(cmp.Or(a.holder(nil), &failure.LockedError{Name: p.keys.Name}))
			p.mu.Unlock()
		} else {
			own := new(lane)
			own.reset(p, a.want)
			own.once, own.live = true, l.live
			g, err = a.wait(own)
			clears = clears && errors.Is(err, failure.ErrLocked) && waited < releases
		}
		if !clears {
			return g, err
		}
		heard, ended := a.bounds.Sleep(time.Until(a.begun.Add(ownRelease)), released)
		if !heard && !ended {
			return nil, err
		}
		p.mu.Lock()
		if ended {
			err = a.endOfWait(a.holder(nil))
			p.mu.Unlock()
			return nil, err
		}
	}
}

// wait waits in a lane. mu is held; wait releases it.
func (a *acquisition) wait(l *lane) (*Grant, error) {
	p := a.p
	a.w = waiter{a: a}
	w := &a.w
	l.waiters = append(l.waiters, w)
	for _, g := range p.grants {
		if g.l != l && !a.once {
			g.endLinger() // Redis tells no session of its own goroutines' wishes
		}
	}
	var mine *attempt
	if l.wanting() && l.patience() <= 0 {
		mine = l.newAttempt()
	}
	l.ask()
	taken := l.standing > 0 || len(l.attempts) == 0 // else the first answer tells whether this is a wait
	p.mu.Unlock()
	if taken {
		a.waits()
	}
	if mine != nil {
		mine.start(a.bounds.Until) // which may answer the waiter before that listens
	}
	p.mu.Lock()
	if w.answered {
		p.mu.Unlock()
		if a.bounds.Over() {
			return nil, a.giveUp(l, w)
		}
		return w.g, w.err
	}
	w.listen()
	p.suspect()
	if a.unbounded() {
		l.watchOutage(a.begun.Add(p.s.Lease))
	}
	stands := l.standing > 0
	p.mu.Unlock()
	if stands {
		a.waits()
	}
	for {
		if a.bounds.Over() { // also where an answer is there, too
			return nil, a.giveUp(l, w)
		}
		select {
		case <-a.bounds.Until.Done():
		case <-a.bounds.Closing:
		case news := <-w.ready:
			if news == answered {
				return w.g, w.err
			}
			a.waits()
		}
	}
}

// unbounded reports whether the call has no deadline.
func (a *acquisition) unbounded() bool {
	_, bounded := a.bounds.Until.Deadline()
	return !bounded
}

// waits tells the observer, once.
func (a *acquisition) waits() {
	if !a.observed {
		a.observed = true
		a.p.observe(a.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// giveUp ends a wait in a lane. It returns when the place in the queue is given up, if Redis answers in time.
func (a *acquisition) giveUp(l *lane, w *waiter) error {
	p := a.p
	p.mu.Lock()
	waiting := l.withdraw(w) // false if the waiter was answered in that instant
	var holder *failure.LockedError
	if !a.once { // else none has kept it out
		holder = a.holder(w.g)
	}
	err := a.endOfWait(holder)
	if !waiting {
		p.mu.Unlock()
		if w.err == nil {
			w.g.decline(a.ctx) // the next in the lane may have it
		}
		return err
	}
	last := l.trim()
	l.ask()
	p.mu.Unlock()
	if last != nil && !a.once { // one that asks once has no place
		call.AwaitLeaving(last.gone, p.s.Closing())
	}
	return err
}

// endOfWait is why a wait has ended. mu held.
func (a *acquisition) endOfWait(holder *failure.LockedError) error {
	k := a.p.kind
	if holder != nil {
		holder.What = k.Noun
		holder.Hint += a.refusedSubscription()
	}
	err := failure.OfWait(a.ctx, wire.Closed(a.bounds.Closing), k.Noun, a.p.keys.Name, holder)
	switch {
	case holder != nil || a.cfg.Part != nil && a.trouble == nil:
		return err
	case a.trouble == nil:
		return failure.Unanswered(err, time.Since(a.begun), a.cfg.Wait, a.p.s.Link.SilenceHint())
	}
	return failure.Troubled(err, a.trouble)
}

// refusedSubscription returns a hint, in parentheses, if Redis refuses the subscription by which the session
// is notified. It returns "" otherwise.
func (a *acquisition) refusedSubscription() string {
	s := a.p.s
	err := s.Hub.Refusal()
	if err == nil && s.ShardedHub != nil {
		err = s.ShardedHub.Refusal()
	}
	if err == nil {
		return ""
	}
	return fmt.Sprintf(" (Redis refuses the subscription of this session, which notices a freed lock only "+
		"at its next heartbeat: %v%s)", err, wire.Hint(err))
}

// holder returns one of the holders that were in the way of a wait that has ended, as far as is known; nil if
// none is known. granted is the grant that came when the wait ended; nil: none came. It shows that no other
// grant of this session was in the way any more, and was itself in the way only if it was passed on.
// The caller must hold pool.mu.
func (a *acquisition) holder(granted *Grant) *failure.LockedError {
	if granted == nil || granted.used && granted.exclusive() {
		for _, g := range a.p.grants { // any one will do: the error names one holder
			return a.lockedHere(g)
		}
	}
	var stands *time.Time // since when Redis has said that the lane is to wait
	for _, l := range a.p.lanes {
		for _, at := range l.attempts {
			if l.want == a.want && at.state == standing {
				stands = &at.base
			}
		}
	}
	return a.p.seen.Locked(a.p.keys.Name, a.begun, stands)
}

// lockedHere is the error where this session has a grant that is in the way. mu held.
func (a *acquisition) lockedHere(g *Grant) *failure.LockedError {
	return &failure.LockedError{Name: a.p.keys.Name, Holder: g.owner.(string), About: g.about(),
		Remaining: max(0, time.Until(g.deadline())), Hint: a.hint(g)}
}

// grantOf is the grant of an attempt of this session; nil if it has none. mu held.
func (p *pool) grantOf(owner string) *Grant {
	for _, g := range p.grants {
		if g.owner == owner {
			return g
		}
	}
	return nil
}

// hint is what a goroutine may have done wrong that its own session is in the way of, with that grant or with
// one that has ended meanwhile. mu held.
func (a *acquisition) hint(g *Grant) string {
	switch {
	case !a.p.kind.Reentrant && a.want.exclusive():
		return ""
	case !a.p.kind.Reentrant:
		n := int64(0)
		for _, g := range a.p.grants {
			n += g.l.want.N
		}
		return failure.SelfPermitsHint(n)
	case a.want.exclusive() && g != nil && !g.exclusive():
		return failure.UpgradeHint
	}
	return failure.SelfHint
}

// hold makes a hold of an entry. nil: the grant is over meanwhile, look again.
func (a *acquisition) hold(g *Grant) *Entry {
	p := a.p
	e := a.newEntry(g) // without mu: the caller's context may run code of its own
	p.mu.Lock()
	if !g.held() || !time.Now().Before(g.deadline()) {
		overdue := g.held() // the timer that ends it is late
		g.giveBack()        // there is no Hold whose Unlock would tell Redis
		p.mu.Unlock()
		e.cancel(failure.ErrLost)
		if overdue {
			g.end(handle.Lost, failure.ErrExpired)
		}
		return nil
	}
	handed := g.used
	g.link(e)
	p.mu.Unlock()
	p.observe(a.ctx, session.Event{
		Kind: session.EventAcquired, Wait: time.Since(a.begun), Depth: 1, Token: e.token, HandedOver: handed,
	})
	e.announced()
	return e
}
