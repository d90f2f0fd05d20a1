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

// Unlock ends the hold here, and tells Redis if no goroutine of this session goes on with the grant. The
// request is sent whatever becomes of ctx, which bounds only the wait for its answer.
func (e *Entry) Unlock(ctx context.Context) error {
	tell, err := e.end()
	return e.tell(ctx, tell, err)
}

// Leave is the first half of an Unlock: what asks from now on knows that a release is under way. The second
// half, which it returns, must follow.
func (e *Entry) Leave() func(context.Context) error {
	tell, err := e.end()
	return func(ctx context.Context) error { return e.tell(ctx, tell, err) }
}

// end ends the hold here. Neither of both: there is nothing to tell Redis.
func (e *Entry) end() (tell *notice, err error) {
	g := e.g
	p := g.p
	s := p.s
	if !s.Begin() {
		return nil, e.tooLate(false)
	}
	p.mu.Lock()
	if e.unlocked || e.state != handle.Held {
		p.mu.Unlock()
		defer s.End()
		return nil, e.tooLate(true)
	}
	e.unlocked = true
	e.state = handle.Released
	e.unnest()
	g.unlink(e)
	e.last = e.root.chain.holds == 0
	tell = g.endEntry(e.write)
	p.mu.Unlock()
	e.cancel((*unlocked)(e)) // before Redis can give the permits to another session
	return tell, nil
}

// unlocked is the cause with which the context of an unlocked Entry has ended. It is the Entry itself,
// converted, so an Unlock allocates no error. So that needs no allocation.
type unlocked Entry

func (u *unlocked) Error() string {
	return failure.UnlockedText(u.g.p.kind.Noun, u.g.p.keys.Name)
}

func (u *unlocked) Unwrap() error { return failure.ErrUnlocked }

// tell tells Redis of an entry that has ended, unless that failed.
func (e *Entry) tell(ctx context.Context, n *notice, err error) error {
	switch {
	case err != nil:
		return err
	case n == nil:
		return e.ended(ctx, nil)
	}
	p := e.g.p
	ctx, atMost := handle.UnlockBounds(ctx, p.s.Lease)
	n.e, n.ctx = e, ctx
	o, answered := call.Ask(&call.Bounds{Until: ctx}, p.s, p.keys.LockKey(), n, atMost)
	if !answered {
		return p.fail(handle.UnlockError(ctx))
	}
	return e.ended(ctx, n.onReply(n, o))
}

// ended ends an Unlock, after the reply if there was one to wait for.
func (e *Entry) ended(ctx context.Context, err error) error {
	p := e.g.p
	defer p.s.End()
	if !e.last { // other holds of its chain are left
		return err
	}
	root := e.root
	event := session.Event{
		Kind: session.EventReleased, Token: root.token, Held: p.s.Age() - root.began, Err: err,
	}
	if errors.Is(err, failure.ErrLost) { // Redis did not have it any more
		p.warnLost(event.Token, event.Held, failure.ErrGone)
		event.Kind, event.Err = session.EventLost, failure.Lost(failure.ErrGone)
	}
	p.observe(ctx, event)
	return err
}

// releaseIdle gives back, in the background, a grant that no goroutine has. If it was lost, that is logged.
// Observers know that its holds were released. The caller must be counted in the session's work. mu held.
func (g *Grant) releaseIdle() {
	p := g.p
	tell, token, held := g.release(), g.token, p.s.Age()-g.since
	p.s.Go(func() {
		err := tell.send(context.WithoutCancel(p.s.Ctx))
		if errors.Is(err, failure.ErrLost) && g.used {
			p.warnLost(token, held, failure.ErrGone)
		}
	})
}

// tooLate is the error of an Unlock that ends nothing. counted: the session has not ended, and waits for the
// caller.
func (e *Entry) tooLate(counted bool) error {
	g := e.g
	p := g.p
	p.mu.Lock()
	defer p.mu.Unlock()
	again := e.unlocked
	e.unlocked = true
	switch {
	case again:
		return p.fail(failure.ErrUnlockedBefore)
	case e.state == handle.Held:
		return p.fail(failure.ErrClosed)
	case e.state == handle.Lost && counted:
		g.giveBack()
	}
	return p.fail(g.errorOf(e.state))
}

