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

// Unlock ends the hold. If that ends the grant, or changes the hold count in Redis, Unlock sends a request
// and blocks for the reply. ctx bounds only the wait. The request is sent in any case.
func (e *Entry) Unlock(ctx context.Context) error {
	r, err := e.beginUnlock()
	return e.sendUnlock(ctx, r, err)
}

// Leave is the first half of an Unlock: the hold has ended when Leave returns. The second half, which it
// returns, must follow.
func (e *Entry) Leave() func(context.Context) error {
	r, err := e.beginUnlock()
	return func(ctx context.Context) error { return e.sendUnlock(ctx, r, err) }
}

// beginUnlock ends the hold in this session. If both results are nil, Redis need not know of it. Unless
// there is an error, Shutdown waits until endUnlock.
func (e *Entry) beginUnlock() (*release, error) {
	g := e.g
	l := g.l
	if !l.s.Begin() {
		return nil, e.unlockError(false)
	}
	fx := l.begin()
	if e.unlocked || e.state != handle.Held {
		fx.unlock()
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

// unlocked is the cause with which the context of an unlocked Entry has ended. It is the Entry itself,
// converted, which saves an allocation.
type unlocked Entry

func (u *unlocked) Error() string {
	return failure.UnlockedText(u.g.l.kind.Noun, u.g.l.keys.Name)
}

func (u *unlocked) Unwrap() error { return failure.ErrUnlocked }

// sendUnlock sends the request of beginUnlock, unless there is none.
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

// endUnlock reports the end of a chain of holds.
func (e *Entry) endUnlock(ctx context.Context, err error) error {
	l := e.g.l
	defer l.s.End()
	if !e.last { // other holds of its chain are left
		return err
	}
	root := e.root
	event := session.Event{
		Kind: session.EventReleased, Token: root.token, Held: l.age() - root.began, Err: err,
	}
	if errors.Is(err, failure.ErrLost) { // Redis no longer had the grant
		l.warnLost(event.Token, event.Held, failure.ErrGone)
		event.Kind, event.Err = session.EventLost, failure.Lost(failure.ErrGone)
	}
	l.observe(ctx, event)
	return err
}

// unlockError returns the error of an Unlock that ends no hold. counted means that Shutdown waits for the
// caller.
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

// dropEntry ends one entry of the grant. If the grant has other entries, Redis may have to be notified of the
// hold count or the downgrade. settle decides about a grant without entries.
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
	case g.exclusive() && g.numWriters == 0 && fx.age >= g.allTakenUntil:
		g.downgrade(fx)
	}
}

// releaseLost releases, in the background, a grant that has ended here without an Unlock. Its lease may still
// count in Redis, and no waiter should wait for that. It does not stop at the deadline, since a copy of the
// request may still come.
func (g *Grant) releaseLost(fx *effects) {
	lastUsed := any("")
	if g.minNextToken != 0 {
		lastUsed = max(g.token, g.minNextToken) // which stays the last one used
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

// release is the request that an Unlock, Shutdown or settle sends for a grant. It ends the grant, or reduces
// a writer's grant to one permit for the readers that are nested in it, or sends Redis the new hold count.
type release struct {
	protocol.FixedRequest
	g          *Grant
	takenUntil time.Duration // age of the session until which permits stay taken; 0 means they do not
	onReply    func(r *release, o wire.Outcome) error

	// Of an Unlock, whose caller may leave before the reply.
	ctx   context.Context
	entry *Entry
}

// newRelease begins the release of a grant that has ended for its session. The release must be sent.
func (g *Grant) newRelease(fx *effects) *release {
	l := g.l
	l.numReleases++
	fx.uses++ // until onRelease
	same := l.releaseRequest(g.owner, g.firstToken, g.staleUntil, g.lastUsed())
	r := &release{FixedRequest: same, g: g, onReply: (*release).onRelease}
	if g.takenUntil > fx.age {
		r.takenUntil = g.takenUntil
	}
	return r
}

// send has the Unlock of this event send the request, or sends it in the background.
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
		if errors.Is(err, failure.ErrLost) && g.used { // observers know that its holds were released
			l.warnLost(token, held, failure.ErrGone)
		}
	})
}

