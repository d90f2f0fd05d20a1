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

// waiter is one call of Lock or TryLock. Only the goroutine of the call changes it, except for the fields
// that lockState.mu guards.
type waiter struct {
	l      *lockState
	ctx    context.Context // context of the caller
	want   Want
	noWait bool // the call does not wait for other holders: TryLock or WaitAtMost(0)
	cfg    Config
	bounds call.Bounds
	begun  time.Time

	// bounded reports whether the call has a deadline. It is stored, because Deadline of a user's context
	// must not run under lockState.mu (endOfWait has the reason).
	bounded bool

	lost         handle.State // state of a lost or closed hold from which ctx descends; Held if there is none
	waitReported bool         // the observer got EventWaiting for this call
	waitedHere   bool         // the call has waited because another hold was nested in its outer hold

	// lockState.mu guards attemptUsed. See type attempt for the mutex of the fields of inlineAttempt.
	inlineAttempt attempt // space for one attempt of the lane; saves an allocation
	attemptUsed   bool    // inlineAttempt has been used

	// lastError is the error of the last failed request of a lane of this call, or nil. lockState.mu guards
	// lastError while the call waits in a lane.
	lastError error

	// The following fields belong to the present wait in a lane. lockState.mu guards them. Once the goroutine
	// of the call knows that answered is true, it reads grant and err without the mutex.
	lane      *lane
	news      chan news // nil until listen makes it; has room for one notice of each kind
	answered  bool      // grant or err is set
	grant     *Grant    // the grant in which the waiter has an entry; nil if err is set
	err       error
	nextWoken *waiter // see effects.woken; effects.run uses nextWoken without the mutex
}

// news is a notice to a waiter.
type news uint8

const (
	newsWaits    news = iota // the call has to wait (lane.waits)
	newsAnswered             // the waiter has its answer
)

// Acquire waits until it has the permits that want describes. It returns a Hold of these permits, and the
// context of this Hold. If try is true, Acquire does not wait for other holders. After an error, the returned
// context is ctx, and the call holds nothing. If Redis grants a request after its call has returned, and no
// other call wants the grant, the session releases the grant in the background.
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

// AcquireEntry is like Acquire, but makes no handle.Hold, and does not apply cfg.AtLeast. Without a Hold,
// nothing notices if the caller forgets the Entry, so the caller must unlock the Entry on every path.
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
	want.Shared = want.Shared && cfg.Lease == 0 // a grant with a fixed lease is not shared
	if lk.kind.Fair || !want.exclusive() {
		want.Lease = cfg.Lease
	}
	l := lk.all.use(lk.kind, lk.keys)
	defer lk.all.change(l, -1)
	w := &waiter{l: l, ctx: ctx, want: want, noWait: cfg.Once(try), cfg: cfg, begun: time.Now()}
	e, err := w.acquire()
	if err != nil {
		if errors.Is(err, wire.ErrUnsent) { // no request was sent, so there is nothing to report
			return nil, err
		}
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(w.begun), Err: err})
		return nil, err
	}
	return e, nil
}

