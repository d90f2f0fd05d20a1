package multilock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/rlock"
)

// majority is what a Hold of a RedLock stands for: holds of its servers' locks, of which it needs a majority.
// Each of these parts renews its lease, is passed on in memory, or is lost, by itself.
type majority struct {
	// What follows never changes.
	l      *RedLock
	q      *quorum
	ctx    context.Context // ends with the hold
	cancel context.CancelCauseFunc
	values context.Context // for parts that are missing: the values of Lock's
	seek   context.Context // ends with the hold: parts that are missing are looked for
	stop   func()          // ends seek, and what goes on of the vote
	token  int64
	fixed  bool // a lease of its own choice, not renewed
	begun  time.Time
	outer  *majority // in which it is nested, in parts of that
	place  *place    // among those that are nested in each other
	d      *desk     // of an outermost one, which has the turn there; nil of others

	mu       sync.Mutex      // guards what follows; mutexes of the parts may be taken under it
	parts    []*engine.Entry // by server; nil where there is none
	stays    time.Time       // until when its parts stay taken, also when it is unlocked
	entered  bool            // its user has it, or is about to
	unlocked bool            // or forgotten
	over     error           // why it is not held any more
}

// hold makes the parts of a round a hold; nil if they were lost. stop ends what goes on of the vote.
func (v *vote) hold(c *count, token int64, stop func()) *majority {
	m := &majority{
		l: v.l, q: v.q, values: v.values, token: token, fixed: v.cfg.Lease != 0, begun: time.Now(),
		outer: c.outer, place: v.place, parts: slices.Clone(c.parts),
	}
	if v.turn {
		m.d = v.d
		m.d.keep()
		m.d.hold.Store(m)
		m.d.taken.Store(true)
	}
	core, cancel := context.WithCancelCause(v.ctx)
	m.ctx, m.cancel = &majorityContext{core, m}, cancel
	seek, end := context.WithCancel(context.Background())
	m.seek, m.stop = seek, func() { stop(); end() }
	c.hold.Store(m) // from now on it learns of the ends of its parts
	m.mu.Lock()
	if m.over = m.state(); wakeup.Closed(m.q.closing) {
		m.over = failure.ErrClosed
	}
	m.entered = m.over == nil
	m.mu.Unlock()
	if !m.entered {
		if m.d != nil { // the call has the turn yet
			m.d.hold.Store(nil)
			m.d.drop()
		}
		m.stop()
		m.cancel(failure.ErrLost)
		return nil
	}
	return m
}

// majorityContext ends with a hold: by a goroutine, and before that once it is asked.
type majorityContext struct {
	context.Context
	m *majority
}

func (c *majorityContext) Err() error {
	if c.Context.Err() == nil {
		_ = c.m.check()
	}
	return c.Context.Err()
}

// state is why it is not held; nil if it is. mu held.
func (m *majority) state() error {
	if m.over != nil {
		return m.over
	}
	live := 0
	for _, p := range m.parts {
		if p == nil {
			continue
		}
		switch err := p.Err(); {
		case err == nil:
			live++
		case errors.Is(err, failure.ErrClosed):
			return failure.ErrClosed
		}
	}
	if live < m.q.need {
		return failure.ErrLost
	}
	return nil
}

// live are the servers on which it is held.
func (m *majority) live() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.liveParts()
}

// liveParts is live, with mu held.
func (m *majority) liveParts() (live []int) {
	for i, p := range m.parts {
		if p != nil && p.Err() == nil {
			live = append(live, i)
		}
	}
	return live
}

// deadline is when it has no majority any more. mu held.
func (m *majority) deadline() time.Time {
	var all []time.Time
	for _, p := range m.parts {
		if p != nil {
			all = append(all, p.Deadline())
		}
	}
	if len(all) < m.q.need {
		return time.Time{}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all[len(all)-m.q.need]
}

// check ends a hold that has lost its majority, or whose session is closed. It returns why it is not held.
func (m *majority) check() error {
	m.mu.Lock()
	err := m.state()
	ends, entered := err != nil && m.over == nil, m.entered
	if ends {
		m.over = err
	}
	var reason error
	if ends {
		reason = failure.LossReason(!time.Now().Before(m.deadline()))
	}
	m.mu.Unlock()
	if !ends || !entered { // or there is no hold whose user would be told
		return err
	}
	m.cancel(err) // first, as it is what the user watches
	m.stop()
	m.place.leave()
	open := m.q.home.Begin()
	if m.alone() {
		tell := func() { m.report(err, reason) }
		if open {
			m.q.home.Go(tell) // many may be lost at one instant
		} else {
			tell()
		}
	}
	if open {
		m.release(context.Background(), m.live()) // what is not lost would be renewed
		m.q.home.End()
	}
	if m.d != nil {
		m.d.next()
	}
	return err
}

// alone reports whether it is nested in no hold that its user still has.
func (m *majority) alone() bool {
	o := m.outer
	for o != nil && o.told() {
		o = o.outer
	}
	return o == nil
}

// report tells operators and observers of an end without an Unlock.
func (m *majority) report(why, reason error) {
	l, lead, held := m.l, m.q.lead, time.Since(m.begun)
	if why == failure.ErrClosed {
		l.observe(lead.Ctx, session.Event{Kind: session.EventReleased, Token: m.token, Held: held})
		return
	}
	lead.Warn("lock lost", "lock", l.name, "token", m.token, "held", held, "reason", reason)
	l.observe(lead.Ctx, session.Event{Kind: session.EventLost, Token: m.token, Held: held,
		Err: fmt.Errorf("%w: %w", why, reason)})
}

// told reports whether its user knows that it is over.
func (m *majority) told() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.unlocked
}

