package multilock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// entry is what one goroutine has of a majority, for which its Hold stands. Those that are nested in it are
// known to this process alone.
type entry struct {
	m      *majority
	ctx    context.Context // ends with the hold
	cancel context.CancelCauseFunc
	fixed  bool // a lease of its own choice, not renewed

	over error // why its user has it no more: it is unlocked; guarded by majority.mu
}

// entry is one of this call, which is not a hold yet.
func (v *vote) entry(m *majority) *entry {
	core, cancel := context.WithCancelCause(v.ctx)
	end := func() {
		// Another goroutine may have found that the majority is lost, and not have canceled this context yet.
		if err := m.check(); err != nil && err != failure.ErrNotHeld {
			cancel(err)
		}
	}
	ctx := &endingContext{core, end}
	return &entry{m: m, ctx: ctx, cancel: cancel, fixed: v.cfg.Lease != 0}
}

// descent is the context key by which a call of a RedLock finds the hold that it nests in.
type descent struct {
	q    *quorum
	name string // of the RedLock
	lost bool   // set by Find: the context descends from a hold that was lost
}

// endingContext is the context of a hold of several locks. It ends with them by a goroutine, and before that
// once it is asked.
type endingContext struct {
	context.Context
	check func() // ends it if that is due
}

func (c *endingContext) Err() error {
	if c.Context.Err() == nil {
		c.check()
	}
	return c.Context.Err()
}

// nest enters the majority of a hold that the context descends from, and has it confirmed. In each hold, one
// at a time is nested, as in a lock of its own. Neither a hold nor an error: that is over, look again.
func (v *vote) nest(outer *entry) (*entry, error) {
	m := outer.m
	e := v.entry(m) // without a mutex, because the context may run code of its own
	m.mu.Lock()
	for outer.over == nil && m.state() == nil && m.entries[len(m.entries)-1] != outer {
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		in := false
		if !v.try {
			v.announce()
			_, in = call.Await(&v.bounds, changed)
		}
		if !in {
			e.cancel(nil) // nobody has its context
			if v.holder = m.locked(); v.try {
				return nil, failure.Public(v.holder)
			}
			return nil, v.whyOver()
		}
		m.mu.Lock()
	}
	in := outer.over == nil && m.state() == nil
	if in {
		m.entries = append(m.entries, e)
		v.depth = len(m.entries)
		m.renew()
	}
	m.mu.Unlock()
	if !in {
		e.cancel(nil)
		return nil, nil
	}
	if err := m.extend(v.bounds.Until, -1, v.cfg.Lease); err != nil {
		v.q.home.Go(func() { _ = e.Unlock(context.Background()) }) // if it is the last, it waits for servers
		if v.bounds.Over() {
			err = v.whyOver()
		}
		return nil, err
	}
	return e, nil
}

// renew has the leases renewed, or not, as the entries want it. mu held.
func (m *majority) renew() {
	on := m.renewed()
	for _, p := range m.parts {
		if p != nil {
			p.Renew(on)
		}
	}
}

// An entry is a handle.Holding.

func (e *entry) Name() string { return e.m.l.name }

func (e *entry) Token() int64 { return e.m.token }

// Parts are none: for its user it is one lock.
func (e *entry) Parts() []*handle.Hold { return nil }

func (e *entry) Context() context.Context { return e.ctx }

// Find returns the entry if key is the descent of a call of the same RedLock, and the entry is held. If the
// entry was lost, Find notes that in the descent.
func (e *entry) Find(key any) any {
	d, ok := key.(*descent)
	if !ok || d.q != e.m.q || d.name != e.m.l.name {
		return nil
	}
	switch e.Err() {
	case nil:
		return e
	case failure.ErrLost:
		d.lost = true
	}
	return nil
}

// Deadline is when it has no majority any more.
func (e *entry) Deadline() time.Time { return e.m.until() }

func (e *entry) Err() error {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.over != nil {
		return e.over
	}
	return m.state()
}

// LossReason returns why the majority was lost; nil: that is not known.
func (e *entry) LossReason() error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.m.lossReason
}

// Servers are on how many servers it is.
func (e *entry) Servers() int { return e.m.servers() }

// OwnerField is the beginning of that of all parts.
func (e *entry) OwnerField() string { return e.m.q.id }

func (e *entry) Extend(ctx context.Context, d time.Duration) error {
	q := e.m.q
	if !q.home.Begin() {
		return failure.Named(e.m.l.name, failure.ErrClosed)
	}
	defer q.home.End()
	return e.m.extend(ctx, -1, d)
}

// Stay leaves the lock taken until d from now, also after its Unlock.
func (e *entry) Stay(d time.Duration) {
	m := e.m
	until := time.Now().Add(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if until.After(m.stays) {
		m.stays = until
	}
	for _, p := range m.parts {
		if p != nil {
			p.Stay(d)
		}
	}
}

// WaitReplicas refuses: each server is a vote of its own, and has no replicas.
func (e *entry) WaitReplicas(context.Context, int) error {
	return failure.Named(e.m.l.name,
		errors.New("WaitReplicas: a majority keeps a RedLock; its servers must not replicate"))
}

// Unlock of a nested hold returns at once. Unlock of the last hold releases the lock on all servers. It waits
// until a majority of the parts is released, until so many are lost that no majority is left, or for as long
// as handle.UnlockBound allows. The replies of the other servers are awaited in the background.
func (e *entry) Unlock(ctx context.Context) error {
	m, q := e.m, e.m.q
	_ = m.check()
	open := q.home.Begin()
	if open {
		defer q.home.End()
	}
	m.mu.Lock()
	if e.over != nil {
		m.mu.Unlock()
		return failure.Named(m.l.name, failure.ErrUnlockedBefore)
	}
	m.entries = slices.DeleteFunc(m.entries, func(other *entry) bool { return other == e })
	lost, last := m.over, len(m.entries) == 0
	if lost == nil && !open { // its parts are about to end, and with them the holds that are left
		lost = failure.ErrClosed
	}
	e.over = cmp.Or(lost, failure.ErrNotHeld)
	switch {
	case lost != nil:
	case last:
		m.over = failure.ErrNotHeld
	default:
		m.renew()
	}
	held := time.Since(m.begun)
	m.wake()
	m.mu.Unlock()
	if lost != nil {
		e.cancel(lost)
		if open {
			m.release(context.Background(), true)
		}
		if lost == failure.ErrLost {
			lost = failure.Lost(e.LossReason())
		}
		return failure.Named(m.l.name, lost)
	}
	e.cancel(unlockedError(m.l.name))
	if !last {
		return nil
	}
	m.stop()
	answers := m.release(ctx, true)
	m.d.next()
	err := m.released(ctx, answers)
	m.l.observe(context.WithoutCancel(ctx),
		session.Event{Kind: session.EventReleased, Token: m.token, Held: held, Err: err})
	return err
}

// Forgotten ends a hold whose Hold and context were collected. A fixed lease goes on in Redis.
func (e *entry) Forgotten() {
	m := e.m
	if e.fixed {
		return
	}
	go func() {
		if e.Err() == nil {
			m.q.lead.Warn("a Hold and its context were forgotten without Unlock; releasing the lock",
				"lock", m.l.name, "kind", protocol.RedLock, "token", m.token)
			e.cancel(failure.ErrForgotten)
		}
		_ = e.Unlock(context.Background())
	}()
}
