package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// waiter is one call of Lock or TryLock. Only the goroutine of the call uses it, apart from what mu guards.
type waiter struct {
	l      *lockState
	ctx    context.Context // of the caller
	want   Want
	noWait bool // TryLock: the call waits for the reply of Redis, and not for other holders
	cfg    Config
	bounds call.Bounds
	begun  time.Time

	lost         handle.State // how all holds ended from which ctx descends; Held means no loss
	waitReported bool         // the observer got EventWaiting
	waitedHere   bool         // the call has waited for another hold that is nested in the same outer hold

	inlineAttempt attempt // the first attempt that was begun for the call; saves an allocation
	attemptUsed   bool    // inlineAttempt has been used; guarded by lockState.mu

	// A wait in a lane. lockState.mu guards the following. The goroutine of the call reads the answer without
	// the mutex once it knows that there is one.
	lane      *lane
	news      chan news // nil while the goroutine does not listen; has room for one of each kind of news
	answered  bool      // grant or err is set
	grant     *Grant    // the grant in which the waiter has an entry; nil if err is set
	err       error
	nextWoken *waiter // see effects.woken
	lastError error   // of the last request in an outage that the call rides out; nil means none
}

// news is a notice to a waiter.
type news uint8

const (
	newsQueued   news = iota // the waiter is queued in Redis, so the wait may take longer
	newsAnswered             // the wait has ended
)

// Acquire waits until the permits of want are held, or tries once. After an error, the returned context is
// ctx, and nothing is held. If an unanswered request may have taken permits, they are released in the
// background.
func (lk *Lock) Acquire(
	ctx context.Context, want Want, cfg Config, try bool,
) (context.Context, *handle.Hold, error) {
	e, err := lk.AcquireEntry(ctx, want, cfg, try)
	if err != nil {
		return ctx, nil, err
	}
	if cfg.AtLeast > 0 {
		e.Stay(cfg.AtLeast)
	}
	ctx, hd := handle.New(ctx, e)
	return ctx, hd, nil
}

// AcquireEntry is Acquire for a caller that unlocks the entry on every path. It makes no Hold.
func (lk *Lock) AcquireEntry(ctx context.Context, want Want, cfg Config, try bool) (*Entry, error) {
	if err := lk.CheckUse(ctx); err != nil {
		return nil, err
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if want == (Want{}) {
		want = lk.kind.Want
	}
	want.Shared = want.Shared && cfg.Lease == 0 // nobody joins a lease that one goroutine chose for itself
	if lk.kind.Fair || !want.exclusive() {
		want.Lease = cfg.Lease
	}
	l := lk.all.use(lk.kind, lk.keys)
	defer lk.all.change(l, -1)
	w := &waiter{l: l, ctx: ctx, want: want, noWait: cfg.Once(try), cfg: cfg, begun: time.Now()}
	e, err := w.acquire()
	if err != nil {
		if errors.Is(err, wire.ErrUnsent) { // the call has requested nothing
			return nil, err
		}
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(w.begun), Err: err})
		return nil, err
	}
	return e, nil
}

// acquire enters the hold that the context descends from, or gets a grant. It blocks until then, or until the
// wait ends.
func (w *waiter) acquire() (*Entry, error) {
	l := w.l
	s := l.s
	if !s.Begin() {
		return nil, l.named(failure.ErrClosed)
	}
	defer s.End()
	until, stop := w.cfg.Until(w.ctx)
	defer stop()
	w.bounds = call.Bounds{Until: until, Closing: s.Closing()}
	if w.ctx.Err() != nil {
		return nil, l.named(failure.OfContext(w.ctx))
	}
	for again := false; ; again = true { // a grant may have ended before its entry became a hold
		var outer *Entry
		if l.kind.Reentrant {
			var err error
			if outer, err = w.outer(); err != nil {
				return nil, err
			}
		}
		if again && w.bounds.Over() { // ctx may have ended with the outer hold
			return nil, w.endedError(nil)
		}
		if outer != nil {
			if e, err := w.nest(outer); e != nil || err != nil {
				return e, err
			}
			continue // the outer hold has ended meanwhile
		}
		acquireGrant := w.wait
		if w.noWait {
			acquireGrant = w.try
		}
		g, err := acquireGrant()
		if err != nil {
			return nil, err
		}
		if e := w.hold(g); e != nil {
			return e, nil
		}
	}
}

// wait waits in a lane for an entry of a grant.
func (w *waiter) wait() (*Grant, error) {
	fx := w.l.begin()
	ln := w.l.laneFor(w.want, &fx)
	for _, g := range w.l.grants {
		if g.lane != ln {
			g.endLinger() // Redis does not notify a session that one of its own goroutines wants the lock
		}
	}
	return w.waitIn(ln, &fx)
}