func (m *majority) handle(ctx context.Context) (context.Context, *rlock.Hold, error) {
	held, hd := handle.New(ctx, m, !m.fixed)
	return held, (*rlock.Hold)(hd), nil
}

// Servers are on how many servers it is.
func (m *majority) Servers() int { return len(m.live()) }

func (m *majority) Name() string { return m.l.name }

// OwnerField is what that of all parts begins with.
func (m *majority) OwnerField() string { return holderOf(m.q.home.ID()) }

func (m *majority) Token() int64 { return m.token }

// Parts are none: for its user it is one lock.
func (m *majority) Parts() []*handle.Hold { return nil }

func (m *majority) Context() context.Context { return m.ctx }

// Find is for acquisitions below: the hold, for another one of its RedLock, and its parts, for theirs.
func (m *majority) Find(key any) any {
	if v, ok := key.(*vote); ok {
		if v.q != m.q || v.l.name != m.l.name {
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
	if m.Err() != nil {
		return nil
	}
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	m.mu.Unlock()
	for _, p := range parts {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deadline()
}

func (m *majority) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state()
}

func (m *majority) Extend(ctx context.Context, d time.Duration) error {
	q, fail := m.q, func(err error) error { return failure.Named(m.l.name, err) }
	if !q.home.Begin() {
		return fail(failure.ErrClosed)
	}
	defer q.home.End()
	yes, no := 0, []error(nil)
	until := time.Now().Add(protocol.Valid(d))
	// A part that was extended may be lost before the next one is.
	extended := func() bool { return yes >= q.need && !m.Deadline().Before(until) }
	extend := func(p *engine.Entry, ctx context.Context) error { return p.Extend(ctx, d) }
	m.tell(ctx, -1, extend, func(err error) bool {
		if err == nil {
			yes++
		} else {
			no = append(no, err)
		}
		return extended()
	})
	err := m.check()
	switch {
	case extended():
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
	for o := m; o != nil; o = o.outer {
		o.mu.Lock()
		if until.After(o.stays) {
			o.stays = until
		}
		for _, p := range o.parts {
			if p != nil {
				p.Stay(d)
			}
		}
		o.mu.Unlock()
	}
}

// WaitReplicas refuses: each server is a vote of its own, and has no replicas.
func (m *majority) WaitReplicas(context.Context, int) error {
	return failure.Named(m.l.name,
		errors.New("WaitReplicas: a majority keeps a RedLock; its servers must not replicate"))
}

// Unlock returns when a majority has passed its part on or has answered. The other servers are told in the
// background.
func (m *majority) Unlock(ctx context.Context) error {
	q, fail := m.q, func(err error) error { return failure.Named(m.l.name, err) }
	_ = m.check()
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
		m.bury()
		return fail(lost)
	}
	m.cancel(failure.ErrUnlocked)
	m.stop()
	var err error
	if m.d == nil || !m.d.leave(m) {
		live := m.live()
		answers := m.release(ctx, live)
		if m.d != nil {
			m.d.next()
		}
		err = m.released(len(live), answers)
		m.bury()
	}
	m.place.leave()
	if m.outer == nil {
		m.l.observe(context.WithoutCancel(ctx),
			session.Event{Kind: session.EventReleased, Token: m.token, Held: time.Since(m.begun), Err: err})
	}
	return err
}

// release unlocks some parts. When it returns, the servers' locks know that.
func (m *majority) release(ctx context.Context, servers []int) <-chan answer[struct{}] {
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	for _, i := range servers {
		m.parts[i] = nil
	}
	m.mu.Unlock()
	tell := make([]func(context.Context) error, len(parts))
	for _, i := range servers {
		if parts[i] != nil {
			tell[i] = parts[i].Leave()
		}
	}
	return ask(m.q, servers, func(i int) (none struct{}, _ error) {
		if tell[i] == nil { // lost and buried since the caller looked
			return none, failure.ErrLost
		}
		return none, tell[i](ctx)
	})
}

// released is what a majority says of a release.
func (m *majority) released(held int, answers <-chan answer[struct{}]) error {
	q, name := m.q, m.l.name
	yes, lost := 0, len(q.servers)-held
	var failing []error
	for range held {
		a := <-answers
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

// bury unlocks the parts that were lost. That does not block.
func (m *majority) bury() {
	m.mu.Lock()
	var lost []*engine.Entry
	for i, p := range m.parts {
		if p != nil && p.Err() != nil {
			lost, m.parts[i] = append(lost, p), nil
		}
	}
	m.mu.Unlock()
	for _, p := range lost {
		_ = p.Unlock(context.Background())
	}
}

// Forgotten ends a hold whose Hold and context were collected. A fixed lease goes on in Redis.
func (m *majority) Forgotten() {
	if m.fixed {
		m.mu.Lock()
		m.unlocked = true
		m.mu.Unlock()
		m.bury()
		m.mu.Lock()
		parts := slices.Clone(m.parts)
		m.mu.Unlock()
		for _, p := range parts {
			if p != nil {
				p.Forgotten()
			}
		}
		return
	}
	go func() {
		if m.Err() == nil {
			m.q.lead.Warn("a Hold and its context were forgotten without Unlock; releasing the lock",
				"lock", m.l.name, "token", m.token)
			m.cancel(failure.ErrForgotten)
		}
		_ = m.Unlock(context.Background())
	}()
}
