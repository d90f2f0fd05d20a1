package permit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Grant is permits that Redis gave to one attempt, and what goroutines have of them. It is held; then
// released, lost or closed.
type Grant struct {
	// What follows never changes.
	p     *pool
	owner any   // string: the attempt's
	first int64 // token of the grant
	fixed bool  // the lease is one that the goroutine chose

	lease watchdog.Lease // guarded by the watchdog

	// pool.mu guards the following.
	l       *lane // for whose goroutines it is
	state   handover.State
	n       int64     // permits
	token   int64     // of the present holder
	late    int64     // Redis time until which a copy of the attempt's request may come
	since   time.Time // when Redis was last asked whether others wait
	entries int       // of goroutines, with those that are on their way
	writers int       // of these, how many exclude others
	holds   map[*Entry]struct{}
	stays   time.Time // until when the permits stay taken, also when no hold is left
	whole   time.Time // until when that goes for all of them, as a writer has said
	used    bool      // some goroutine has had it
	own     bool      // its lease is, or was made longer, as a holder chose
}

// begin makes a grant of what Redis gave, whose lease counts from base. nil: it came too late, or the session
// closes; the caller gives it back. mu held.
func (p *pool) begin(l *lane, owner any, token int64, base time.Time, lease time.Duration) *Grant {
	s := p.s()
	deadline := base.Add(protocol.Valid(lease))
	// With mu held: Shutdown closes that before it lists the grants, so a grant is on its list or is not
	// made.
	if wakeup.Closed(s.Closing()) || !time.Now().Before(deadline) || token == 0 {
		return nil
	}
	fixed := l.want.Lease != 0
	g := &Grant{p: p, owner: owner, first: token, token: token, fixed: fixed, own: fixed, l: l, n: l.want.N, since: time.Now(), holds: map[*Entry]struct{}{}}
	g.lease.Owner = g
	l.grants++
	l.since = g.since
	p.grants[g] = struct{}{}
	p.keep() // dropped by end, by discard, or by what leave returns
	every := s.Lease / 3
	if fixed {
		every = 0 // watched, and not renewed
	}
	s.Watchdog.Add(&g.lease, deadline, every)
	if fixed && lease < l.want.Lease { // the first lease of a grant that was handed over
		s.Go(func() { g.complete(base.Add(l.want.Lease)) })
	}
	return g
}

// complete makes a fixed lease as long as was asked for. No watchdog renews it, so this goes on until its
// deadline.
func (g *Grant) complete(until time.Time) {
	s := g.p.s()
	for try := 1; ; try++ {
		err := g.extend(s.Ctx, time.Until(until))
		if err == nil || errors.Is(err, failure.ErrLost) || !wire.Judge(err).Unsettled() || !time.Now().Before(g.deadline()) || !wire.Pause(s.Ctx, wire.Backoff(try, 20*time.Millisecond, 200*time.Millisecond)) {
			return
		}
	}
}

// held reports whether the grant goes on. mu held.
func (g *Grant) held() bool { return g.state == handover.Held }

// exclusive reports whether it excludes all others. mu held.
func (g *Grant) exclusive() bool { return g.n == All }

// deadline is until when it is valid.
func (g *Grant) deadline() time.Time { return g.p.s().Watchdog.Deadline(&g.lease) }

// lasts reports whether enough is left of its lease to give it to another goroutine. mu held.
func (g *Grant) lasts() bool {
	s := g.p.s()
	// A grant that was served in the queue has no longer lease at first than the least of these three.
	return g.held() && !g.own && !wakeup.Closed(s.Closing()) && time.Until(g.deadline()) >= min(s.Lease, s.Liveness, protocol.FirstLease)/4
}