// acquire gets an entry of a grant, and turns it into a hold. If the kind is reentrant, and the context of
// the call descends from a live hold of the lock, the call nests in the nearest such hold. If there is no
// live hold, but the context descends from a lost or closed one, acquire returns an error (outer). acquire
// blocks until the call has its hold, or until its wait ends.
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
	_, w.bounded = until.Deadline()
	if w.ctx.Err() != nil {
		return nil, l.named(failure.OfContext(w.ctx))
	}
	for again := false; ; again = true { // repeated if the grant or the outer hold ended meanwhile
		var outer *Entry
		if l.kind.Reentrant {
			var err error
			if outer, err = w.outer(); err != nil {
				return nil, err
			}
		}
		if again && w.bounds.Over() { // ctx may have ended with the outer hold
			return nil, w.endedError()
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

// wait joins the lane of the calls of Lock with the same Want, and waits there for an entry of a grant.
func (w *waiter) wait() (*Grant, error) {
	fx := w.l.begin()
	ln := w.l.laneFor(w.want, &fx)
	for _, g := range w.l.grants {
		// This call may need the permits of g, so the session must not keep g while no goroutine has it.
		// Redis notifies a session only of the calls of other sessions.
		if g.lane != ln {
			g.endLinger()
		}
	}
	return w.waitIn(ln, &fx)
}

// waitIn waits in the lane ln for an entry of a grant. It ends the event fx.
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
	waits := ln.waits
	fx.run()
	if waits {
		w.reportWaiting()
	}
	for {
		if w.bounds.Over() { // a bound counts even if the answer has come at the same time
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

// listen makes the channel for the news of the waiter, and sets the times at which the timer checks a long
// wait (warnOfItself, endWaitsInOutage).
func (w *waiter) listen(fx *effects) {
	l := w.l
	w.news = make(chan news, 2)
	if l.kind.Reentrant && l.suspectAt == 0 {
		l.suspectAt = fx.age + LongWait
	}
	if !w.bounded {
		w.lane.watchOutage(fx.age + l.s.Lease - time.Since(w.begun))
	}
	l.setTimer(fx)
}

// ownRelease is the longest time for which a TryLock waits for releases of its own session, counted from the
// beginning of the call. It is short, because a TryLock should return soon even in an outage.
const ownRelease = 250 * time.Millisecond

// try gets an entry of a grant without waiting for other holders.
//
// But while its own session is releasing the lock, try waits for up to ownRelease, unless another goroutine
// of the session keeps the call out. Without this wait, try could report that a lock is taken although this
// process has already unlocked it. If kind.Alone is set, try waits in the same way for the end of the grants
// and attempts of its own session. A call that wants only some of the permits sends its request even while
// the session has releases in flight. If Redis refuses this request, try waits until one of the releases has
// ended, and then sends the request again. The number of such repetitions is at most the number of releases
// that were in flight when try began. Later releases do not count, because a busy session may always have
// some in flight.
//
// A try is refused although nobody holds the lock if
//   - a waiter is queued. When Redis gets the request of the try, it hands the free lock over to this waiter.
//     So no try overtakes a live waiter. A waiter whose process has died counts until its waiter timeout
//     ends, unless Redis sees that the waiter's session has no subscription;
//   - another goroutine of its own session waits in the lane of the same Want. In a fair lock, this is so
//     even if the lane has not sent its first request yet, because more goroutines may join it (isFilling);
//   - a withdrawn attempt of its own session was granted the lock, and is being released. A try waits for
//     this release only if kind.Alone is set;
//   - HoldAtLeast keeps the lock taken, or a release by its session takes longer than ownRelease.
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
				g.endLinger() // an unused grant that cannot serve the call could keep the call out
			}
		}
		l.settle(&fx)
		if retries == 0 {
			maxRetries = l.numReleases
		}
		all := w.want.exclusive()
		busy, mayFree := ln != nil && len(ln.waiters) > 0 || all && len(l.grants) > 0, l.mayFree()
		if busy {
			mayFree = l.kind.Alone // in other kinds, a try does not wait behind other goroutines
		}
		var released <-chan struct{} // nil means that the try does not wait for a release
		if mayFree {
			released = l.nextRelease()
		}
		var g *Grant
		var err error
		if busy || all && mayFree { // Redis would probably refuse a request
			err = l.kind.locked(cmp.Or(w.holder(nil), &failure.LockedError{Name: l.keys.Name}))
			fx.run()
		} else {
			g, err = w.waitIn(l.tryLane(w.want), &fx)
			mayFree = mayFree && errors.Is(err, failure.ErrLocked) && retries < maxRetries
		}
		if !mayFree {
			return g, err
		}
		switch notified, ended := w.bounds.Sleep(time.Until(w.begun.Add(ownRelease)), released); {
		case ended:
			return nil, w.endedError()
		case !notified:
			return nil, err
		}
	}
}

