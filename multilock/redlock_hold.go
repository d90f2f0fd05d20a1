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

// An entry is the hold of one call, either of the call that made the majority, or of a call that nests in its
// hold. Servers do not know of nested holds.
type entry struct {
	m      *majority
	ctx    context.Context // ends with the hold
	cancel context.CancelCauseFunc
	fixed  bool // the call has set a fixed lease, which is not renewed

	ended error // why the hold has ended; nil until its Unlock; guarded by majority.mu
}

var _ handle.Holding = (*entry)(nil)

// newEntry returns an entry for this call. The caller must add the entry to m.entries, or cancel the context
// of the entry.
func (c *lockCall) newEntry(m *majority) *entry {
	core, cancel := context.WithCancelCause(c.callerCtx)
	end := func() {
		// Another goroutine may have found that the majority is lost, but not have canceled this context yet.
		if err := m.endIfLost(); err != nil && err != failure.ErrNotHeld {
			cancel(err)
		}
	}
	ctx := &endingContext{core, end}
	return &entry{m: m, ctx: ctx, cancel: cancel, fixed: c.cfg.Lease != 0}
}

// A descent is the context key by which a call of a RedLock finds the hold that it nests in.
type descent struct {
	q    *quorum
	name string // name of the RedLock
	lost bool   // set by Find if the context descends from a hold that was lost
}

// An endingContext is the context of a hold that consists of several locks. When the hold has ended, a
// goroutine cancels the context. If Err is called before the goroutine has done so, Err itself cancels the
// context.
type endingContext struct {
	context.Context
	endIfDue func() // cancels Context if the hold has ended
}

func (c *endingContext) Err() error {
	if c.Context.Err() == nil {
		c.endIfDue()
	}
	return c.Context.Err()
}

// nest adds an entry to the majority of outer, the hold from which the caller's context descends. First, nest
// waits while another entry is nested in outer, because only one entry at a time can be nested in outer. If
// the call may not wait, nest returns an error instead. Second, nest waits until a majority of the servers
// has confirmed the hold. If both results are nil, outer has ended, and the caller must look for another
// hold.
func (c *lockCall) nest(outer *entry) (*entry, error) {
	m := outer.m
	e := c.newEntry(m) // not under m.mu, because the caller's context may run code of the user
	m.mu.Lock()
	for outer.ended == nil && m.whyEnded() == nil && m.entries[len(m.entries)-1] != outer {
		if m.changed == nil {
			m.changed = make(chan struct{})
		}
		changed := m.changed
		m.mu.Unlock()
		woken := false
		if !c.once {
			c.reportWaiting()
			_, woken = call.Await(&c.bounds, changed)
		}
		if !woken {
			e.cancel(nil) // frees the context, which no user has got
			if c.holder = m.lockedError(); c.once {
				return nil, failure.Public(c.holder)
			}
			return nil, c.waitError()
		}
		m.mu.Lock()
	}
	nested := outer.ended == nil && m.whyEnded() == nil
	if nested {
		m.entries = append(m.entries, e)
		c.depth = len(m.entries)
		m.setRenewal()
	}
	m.mu.Unlock()
	if !nested {
		e.cancel(nil)
		return nil, nil
	}
	if err := m.extend(c.bounds.Until, -1, c.cfg.Lease); err != nil {
		c.q.home.Go(func() { _ = e.Unlock(context.Background()) }) // because Unlock may wait for servers
		if c.bounds.Over() {
			err = c.waitError()
		}
		return nil, err
	}
	return e, nil
}

func (e *entry) Name() string { return e.m.l.name }

func (e *entry) Token() int64 { return e.m.token }

// Parts returns nil, because to its users a RedLock is a single lock.
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

func (e *entry) Deadline() time.Time { return e.m.deadline() }

func (e *entry) Err() error {
	m := e.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.ended != nil {
		return e.ended
	}
	return m.whyEnded()
}

// LossReason returns why the majority was lost, or nil if that is not known.
func (e *entry) LossReason() error {
	e.m.mu.Lock()
	defer e.m.mu.Unlock()
	return e.m.lossReason
}

