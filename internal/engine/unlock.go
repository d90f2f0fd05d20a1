package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Unlock ends the hold. If Unlock also ends or downgrades the grant, or changes the hold count in Redis, it
// sends a request and blocks for the reply. ctx bounds only the wait. The request is sent even if ctx has
// ended. If ctx never ends, or has ended already, the wait takes at most handle.UnlockWait.
func (e *Entry) Unlock(ctx context.Context) error {
	r, err := e.beginUnlock()
	return e.sendUnlock(ctx, r, err)
}

// Leave does the first half of an Unlock. When Leave returns, the hold has ended. The caller must call the
// returned function, which does the second half.
func (e *Entry) Leave() func(context.Context) error {
	r, err := e.beginUnlock()
	return func(ctx context.Context) error { return e.sendUnlock(ctx, r, err) }
}

// beginUnlock ends the hold in this session, and returns the request that sendUnlock must send. If both
// results are nil, no request is needed. If the error is nil, Shutdown waits until endUnlock is called.
func (e *Entry) beginUnlock() (*release, error) {
	g := e.g
	l := g.l
	if !l.s.Begin() {
		return nil, e.unlockError(false)
	}
	fx := l.begin()
	if e.state == handle.Held && !time.Now().Before(g.deadline()) { // the timer that ends the grant is late
		g.end(handle.Lost, failure.ErrExpired, &fx)
	}
	if e.unlocked || e.state != handle.Held {
		fx.commit()
		defer l.s.End()
		return nil, e.unlockError(true)
	}
	e.unlocked = true
	e.state = handle.Released
	e.unnest()
	g.removeHold(e)
	e.last = e.root.chain.holds == 0
	fx.unlocked = e
	g.dropEntry(&fx)
	fx.commit()
	return fx.ownRelease, nil
}

// unlocked is the cause of the context of an unlocked Entry. It is the Entry itself, converted to another
// type, which saves an allocation.
type unlocked Entry

func (u *unlocked) Error() string {
	return failure.UnlockedText(u.g.l.kind.Noun, u.g.l.keys.Name)
}

func (u *unlocked) Unwrap() error { return failure.ErrUnlocked }

// sendUnlock is the second half of an Unlock. It sends the request r and waits for the reply. If r is nil, it
// sends nothing. If err is not nil, the Unlock has failed already, and sendUnlock returns err.
func (e *Entry) sendUnlock(ctx context.Context, r *release, err error) error {
	switch {
	case err != nil:
		return err
	case r == nil:
		return e.endUnlock(ctx, nil)
	}
	l := e.g.l
	ctx, atMost := handle.UnlockBounds(ctx, l.s.Lease)
	r.entry, r.ctx = e, ctx
	o, answered := call.Ask(&call.Bounds{Until: ctx}, l.s, l.keys.LockKey(), r, atMost)
	if !answered {
		return l.named(handle.UnlockError(ctx))
	}
	return e.endUnlock(ctx, r.onReply(r, o))
}

// endUnlock ends the work that beginUnlock began. If this Unlock has ended the last hold of its chain,
// endUnlock reports the end of the chain to the observer.
func (e *Entry) endUnlock(ctx context.Context, err error) error {
	l := e.g.l
	defer l.s.End()
	if !e.last { // the chain has other holds
		return err
	}
	root := e.root
	event := session.Event{
		Kind: session.EventReleased, Token: root.token, Held: l.s.Age() - root.began, Err: err,
	}
	if errors.Is(err, failure.ErrLost) { // Redis no longer had the grant
		l.warnLost(event.Token, event.Held, failure.ErrGone)
		event.Kind, event.Err = session.EventLost, failure.Lost(failure.ErrGone)
	}
	l.observe(ctx, event)
	return err
}

// unlockError returns the error of an Unlock that ends no hold. If the hold was lost, and the session is not
// closed, the first Unlock also releases the grant in the background. counted is true if Shutdown waits for
// the caller.
func (e *Entry) unlockError(counted bool) error {
	g := e.g
	l := g.l
	fx := l.begin()
	fx.closed = !counted
	again := e.unlocked
	e.unlocked = true
	state := e.state
	err := l.named(g.errorOf(state))
	if !again && state == handle.Lost {
		g.releaseLost(&fx)
	}
	fx.run()
	switch {
	case again:
		return l.named(failure.ErrUnlockedBefore)
	case state == handle.Held:
		return l.named(failure.ErrClosed)
	}
	return err
}

