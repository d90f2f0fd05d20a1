package multilock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// majority is what a Hold of a RedLock stands for.
type majority struct {
	// What follows never changes.
	g      *grant // its own, or, nested, entries of the outer hold's parts
	d      *desk
	ctx    context.Context // ends with the hold
	cancel context.CancelCauseFunc
	token  int64
	begun  time.Time
	outer  *majority // in which it is nested
	root   *majority // the outermost of those that are nested
	quiet  bool      // the observer was not told of it

	holds atomic.Int32 // of root: how many are nested in it, with itself, and have not ended

	mu       sync.Mutex // guards what follows; grant's may be taken under it
	over     error      // why it is not held, if it has ended
	unlocked bool       // or forgotten
}

// hold makes a grant the hold of a call of Lock; nil if it was lost.
func (v *vote) hold(g *grant, outer *majority) *majority {
	m := &majority{g: g, d: v.d, begun: time.Now(), outer: outer}
	core, cancel := context.WithCancelCause(v.ctx)
	m.ctx, m.cancel = &majorityContext{core, m}, cancel
	if m.root = m; outer != nil {
		m.root = outer.root
	}
	m.root.holds.Add(1)
	g.mu.Lock()
	m.token = g.token
	g.mu.Unlock()
	m.d.enter(m)
	g.mu.Lock()
	if g.state() == nil {
		g.hold = m
		g.mu.Unlock()
		return m
	}
	g.over = failure.ErrLost // there is no hold to be told
	g.mu.Unlock()
	m.root.holds.Add(-1)
	m.d.exit(m)
	m.d.drop()
	cancel(failure.ErrLost)
	return nil
}

// majorityContext ends with a hold: by a goroutine, and before that once it is asked.
type majorityContext struct {
	context.Context
	m *majority
}

func (c *majorityContext) Err() error {
	if c.Context.Err() == nil && c.m.Err() != nil {
		_ = c.m.g.check()
	}
	return c.Context.Err()
}

func (m *majority) handle(ctx context.Context) (context.Context, *rlock.Hold, error) {
	held, hd := handle.New(ctx, m, !m.g.fixed)
	return held, (*rlock.Hold)(hd), nil
}

// lose ends a hold whose grant was lost, or given back by Close.
func (m *majority) lose(why, reason error) {
	m.mu.Lock()
	over := m.over != nil
	if !over {
		m.over = why
	}
	m.mu.Unlock()
	if over {
		return
	}
	m.cancel(why)
	l, lead, held := m.g.l, m.g.q.lead, time.Since(m.root.begun)
	last := m.root.holds.Add(-1) == 0
	defer m.d.drop()
	m.d.exit(m)
	if last {
		m.d.next()
	}
	if !last {
		return
	}
	tell := func() {
		if why == failure.ErrClosed {
			l.observe(lead.Ctx, session.Event{Kind: session.EventReleased, Token: m.token, Held: held})
			return
		}
		lead.Warn("lock lost", "lock", l.name, "token", m.token, "held", held, "reason", reason)
		l.observe(lead.Ctx, session.Event{Kind: session.EventLost, Token: m.token, Held: held,
			Err: fmt.Errorf("%w: %w", why, reason)})
	}
	if m.g.q.home.Begin() {
		m.g.q.home.Go(tell) // many may be lost at one instant
		m.g.q.home.End()
	} else {
		tell()
	}
}

// Servers are on how many servers it is.
func (m *majority) Servers() int { return len(m.g.live()) }

func (m *majority) Name() string { return m.g.l.name }

// OwnerField is what that of all parts begins with.
func (m *majority) OwnerField() string { return holderOf(m.g.q.home.ID()) }

func (m *majority) Token() int64 { return m.token }

// Parts are none: for its user it is one lock.
func (m *majority) Parts() []*handle.Hold { return nil }

func (m *majority) Context() context.Context { return m.ctx }

// Find is for acquisitions below: the hold, for another one of its RedLock, and its parts, for theirs.
func (m *majority) Find(key any) any {
	g := m.g
	if v, ok := key.(*vote); ok {
		if v.q != g.q || v.l.name != g.l.name {
			return nil
		}
		switch m.Err() {
		case nil:
			return m
		case failure.ErrLost:
			v.lost = true
		}
		return nil
	}
	if m.Err() != nil { // the parts may be another hold's
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		if p != nil {
			if found := p.Find(key); found != nil {
				return found
			}
		}
	}
	return nil
}

// Deadline is when it has no majority any more.
func (m *majority) Deadline() time.Time {
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.g.deadline()
}

func (m *majority) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over != nil {
		return m.over
	}
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	return m.g.state()
}