// waitIn waits in this lane. It commits the event fx.
func (w *waiter) waitIn(ln *lane, fx *effects) (*Grant, error) {
	l := w.l
	w.lane, w.news = ln, nil
	w.answered, w.grant, w.err = false, nil, nil
	ln.waiters = append(ln.waiters, w)
	fx.caller = w
	l.settle(fx)
	if own := fx.ownAttempt; own != nil {
		fx.run()
		own.sendFirst(w.bounds.Until) // the reply usually answers w, which then needs no news channel
		later := l.begin()
		fx = &later
	}
	if w.answered {
		fx.run()
		if w.bounds.Over() {
			return nil, w.giveUp()
		}
		return w.grant, w.err
	}
	w.listen(fx)
	// While an attempt is in flight, its reply tells whether this is a wait.
	waits := ln.numQueued > 0 || len(ln.attempts) == 0
	fx.run()
	if waits {
		w.reportWaiting()
	}
	for {
		if w.bounds.Over() { // also if there is an answer at the same time
			return nil, w.giveUp()
		}
		select {
		case <-w.bounds.Until.Done():
		case <-w.bounds.Closing:
		case news := <-w.news:
			if news == newsAnswered {
				return w.grant, w.err
			}
			w.reportWaiting()
		}
	}
}

// listen makes a channel for the news of the waiter, and plans the looks that its wait needs.
func (w *waiter) listen(fx *effects) {
	l := w.l
	w.news = make(chan news, 2)
	if l.kind.Reentrant && l.suspectAt == 0 {
		l.suspectAt = fx.age + LongWait
	}
	if w.unbounded() {
		w.lane.watchOutage(fx.age + l.s.Lease - time.Since(w.begun))
	}
	l.setTimer(fx)
}

// ownRelease bounds the time, from its beginning, for which a TryLock waits for releases of its own session.
// An outage should not make it wait longer.
const ownRelease = 250 * time.Millisecond

// try gets an entry of a grant without waiting for other holders.
//
// But while its own session is releasing, it waits for up to ownRelease, unless other goroutines of the
// session come first. Otherwise it could report a lock as taken that this process has already unlocked. A
// try for some of the permits sends its request again, at most once for each release that was in flight at
// its beginning. In a busy session there are always more.
//
// A try is refused although nobody holds the lock if
//   - a waiter is queued, to which Redis hands the lock over in the same request. A dead waiter counts until
//     its waiter timeout ends, unless Redis sees that its session has no subscription. So no try overtakes a
//     living waiter;
//   - a goroutine of its own session waits, even if the lane of that goroutine is still filling;
//   - HoldAtLeast keeps the lock taken, or a release of its session lasts for longer than ownRelease.
func (w *waiter) try() (*Grant, error) {
	l := w.l
	maxRetries := int32(0)
	for retries := int32(0); ; retries++ {
		fx := l.begin()
		ln := l.findLane(w.want)
		if ln != nil {
			if g := l.servable(ln, w, &fx); g != nil {
				g.addEntry()
				fx.run()
				return g, nil
			}
		}
		for _, g := range l.grants {
			if g.numEntries == 0 {
				g.endLinger() // of no use to this call, and maybe in its way
			}
		}
		l.settle(&fx)
		if retries == 0 {
			maxRetries = l.numReleases
		}
		all := w.want.exclusive()
		busy, mayFree := ln != nil && len(ln.waiters) > 0 || all && len(l.grants) > 0, l.mayFree()
		if busy {
			mayFree = l.kind.Alone // otherwise other goroutines come first
		}
		var released <-chan struct{} // nil means this is the last try
		if mayFree {
			released = l.nextRelease()
		}
		var g *Grant
		var err error
		if busy || all && mayFree { // Redis would refuse it
			err = l.kind.locked(cmp.Or(w.holder(nil), &failure.LockedError{Name: l.keys.Name}))
			fx.run()
		} else {
			g, err = w.waitIn(l.tryLane(w.want), &fx)
			mayFree = mayFree && errors.Is(err, failure.ErrLocked) && retries < maxRetries
		}
		if !mayFree {
			return g, err
		}
		switch heard, ended := w.bounds.Sleep(time.Until(w.begun.Add(ownRelease)), released); {
		case ended:
			return nil, w.endedError(nil)
		case !heard:
			return nil, err
		}
	}
}

// unbounded reports whether the call has no deadline.
func (w *waiter) unbounded() bool {
	_, bounded := w.bounds.Until.Deadline()
	return !bounded
}