// dropEntry removes one entry from the grant. If the grant has other entries, and Redis stores the hold
// count, dropEntry sends the new hold count. If only readers are left in a writer's grant, settle downgrades
// the grant. If no entry is left, settle decides whether the grant is kept, passed on or released.
func (g *Grant) dropEntry(fx *effects) {
	l := g.l
	g.numEntries--
	g.revision++
	switch {
	case !g.held():
		if fx.unlocked == nil { // a waiter gave up before it had a hold, so no Unlock will follow
			g.releaseLost(fx)
		}
	case g.numEntries == 0:
	case l.kind.Counts:
		same := protocol.FixedRequest{Script: renewScript, Keys: l.keys}
		(&release{FixedRequest: same, g: g, onReply: (*release).onCount}).send(fx)
	}
}

// releaseLost releases a grant in the background after the grant has ended in this session without an Unlock.
// The lease in Redis may not have ended yet, and waiters should not have to wait for the end of this lease.
// If the release fails, it is repeated for up to the session's lease, even after the deadline of the grant,
// because a copy of the attempt's request may still arrive.
func (g *Grant) releaseLost(fx *effects) {
	lastUsed := any("")
	if g.reservedToken != 0 {
		lastUsed = max(g.token, g.reservedToken)
	}
	r := g.l.releaseRequest(g.owner, "", g.staleUntil, lastUsed)
	g.l.repeatLater(&r, time.Now().Add(g.l.s.Lease), fx)
}

// releaseGrant releases a grant that no goroutine has.
func (l *lockState) releaseGrant(g *Grant, fx *effects) {
	g.leave(handle.Released)
	fx.uses--
	g.newRelease(fx).send(fx)
}

// release is the request that an Unlock, Shutdown or settle sends for a grant. It has one of three effects:
// it ends the grant, it reduces a writer's grant to one permit for the nested readers, or it sets the hold
// count in Redis.
type release struct {
	protocol.FixedRequest
	g          *Grant
	takenUntil time.Duration // age of the session until which permits stay taken; 0: they do not stay taken
	onReply    func(r *release, o wire.Outcome) error

	// These fields are set only if an Unlock sends the request. RollBack uses them if the caller of Unlock
	// has left before the reply.
	ctx   context.Context
	entry *Entry
}

// newRelease makes the release of a grant that has ended in this session. The caller must send the release.
func (g *Grant) newRelease(fx *effects) *release {
	l := g.l
	l.numReleases++
	fx.uses++ // onRelease ends this use
	same := l.releaseRequest(g.owner, g.firstToken, g.staleUntil, g.lastUsed())
	r := &release{FixedRequest: same, g: g, onReply: (*release).onRelease}
	if g.takenUntil > fx.age {
		r.takenUntil = g.takenUntil
	}
	return r
}

// send sends the request in the background. But if the event is an Unlock of a hold in this grant, that
// Unlock sends the request (effects.ownRelease).
func (r *release) send(fx *effects) {
	if fx.unlocked != nil && fx.unlocked.g == r.g {
		fx.ownRelease = r
		return
	}
	g := r.g
	l := g.l
	token, held := g.token, fx.age-g.queueCheckedAt
	fx.background(func() {
		err := r.call(context.WithoutCancel(l.s.Ctx))
		// The observer already got EventReleased, so the loss is only logged.
		if errors.Is(err, failure.ErrLost) && g.used {
			l.warnLost(token, held, failure.ErrGone)
		}
	})
}

// call sends the request, and blocks for the reply.
func (r *release) call(ctx context.Context) error {
	return r.onReply(r, r.Send(ctx, wire.Tries, nil))
}

// Request returns the next copy of the request. If the request sets the hold count, the copy has the present
// count. If HoldAtLeast keeps permits taken, the copy has the time that is left. It implements wire.Copier.
func (r *release) Request(now time.Time) *wire.Request {
	switch {
	case r.Argv == nil:
		return (&update{r.g, "0"}).Request(now)
	case r.takenUntil == 0:
		return r.FixedRequest.Request(now)
	}
	// The copy has the time that is left, and not a point in time, because the clocks of a Cluster's nodes
	// differ.
	left := max(0, r.takenUntil-r.g.l.s.Age()) + time.Millisecond - 1
	same := r.FixedRequest
	same.Argv = append(slices.Clip(r.Argv), protocol.Milliseconds(left))
	return same.Request(now)
}

var _ call.Request = (*release)(nil)

func (r *release) Send(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
	return r.g.l.s.Link.Call(ctx, r, maxTries, nil)
}

// RollBack handles the reply after the caller of Unlock has left. It undoes nothing, because the Unlock stays
// valid.
func (r *release) RollBack(o wire.Outcome) {
	_ = r.entry.endUnlock(context.WithoutCancel(r.ctx), r.onReply(r, o))
}

// contendedMemory is the least time for which a session remembers, after it has handed a lock over, that
// other sessions want the lock.
const contendedMemory = 10 * time.Millisecond