func (m *majority) Extend(ctx context.Context, d time.Duration) error {
	g := m.g
	q, fail := g.q, func(err error) error { return failure.Named(g.l.name, err) }
	if !q.home.Begin() {
		return fail(failure.ErrClosed)
	}
	defer q.home.End()
	g.mu.Lock()
	g.extended = g.extended || d > q.lead.Lease
	g.mu.Unlock()
	yes, no := 0, []error(nil)
	extend := func(p *engine.Entry, ctx context.Context) error { return p.Extend(ctx, d) }
	g.tell(ctx, -1, extend, func(err error) bool {
		if err == nil {
			yes++
		} else {
			no = append(no, err)
		}
		return yes >= q.need
	})
	_ = g.check()
	switch err := m.Err(); {
	case yes >= q.need:
		return nil
	case err != nil:
		return fail(err)
	case ctx.Err() != nil:
		return fail(failure.OfContext(ctx))
	}
	return fail(q.noMajority(yes, no))
}

// Stay leaves the lock taken until d from now, also after its Unlock.
func (m *majority) Stay(d time.Duration) {
	until := time.Now().Add(d)
	for _, g := range [...]*grant{m.g, m.root.g} {
		g.mu.Lock()
		if until.After(g.stays) {
			g.stays = until
		}
		for _, p := range g.parts {
			if p != nil {
				p.Stay(d)
			}
		}
		g.mu.Unlock()
	}
}

// WaitReplicas refuses: each server is a vote of its own, and has no replicas.
func (m *majority) WaitReplicas(context.Context, int) error {
	return failure.Named(m.g.l.name, errors.New("WaitReplicas: a majority keeps a RedLock; its servers must not replicate"))
}

// Unlock passes the grant on, or returns when a majority has answered. The other servers are told in the
// background.
func (m *majority) Unlock(ctx context.Context) error {
	g, d := m.g, m.d
	q, fail := g.q, func(err error) error { return failure.Named(g.l.name, err) }
	_ = g.check()
	open := q.home.Begin()
	if open {
		defer q.home.End()
	}
	m.mu.Lock()
	again, lost := m.unlocked, m.over
	m.unlocked = true
	if lost == nil {
		if m.over = failure.ErrNotHeld; !open {
			m.over, lost = failure.ErrClosed, failure.ErrClosed
		}
	}
	m.mu.Unlock()
	switch {
	case again:
		return fail(failure.ErrNotHeld)
	case lost != nil:
		m.cancel(lost)
		g.bury()
		return fail(lost)
	}
	m.cancel(failure.ErrUnlocked)
	last := m.root.holds.Add(-1) == 0
	held := time.Since(m.root.begun)
	ended := func(err error) {
		if m.quiet {
			return
		}
		g.l.observe(context.WithoutCancel(ctx),
			session.Event{Kind: session.EventReleased, Token: m.token, Held: held, Err: err})
	}
	if last && m == m.root && d.pass(g) {
		d.exit(m)
		d.drop()
		ended(nil)
		return nil
	}
	if last {
		d.mu.Lock()
		d.unlock.Begin()
		d.mu.Unlock()
	}
	d.exit(m)
	g.mu.Lock()
	g.over = failure.ErrNotHeld
	g.mu.Unlock()
	g.stop()
	live := g.live()
	answers := g.release(ctx, live)
	g.bury()
	err := m.released(len(live), answers)
	if last {
		d.next()
		d.mu.Lock()
		d.unlock.End()
		d.mu.Unlock()
		ended(err)
	}
	d.drop()
	return err
}

// told reports whether its user knows that it is over.
func (m *majority) told() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unlocked
}

// released is what a majority says of a release.
func (m *majority) released(held int, answers <-chan answer[*engine.Entry]) error {
	q, name := m.g.q, m.g.l.name
	yes, lost, others := 0, len(q.servers)-held, false
	var failing []error
	defer func() {
		if others {
			m.d.remember()
		}
	}()
	for range held {
		a := <-answers
		others = others || a.err == nil && a.value.Others()
		switch {
		case a.err == nil:
			yes++
		case errors.Is(a.err, failure.ErrLost):
			lost++
		case errors.Is(a.err, failure.ErrClosed):
			return failure.Named(name, failure.ErrClosed)
		default:
			failing = append(failing, q.servers[a.i].named(a.err))
		}
		switch {
		case yes >= q.need:
			return nil
		case len(q.servers)-lost < q.need:
			return failure.Named(name, failure.ErrLost)
		}
	}
	return failure.Named(name, q.noMajority(yes+lost, failing))
}

// Forgotten ends a hold whose Hold and context were collected. A fixed lease goes on in Redis.
func (m *majority) Forgotten() {
	if m.g.fixed {
		m.mu.Lock()
		m.unlocked = true
		m.mu.Unlock()
		m.g.bury()
		m.g.mu.Lock()
		parts := slices.Clone(m.g.parts)
		m.g.mu.Unlock()
		for _, p := range parts {
			if p != nil {
				p.Forgotten()
			}
		}
		return
	}
	go func() {
		if m.Err() == nil {
			m.g.q.lead.Warn("a Hold and its context were forgotten without Unlock; releasing the lock",
				"lock", m.g.l.name, "token", m.token)
			m.cancel(failure.ErrForgotten)
		}
		_ = m.Unlock(context.Background())
	}()
}