// Servers returns the number of servers on which the lock is held.
func (e *entry) Servers() int { return e.m.live().count(granted) }

// OwnerField returns the common beginning of the owner fields of all parts.
func (e *entry) OwnerField() string { return e.m.q.id }

func (e *entry) Extend(ctx context.Context, d time.Duration) error {
	q := e.m.q
	if !q.home.Begin() {
		return failure.Named(e.m.l.name, failure.ErrClosed)
	}
	defer q.home.End()
	return e.m.extend(ctx, -1, d)
}

// Stay keeps the lock taken until d from now, even after its Unlock.
func (e *entry) Stay(d time.Duration) {
	m := e.m
	until := time.Now().Add(d)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended != nil { // the parts are being released already
		return
	}
	if until.After(m.takenUntil) {
		m.takenUntil = until
	}
	for _, p := range m.parts {
		if p != nil {
			p.Stay(d)
		}
	}
}

// WaitReplicas returns an error, because the servers of a RedLock must not have replicas.
func (e *entry) WaitReplicas(context.Context, int) error {
	return failure.Named(e.m.l.name,
		errors.New("WaitReplicas: a majority keeps a RedLock, so its servers must not replicate"))
}

// Unlock ends the hold. If other holds of the majority are left, Unlock returns at once. Otherwise Unlock
// releases the lock on all servers. It waits until a majority of the servers has released the lock, or until
// so many servers have lost it that no majority is left. It does not wait longer than handle.UnlockBound
// allows. Requests to the other servers continue in the background. If the majority was lost or closed
// before, Unlock does not wait, and returns ErrLost or ErrClosed.
func (e *entry) Unlock(ctx context.Context) error {
	m, q := e.m, e.m.q
	_ = m.endIfLost()
	open := q.home.Begin()
	if open {
		defer q.home.End()
	}
	m.mu.Lock()
	if e.ended != nil {
		m.mu.Unlock()
		return failure.Named(m.l.name, failure.ErrUnlockedBefore)
	}
	m.entries = slices.DeleteFunc(m.entries, func(other *entry) bool { return other == e })
	lost, last := m.ended, len(m.entries) == 0
	if lost == nil && !open { // the quorum ends, so all holds of the majority are about to end
		lost = failure.ErrClosed
	}
	e.ended = cmp.Or(lost, failure.ErrNotHeld)
	switch {
	case lost != nil:
	case last:
		m.ended = failure.ErrNotHeld
	default:
		m.setRenewal()
	}
	held := time.Since(m.begun)
	var stay []int64 // tokens of parts that HoldAtLeast keeps taken, by server; 0 where there is no part
	if time.Now().Before(m.takenUntil) {
		stay = make([]int64, len(m.parts))
		for i, p := range m.parts {
			if p != nil {
				stay[i] = p.Token()
			}
		}
	}
	m.wakeNesting()
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
	releasing := m.release(ctx, true)
	m.local.passTurn()
	err := m.awaitRelease(ctx, releasing)
	ctx = context.WithoutCancel(ctx)
	if errors.Is(err, failure.ErrLost) { // too few servers still had the hold
		if stay != nil {
			// A lock that was lost before its Unlock does not stay taken. The parts must be free before
			// Unlock returns, because a Close of the sessions may follow.
			_, _ = m.l.force(context.Background(), stay)
		}
		m.reportLost(ctx, held, failure.ErrGone)
	} else {
		m.l.observe(ctx, session.Event{Kind: session.EventReleased, Token: m.token, Held: held, Err: err})
	}
	return err
}

// Forgotten releases a hold whose Hold and context were collected by the garbage collector. If the lease is
// fixed, the lock stays held in Redis until the lease ends.
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

// unlockedError is the cause with which Unlock ends the context of a hold of a RedLock. Its value is the name
// of the lock.
type unlockedError string

func (e unlockedError) Error() string { return failure.UnlockedText("", string(e)) }
func (unlockedError) Unwrap() error   { return failure.ErrUnlocked }