// onRelease handles the reply to the release of a grant.
func (r *release) onRelease(o wire.Outcome) error {
	l := r.g.l
	answer, err := l.read(o, nil)
	fx := l.begin()
	fx.uses--
	// If this session got the lock again, the reply does not show whether other sessions want it.
	if err == nil && (len(answer.Served) == 0 || !l.s.Owns(answer.Served[0].Owner)) {
		l.contended = len(answer.Served) > 0
	}
	if l.contended {
		fx.uses++
		time.AfterFunc(contendedMemory, func() { l.registry.change(l, -1) })
	}
	l.numReleases--
	l.notifyReleaseDone()
	if err != nil {
		err = r.onError(err, &fx)
	}
	fx.commit()
	earlierCopyMayHaveRun := o.Unanswered != nil
	if err == nil && answer.Status == protocol.Lost && !earlierCopyMayHaveRun {
		err = l.named(failure.Lost(failure.ErrGone))
	}
	return err
}

// onError sends the request again in the background, if that may help, and returns the error for the user.
func (r *release) onError(err error, fx *effects) error {
	l := r.g.l
	if wire.Judge(err).Again(l.s.Closing()) {
		l.repeatLater(r, r.g.deadline(), fx)
		err = fmt.Errorf("the release failed, and is sent again in the background: %w", err)
	} else {
		err = fmt.Errorf("%w; not tried again: it may stay taken until its lease ends", err)
	}
	return l.kind.Failed(l.keys, err)
}

// onCount handles the reply to a request that sets the hold count.
func (r *release) onCount(o wire.Outcome) error {
	if err := r.g.onUpdate(o, 0); !errors.Is(err, failure.ErrNotHeld) {
		return err
	}
	return nil // the last Unlock has released the grant meanwhile
}

// downgrade releases all permits of a writer's grant except one. The readers that were nested in the writer
// share this permit.
func (g *Grant) downgrade(fx *effects) {
	l := g.l
	l.numReleases++
	lastUsed := g.lastUsed()
	g.permits = 1
	g.endLinger()
	g.queueCheckedAt = fx.age
	g.lane.numGrants--
	g.lane = l.laneFor(Want{N: 1, Limit: g.lane.want.Limit, Shared: true}, fx)
	g.lane.numGrants++
	args := &l.s.Args
	argv := []any{g.owner, g.firstToken, args.Channels, args.Retention, "0", lastUsed, "", "1"}
	same := protocol.FixedRequest{Script: releaseScript, Keys: l.keys, Argv: argv}
	(&release{FixedRequest: same, g: g, onReply: (*release).onDowngrade}).send(fx)
}

// onDowngrade handles the reply to a downgrade. If no copy of the downgrade has reached Redis, the Unlock of
// the last reader releases all permits.
func (r *release) onDowngrade(o wire.Outcome) error {
	l := r.g.l
	answer, err := l.read(o, nil)
	fx := l.begin()
	l.numReleases--
	l.notifyReleaseDone()
	switch {
	case err != nil:
		err = r.onError(err, &fx)
	case answer.Status == protocol.Lost && r.g.held(): // the session still believes that it has the grant
		r.g.end(handle.Lost, failure.ErrGone, &fx)
		err = l.named(failure.Lost(failure.ErrGone))
	}
	fx.commit()
	return err
}

// releaseRequest returns a request that removes an attempt from the queue, and releases its grant. lastUsed
// is the last token of the grant's block that a holder had. If it is "", the session does not know that
// token, and Redis never grants a token of the block again.
func (l *lockState) releaseRequest(owner, token any, staleUntil int64, lastUsed any) protocol.FixedRequest {
	args := &l.s.Args
	argv := []any{owner, token, args.Channels, args.Retention, staleUntil, lastUsed}
	return protocol.FixedRequest{Script: releaseScript, Keys: l.keys, Argv: argv}
}

// repeat sends the request r, which releases a grant or an attempt, until the request succeeds. repeat gives
// up when an error shows that further requests would not help, after the time `until`, or when the session
// has ended.
func (l *lockState) repeat(r wire.Copier, until time.Time) {
	s := l.s
	for try := 1; ; try++ {
		o := s.Link.Call(s.Ctx, r, 1, nil) // a single copy, because this loop sends the next copies
		_, err := l.read(o, nil)
		over := err == nil || !wire.Judge(err).Again(s.Closing()) || time.Now().After(until)
		if over || !wire.Pause(s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// repeatLater runs repeat in the background. If fx.closed is set, repeatLater does nothing.
func (l *lockState) repeatLater(r wire.Copier, until time.Time, fx *effects) {
	if fx.closed {
		return
	}
	fx.uses++
	fx.background(func() {
		l.repeat(r, until)
		l.registry.change(l, -1)
	})
}