// giveBack tells Redis, in the background, of a grant that is lost here: its lease may still count there, and
// no waiter need wait for that. It does not stop at the deadline, since a copy of the request may still come.
// The caller must be counted in the session's work. mu held.
func (g *Grant) giveBack() {
	raised := any("")
	if g.floor != 0 {
		raised = max(g.token, g.floor) // which stays the last one used
	}
	r := g.p.releaseRequest(g.owner, "", g.late, raised)
	g.p.repeatLater(&r, time.Now().Add(g.p.s.Lease))
}

// notice tells Redis of an entry that has ended here. The grant is over, or a writer has gone and readers go
// on, or fewer holds are left.
type notice struct {
	protocol.Same
	g       *Grant
	stays   time.Duration                         // as in g, if permits stay taken; 0: none do
	onReply func(n *notice, o wire.Outcome) error // takes in how it ended

	// Of an Unlock, whose caller may leave. What it tells Redis holds.
	ctx context.Context // for its observer
	e   *Entry
}

// Request makes a copy.
func (n *notice) Request(now time.Time) *wire.Request {
	switch {
	case n.Argv == nil:
		return (&update{n.g, "0"}).Request(now)
	case n.stays == 0:
		return n.Same.Request(now)
	}
	// Not a point in time: the clocks of a Cluster's nodes differ. So each copy says what is left.
	left := max(0, n.stays-n.g.p.s.Age()) + time.Millisecond - 1
	same := n.Same
	same.Argv = append(slices.Clip(n.Argv), protocol.Milliseconds(left))
	return same.Request(now)
}

func (n *notice) Send(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
	return n.g.p.s.Link.Call(ctx, n, maxTries, nil)
}

// RollBack takes in how the request ended after the caller of Unlock has left.
func (n *notice) RollBack(o wire.Outcome) {
	_ = n.e.ended(context.WithoutCancel(n.ctx), n.onReply(n, o))
}

// send sends the request, and blocks for the answer.
func (n *notice) send(ctx context.Context) error {
	return n.onReply(n, n.Send(ctx, wire.Tries, nil))
}

// endEntry ends one of its entries. The caller must send what it returns, and give the answer to onReply;
// nil: there is nothing to tell. The caller must be counted in the session's work. mu held.
func (g *Grant) endEntry(write bool) (tell *notice) {
	l, waits := g.l, func(l *lane) bool { return len(l.waiters) > 0 }
	g.entries--
	g.change++
	if write {
		g.writers--
	}
	switch {
	case !g.held():
		return nil // Shutdown, the Unlock of a lost hold, or decline gives it back
	case g.entries > 0 && g.p.kind.Counts:
		same := protocol.Same{Script: renewScript, Keys: g.p.keys}
		return &notice{Same: same, g: g, onReply: (*notice).counted}
	case g.entries > 0:
		if g.exclusive() && g.writers == 0 && g.p.s.Age() >= g.whole {
			return g.reduce()
		}
		return nil // the last entry tells Redis
	case len(l.waiters) > 0 && l.first().cfg.Lease == 0 && g.passable():
		g.pass()
		l.admit(g)
		l.trim() // there may be an attempt more than waiters now
		return nil
	case g.lingers && g.passable() && !slices.ContainsFunc(g.p.lanes, waits):
		g.idle()
		return nil
	}
	return g.release()
}

// release ends a grant that no goroutine has. The caller must send what it returns, and give its answer to
// onReply. It must be counted in the session's work. mu held.
func (g *Grant) release() *notice {
	l := g.l
	g.leavePool(handle.Released)
	g.p.s.Watchdog.Remove(&g.lease)
	tell := g.notice()
	for _, other := range slices.Clone(g.p.lanes) { // one that asks may be forgotten
		if other == l || !g.p.rivals { // else they wait on for the goroutine that unlocks last to come back
			other.ask() // if that comes before the release, the release serves it
		}
	}
	return tell
}

// notice is the request that gives back a grant that is over for its session. Once it has ended, the pool is
// dropped. mu held.
func (g *Grant) notice() *notice {
	p := g.p
	p.releases++
	r := p.releaseRequest(g.owner, g.first, g.late, g.lastUsed())
	n := &notice{Same: r, g: g, onReply: (*notice).released}
	if g.stays > p.s.Age() {
		n.stays = g.stays
	}
	return n
}

// memory is how long a session that has handed a lock over remembers that other sessions want it.
const memory = 10 * time.Millisecond