// reportWaiting calls the observer, at most once for each call.
func (w *waiter) reportWaiting() {
	if !w.waitReported {
		w.waitReported = true
		w.l.observe(w.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// notifyQueued notifies the waiter that it is queued in Redis. At most one such notice is pending, so there
// is always room for the answer. The caller must hold l.mu.
func (w *waiter) notifyQueued() {
	if w.news != nil && len(w.news) == 0 {
		w.news <- newsQueued
	}
}

// giveUp ends a wait in a lane. It waits until the place in the queue is given up, if Redis replies in time.
func (w *waiter) giveUp() error {
	l := w.l
	fx := l.begin()
	waiting := w.lane.remove(w) // false if the waiter was answered at that moment
	var holder *failure.LockedError
	if !w.noWait { // a TryLock has only waited for a reply, so its error names no holder
		holder = w.holder(w.grant)
	}
	err := w.endOfWait(holder)
	if !waiting {
		if w.err == nil { // the next waiter may have it
			w.grant.dropEntry(&fx)
		}
		fx.commit()
		return err
	}
	fx.commit()
	if fx.withdrawn != nil && !w.noWait { // an attempt of a TryLock has no place
		call.AwaitLeaving(fx.withdrawn.gone, l.s.Closing())
	}
	return err
}

// endedError is endOfWait for a call that does not wait in a lane. granted is a parameter of holder.
func (w *waiter) endedError(granted *Grant) error {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	return w.endOfWait(w.holder(granted))
}

// endOfWait returns the error of a wait that its bounds have ended. The caller must hold l.mu.
func (w *waiter) endOfWait(holder *failure.LockedError) error {
	l := w.l
	if holder != nil {
		holder.What = l.kind.Noun
		holder.Hint += w.refusedSubscription()
	}
	err := failure.OfWait(w.ctx, wire.Closed(w.bounds.Closing), l.kind.Noun, l.keys.Name, holder)
	switch {
	case holder != nil:
		return err
	case w.lastError == nil:
		return failure.Unanswered(err, time.Since(w.begun), w.cfg.Wait, l.s.Link.SilenceHint())
	}
	return failure.Troubled(err, w.lastError)
}

// refusedSubscription returns a hint, in parentheses, if Redis refuses the subscription by which the session
// is notified. It returns "" otherwise.
func (w *waiter) refusedSubscription() string {
	s := w.l.s
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

// holder returns a holder that kept out a wait that has ended. It returns nil if no holder is known. If a
// grant came when the wait ended, granted is that grant, and otherwise nil. Such a grant shows that no other
// grant of this session kept the waiter out any more. It has kept the waiter out itself only if it was
// passed on. The caller must hold l.mu.
func (w *waiter) holder(granted *Grant) *failure.LockedError {
	l := w.l
	if granted == nil || granted.used && granted.exclusive() {
		for _, g := range l.grants { // any one will do, because the error names one holder
			return w.lockedHere(g)
		}
	}
	var queuedSince *time.Time // when Redis last said that the lane has to wait
	for _, ln := range l.lanes {
		for _, a := range ln.attempts {
			if ln.want == w.want && a.state == queued {
				queuedSince = &a.baseLocal
			}
		}
	}
	return l.lastHolder.Locked(l.keys.Name, w.begun, queuedSince)
}

// lockedHere returns the error for a call that is kept out by a grant of this session. The caller must hold
// l.mu.
func (w *waiter) lockedHere(g *Grant) *failure.LockedError {
	return &failure.LockedError{Name: w.l.keys.Name, Holder: g.owner.(string), About: g.about(),
		Remaining: max(0, time.Until(g.deadline())), Hint: w.hint(g)}
}

// hint returns a mistake that the caller may have made if its own session keeps it out. g is the grant that
// keeps it out, or nil if that has ended.
func (w *waiter) hint(g *Grant) string {
	kind := w.l.kind
	switch {
	case !kind.Reentrant && w.want.exclusive():
		return ""
	case !kind.Reentrant:
		n := int64(0)
		for _, g := range w.l.grants {
			n += g.lane.want.N
		}
		return failure.SelfPermitsHint(n)
	case w.want.exclusive() && g != nil && !g.exclusive():
		return failure.UpgradeHint
	}
	return failure.SelfHint
}

// hold makes a hold of the entry that the waiter has in a grant. It returns nil if the grant has ended
// meanwhile: the caller must try again.
func (w *waiter) hold(g *Grant) *Entry {
	l := w.l
	e := w.newEntry(g) // without the mutex, because the caller's context may run code of its own
	fx := l.begin()
	if expired := !time.Now().Before(g.deadline()); !g.held() || expired {
		g.releaseLost(&fx) // there is no Hold whose Unlock would release it
		if g.held() {      // the timer that ends the grant is late
			g.end(handle.Lost, failure.ErrExpired, &fx)
		}
		fx.commit()
		e.cancel(failure.ErrLost)
		return nil
	}
	handedOver := g.used
	g.addHold(e, &fx)
	fx.unlock()
	l.observe(w.ctx, session.Event{
		Kind: session.EventAcquired, Wait: time.Since(w.begun), Depth: 1, Token: e.token,
		HandedOver: handedOver,
	})
	e.announce()
	return e
}