// over ends it for its session. mu held.
func (g *Grant) over(why handover.State) {
	g.state = why
	now := time.Now() // those that wait in this session remember it until they learn of another holder
	g.p.seen = &failure.Sighting{Holder: g.owner.(string), About: g.p.s().About(), At: now, Until: now}
	delete(g.p.grants, g)
	g.leaveLane()
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
func (g *Grant) end(why handover.State, reason error) bool {
	p := g.p
	s := p.s()
	p.mu.Lock()
	if !g.held() {
		p.mu.Unlock()
		return false // whatever ended it gives it back
	}
	g.over(why)
	var ended []*Entry
	for e := range g.holds {
		e.state = why
		e.wake() // whichever goroutines wait to nest in it look again
		ended = append(ended, e)
	}
	held, token := time.Since(g.since), g.token
	if g.l.waiters.Len() > 0 && s.Begin() { // they may have waited for it in memory
		g.l.ask()
		s.End()
	}
	p.mu.Unlock()
	s.Watchdog.Remove(&g.lease)
	for _, e := range ended {
		held = max(held, time.Since(e.began))
		e.cancel(handle.ErrorOf(why)) // without mu: what hangs on the context runs
	}
	if len(ended) > 0 && s.Begin() { // many may be lost at one instant: their contexts must not wait for a log
		go func() {
			defer s.End()
			if reason == nil {
				p.observe(s.Ctx, session.Event{Kind: session.EventReleased, Token: token, Held: held})
				return
			}
			s.Warn("lock lost", "lock", p.keys.Name, "kind", p.kind.Letter, "token", token, "held", held, "reason", reason)
			p.observe(s.Ctx, session.Event{Kind: session.EventLost, Token: token, Held: held, Err: fmt.Errorf("%w: %w", failure.ErrLost, reason)})
		}()
	}
	p.drop()
	return true
}

// discard gives the grant back in the background: no goroutine has it. The caller must be counted in the
// session's work. mu held.
func (g *Grant) discard() {
	p := g.p
	g.over(handover.Released)
	p.s().Watchdog.Remove(&g.lease)
	late := g.late
	p.s().Go(func() { // which the grant has kept the pool for
		defer p.drop()
		p.releaseUntilDone(g.owner, late, g.deadline())
	})
}

// lastUsed is the last token of its block that was used, for scripts. mu held.
func (g *Grant) lastUsed() any {
	if !g.exclusive() {
		return "" // there is one token, and nothing of it to give back
	}
	return g.token
}

// release is a request that ends an attempt, whatever it has.
func (p *pool) release(owner, token any, late int64, lastUsed any) protocol.Same {
	s := p.s()
	return protocol.Same{Script: releaseScript, Keys: p.keys, Argv: []any{owner, token, s.Args.Channels, s.Args.Keep, late, lastUsed}}
}

// releaseUntilDone ends an attempt, and tries for as long as it may matter. It blocks that long.
func (p *pool) releaseUntilDone(owner any, late int64, until time.Time) {
	p.repeat(p.release(owner, "", late, ""), until) // whatever the attempt has; its block counts as used
}

// repeat sends a request that ends an attempt, as releaseUntilDone does.
func (p *pool) repeat(r protocol.Same, until time.Time) {
	s := p.s()
	for try := 1; ; try++ {
		o := s.Link.Call(s.Ctx, r.Script, &r, 1, nil) // one copy: this loop sends the next
		if _, err := p.took(o, nil); err == nil || !wire.Judge(err).Again(s.Closing()) || time.Now().After(until) || !wire.Pause(s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// releaseLater is releaseUntilDone in the background. The caller must be counted in the session's work.
func (p *pool) releaseLater(owner any, late int64, until time.Time) {
	p.keep()
	p.s().Go(func() {
		defer p.drop()
		p.releaseUntilDone(owner, late, until)
	})
}

// news is the request that gives back a grant that is over for its session. Once it has ended, the pool is
// dropped. mu held.
func (g *Grant) news() *news {
	r := g.p.release(g.owner, g.first, g.late, g.lastUsed())
	if left := time.Until(g.stays); left > 0 {
		r.Script, r.Argv = remainScript, append(r.Argv, g.p.s().Clock.Now(time.Now())+left.Microseconds())
	}
	return &news{Same: r, g: g, took: func(o wire.Outcome) error { return g.released(r, o) }}
}

// released takes in how that has ended. What could not be given back is tried again in the background. The
// caller must be counted in the session's work.
func (g *Grant) released(r protocol.Same, o wire.Outcome) error {
	p := g.p
	defer p.drop()
	answer, err := p.took(o, nil)
	switch {
	case err != nil:
		if wire.Judge(err).Again(p.s().Closing()) {
			p.keep()
			p.s().Go(func() {
				defer p.drop()
				p.repeat(r, g.deadline())
			})
		}
		return p.kind.Failed(p.keys, err)
	case answer.Status == protocol.Lost && o.Unanswered == nil: // else an earlier copy has released it
		return p.fail(failure.ErrLost)
	}
	return nil
}

// extend makes its lease at least d. It blocks for the answer, and the request goes on when ctx has ended.
func (g *Grant) extend(ctx context.Context, d time.Duration) error {
	p := g.p
	s := p.s()
	p.mu.Lock()
	g.own = g.own || d > s.Lease // before the request, which may work though its answer is lost
	p.mu.Unlock()
	r := &protocol.Same{Script: renewScript, Keys: p.keys, Argv: []any{g.owner, g.first, protocol.Milliseconds(d), s.Args.Keep}}
	o, answered := call.Ask(&wakeup.Bounds{Until: ctx}, s, p.silent(ctx), call.Func(func(most int, _ *atomic.Bool) wire.Outcome {
		return s.Link.Call(ctx, renewScript, r, most, nil)
	}), 0)
	switch {
	case !answered:
		return p.fail(failure.OfContext(ctx))
	case o.Err != nil:
		return p.kind.Failed(p.keys, o.Err)
	case !strings.HasPrefix(o.Reply, "K"):
		g.end(handover.Lost, failure.ErrGone) // nothing happens if it was unlocked meanwhile
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.fail(handle.ErrorOf(g.state))
	}
	s.Watchdog.Extend(&g.lease, o.Sent.Add(protocol.Valid(d)))
	return nil
}

// A Grant is a session.Lessee.

// LeaseKey is the holders' key.
func (g *Grant) LeaseKey() string { return g.p.keys.Lock() }

// Renewal is the request that renews it to the session's lease.
func (g *Grant) Renewal() (*wire.Script, wire.Request) {
	s := g.p.s()
	return renewScript, g.p.keys.Request(renewScript, g.owner, g.first, s.Args.Lease, s.Args.Keep)
}

// LeaseLost ends it.
func (g *Grant) LeaseLost(deadlinePassed bool) {
	g.end(handover.Lost, failure.LossReason(deadlinePassed))
}

// RenewalFailed tells the observer.
func (g *Grant) RenewalFailed(err error) {
	g.p.mu.Lock()
	token := g.token
	g.p.mu.Unlock()
	g.p.observe(g.p.s().Ctx, session.Event{Kind: session.EventRenewFailed, Token: token, Err: err})
}