// released takes in how that has ended. What could not be given back is tried again in the background. The
// caller must be counted in the session's work.
func (n *notice) released(o wire.Outcome) error {
	p := n.g.p
	defer p.drop()
	answer, err := p.read(o, nil)
	p.mu.Lock()
	// A lock that went to this session again says nothing of others.
	if err == nil && (len(answer.Served) == 0 || !p.s.Owns(answer.Served[0].Owner)) {
		p.rivals = len(answer.Served) > 0
	}
	if p.rivals {
		p.retain()
		time.AfterFunc(memory, p.drop)
	}
	p.endRelease()
	p.mu.Unlock()
	switch {
	case err != nil:
		return n.failed(err)
	case answer.Status == protocol.Lost && o.Unanswered == nil: // else an earlier copy has released it
		return p.fail(failure.Lost(failure.ErrGone))
	}
	return nil
}

// failed has it told again in the background, if that may help. Else the error says so.
func (n *notice) failed(err error) error {
	g, p := n.g, n.g.p
	if !wire.Judge(err).Again(p.s.Closing()) {
		err = fmt.Errorf("%w; not tried again: it may stay taken until its lease ends", err)
		return p.kind.Failed(p.keys, err)
	}
	p.repeatLater(n, g.deadline())
	return p.kind.Failed(p.keys, err)
}

// passable reports whether another goroutine may have it without a request. mu held.
func (g *Grant) passable() bool {
	age := g.p.s.Age()
	// A fair lane ends by itself: the next one has a place of its own.
	inTime := g.p.kind.Fair || age-g.since < g.span()
	return age >= g.stays && inTime && g.lasts() && g.passes < protocol.Block-1
}

// pass moves an exclusive grant to the next token of its block. It does not wake the next goroutine, see
// admit. The caller must hold pool.mu.
func (g *Grant) pass() {
	if g.exclusive() {
		g.token++ // each writer has its own token of the block
		g.passes++
	}
}

func (n *notice) counted(o wire.Outcome) error {
	if err := n.g.updated(o, 0); !errors.Is(err, failure.ErrNotHeld) { // else the last Unlock overtook this
		return err
	}
	return nil
}

// reduce has readers go on with what a writer held: they have nested in it. mu held.
func (g *Grant) reduce() (tell *notice) {
	p := g.p
	p.releases++
	lastUsed := g.lastUsed()
	g.n = 1
	g.endLinger()
	g.since = p.s.Age()
	limit := g.l.want.Limit
	was := g.l
	g.leaveLane()
	g.l = p.lane(Want{N: 1, Limit: limit, Shared: true})
	g.l.grants++
	was.ask()                      // it does not pass there any more
	if g.l.live == nil && !g.own { // an own lease is not for those that join
		g.l.live = g
	}
	args := &p.s.Args
	argv := []any{g.owner, g.first, args.Channels, args.Keep, "0", lastUsed, "", "1"}
	same := protocol.Same{Script: releaseScript, Keys: p.keys, Argv: argv}
	return &notice{Same: same, g: g, onReply: (*notice).reduced}
}

func (n *notice) reduced(o wire.Outcome) error {
	p := n.g.p
	r, err := p.read(o, nil)
	p.mu.Lock()
	p.endRelease()
	p.mu.Unlock()
	switch {
	case err != nil: // at the latest, the last of the readers gives back what it holds
		return n.failed(err)
	case r.Status == protocol.Lost && n.g.end(handle.Lost, failure.ErrGone):
		// Else the last reader's release was faster.
		return p.fail(failure.Lost(failure.ErrGone))
	}
	return nil
}

// releaseRequest ends an attempt, whatever it has. Without a last token, its block counts as used.
func (p *pool) releaseRequest(owner, token any, late int64, lastUsed any) protocol.Same {
	s := p.s
	argv := []any{owner, token, s.Args.Channels, s.Args.Keep, late, lastUsed}
	return protocol.Same{Script: releaseScript, Keys: p.keys, Argv: argv}
}

// repeat sends a request that ends an attempt until it is answered, or until when it may matter. It blocks
// that long.
func (p *pool) repeat(r wire.Copier, until time.Time) {
	s := p.s
	for try := 1; ; try++ {
		o := s.Link.Call(s.Ctx, r, 1, nil) // one copy: this loop sends the next
		_, err := p.read(o, nil)
		over := err == nil || !wire.Judge(err).Again(s.Closing()) || time.Now().After(until)
		if over || !wire.Pause(s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// repeatLater is repeat in the background. The caller must be counted in the session's work.
func (p *pool) repeatLater(r wire.Copier, until time.Time) {
	p.retain()
	p.s.Go(func() {
		defer p.drop()
		p.repeat(r, until)
	})
}