// call sends the request, and blocks for the reply.
func (r *release) call(ctx context.Context) error {
	return r.onReply(r, r.Send(ctx, wire.Tries, nil))
}

// Request returns the next copy of the request, with the hold count, or the rest of HoldAtLeast, as of now.
// It implements wire.Copier.
func (r *release) Request(now time.Time) *wire.Request {
	switch {
	case r.Argv == nil:
		return (&update{r.g, "0"}).Request(now)
	case r.takenUntil == 0:
		return r.FixedRequest.Request(now)
	}
	// Not a point in time, because the clocks of a Cluster's nodes differ. So each copy has the time left.
	left := max(0, r.takenUntil-r.g.l.age()) + time.Millisecond - 1
	same := r.FixedRequest
	same.Argv = append(slices.Clip(r.Argv), protocol.Milliseconds(left))
	return same.Request(now)
}

var _ call.Request = (*release)(nil)

func (r *release) Send(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
	return r.g.l.s.Link.Call(ctx, r, maxTries, nil)
}

// RollBack handles the reply after the caller of Unlock has left. The Unlock is valid all the same.
func (r *release) RollBack(o wire.Outcome) {
	_ = r.entry.endUnlock(context.WithoutCancel(r.ctx), r.onReply(r, o))
}

// contendedMemory is the time for which a session that has handed a lock over remembers that other sessions
// want it.
const contendedMemory = 10 * time.Millisecond

// onRelease handles the reply to the release of a grant.
func (r *release) onRelease(o wire.Outcome) error {
	l := r.g.l
	answer, err := l.read(o, nil)
	fx := l.begin()
	fx.uses--
	// That the lock went to this session again says nothing of others.
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
	firstCopyWorked := o.Unanswered != nil
	if err == nil && answer.Status == protocol.Lost && !firstCopyWorked {
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

// onCount handles the reply to a hold count.
func (r *release) onCount(o wire.Outcome) error {
	if err := r.g.onUpdate(o, 0); !errors.Is(err, failure.ErrNotHeld) { // or the last Unlock was faster
		return err
	}
	return nil
}

// downgrade keeps one permit of a writer's grant, for the readers that are nested in it.
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

// onDowngrade handles the reply to a downgrade. If it failed, the last reader releases all that is held.
func (r *release) onDowngrade(o wire.Outcome) error {
	l := r.g.l
	answer, err := l.read(o, nil)
	fx := l.begin()
	l.numReleases--
	l.notifyReleaseDone()
	switch {
	case err != nil:
		err = r.onError(err, &fx)
	case answer.Status == protocol.Lost && r.g.held(): // otherwise the release of the last reader was faster
		r.g.end(handle.Lost, failure.ErrGone, &fx)
		err = l.named(failure.Lost(failure.ErrGone))
	}
	fx.commit()
	return err
}

// releaseRequest returns a request that removes an attempt from the queue, and releases its grant. Without a
// last token, all tokens of its block count as used.
func (l *lockState) releaseRequest(owner, token any, staleUntil int64, lastUsed any) protocol.FixedRequest {
	args := &l.s.Args
	argv := []any{owner, token, args.Channels, args.Retention, staleUntil, lastUsed}
	return protocol.FixedRequest{Script: releaseScript, Keys: l.keys, Argv: argv}
}

// repeat sends a request that ends an attempt until there is a reply, or until when it may matter. It blocks
// that long.
func (l *lockState) repeat(r wire.Copier, until time.Time) {
	s := l.s
	for try := 1; ; try++ {
		o := s.Link.Call(s.Ctx, r, 1, nil) // a single copy, because this loop sends the next
		_, err := l.read(o, nil)
		over := err == nil || !wire.Judge(err).Again(s.Closing()) || time.Now().After(until)
		if over || !wire.Pause(s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// repeatLater runs repeat in the background.
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