// reportWaiting reports EventWaiting to the observer, at most once for each call.
func (w *waiter) reportWaiting() {
	if !w.waitReported {
		w.waitReported = true
		w.l.observe(w.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// notifyWaits notifies the waiter that it has to wait. At most one such notice is pending, so there is always
// room for the answer. The caller must hold l.mu.
func (w *waiter) notifyWaits() {
	if w.news != nil && len(w.news) == 0 {
		w.news <- newsWaits
	}
}

// giveUp ends a wait in a lane after a bound has ended, and returns the error of the wait. If this withdraws
// an attempt of a Lock, giveUp waits until the release of the attempt has ended, but not longer than
// call.LeavingTime, and not after Shutdown has begun.
func (w *waiter) giveUp() error {
	l := w.l
	fx := l.begin()
	waiting := w.lane.remove(w) // false if the waiter was answered just before
	var holder *failure.LockedError
	if !w.noWait { // a TryLock has only waited for a reply, so its error names no holder
		holder = w.holder(w.grant)
	}
	if !waiting && w.err == nil { // the answer is an entry of a grant, which the call no longer wants
		w.grant.dropEntry(&fx)
	}
	fx.commit()
	err := w.endOfWait(holder)
	if waiting && fx.withdrawn != nil && !w.noWait { // an attempt of a TryLock is never queued
		call.AwaitLeaving(fx.withdrawn.gone, l.s.Closing())
	}
	return err
}

// endedError returns the error of a call whose bound has ended while the call was not waiting in a lane. The
// caller must not hold l.mu.
func (w *waiter) endedError() error {
	w.l.mu.Lock()
	holder := w.holder(nil)
	w.l.mu.Unlock()
	return w.endOfWait(holder)
}

// endOfWait returns the error of a wait when one of its bounds has ended. holder is the holder that kept the
// call out; nil means that none is known.
//
// endOfWait calls methods of the caller's context. This context may have a type of the user's, or be the
// context of a MultiLock. Its method Err may then lock the mutexes of other locks, and even l.mu. So the
// caller must not hold l.mu. The waiter must have left its lane, because endOfWait reads lastError.
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

// holder returns the holder that kept the waiter out until the wait ended. It returns nil if no holder is
// known. granted is the grant with which the waiter was answered just when the wait ended; nil means that
// there was none. If granted is exclusive, and another goroutine had it before, then granted kept the waiter
// out. If granted is any other grant, no grant of this session kept the waiter out. The caller must hold
// l.mu.
func (w *waiter) holder(granted *Grant) *failure.LockedError {
	l := w.l
	if granted == nil || granted.used && granted.exclusive() {
		for _, g := range l.grants { // the first grant is enough, because the error names one holder
			return w.lockedHere(g)
		}
	}
	var lastQueued *time.Time // time of the last request of w's lane to which Redis replied "queued"; or nil
	for _, ln := range l.lanes {
		for _, a := range ln.attempts {
			if ln.want == w.want && a.state == queued {
				lastQueued = &a.baseLocal
			}
		}
	}
	return l.lastHolder.Locked(l.keys.Name, w.begun, lastQueued)
}

// lockedHere returns the error for a call that is kept out by g, a grant of this session. The caller must
// hold l.mu.
func (w *waiter) lockedHere(g *Grant) *failure.LockedError {
	return &failure.LockedError{Name: w.l.keys.Name, Holder: g.owner.(string), About: g.about(),
		Remaining: max(0, time.Until(g.deadline())), Hint: w.hint(g)}
}

// hint returns a hint for the error of a call that a grant of its own session keeps out. The hint describes a
// mistake that the caller may have made. g is the grant; nil means that the session does not have the grant
// yet, or does not have it any more.
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

// hold turns the entry that the waiter has in a grant into a hold. If the grant has ended meanwhile, hold
// returns nil, and the caller must try again.
func (w *waiter) hold(g *Grant) *Entry {
	l := w.l
	space := &g.inlineEntry
	if !w.want.exclusive() || space.g != nil { // at most one goroutine at a time has an exclusive grant
		space = new(Entry)
	}
	e := w.newEntry(space, g) // without the mutex, because the caller's context may run code of its own
	fx := l.begin()
	if expired := !time.Now().Before(g.deadline()); !g.held() || expired {
		g.releaseLost(&fx) // there is no Hold whose Unlock would release the grant
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
