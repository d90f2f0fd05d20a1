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
	"github.com/lockline/lockline/internal/wire"
)

// A majority is the hold of a RedLock in this process. Its parts are holds of the locks of the servers. Each
// part renews its lease, or is lost, by itself. A round makes the majority, and goroutines that nest in it
// have entries of it. It ends with its last entry, or once its live parts are no majority.
type majority struct {
	// The following never change once the majority is held.
	l     *RedLock
	q     *quorum
	local *localQueue     // whose turn it has
	ctx   context.Context // of the parts; has the values of Lock's context, and ends with the majority
	stop  func()          // ends ctx, and so the waits for parts
	note  string          // of the call that made it, for parts that are acquired later

	mu            sync.Mutex      // guards the following and entries; parts' mutexes may be locked under it
	token         int64           // 0 until become, while the majority belongs to its round
	begun         time.Time       // when it became a hold
	parts         []*engine.Entry // by server; nil where there is none
	entries       []*entry        // each nested in the one before, until they are unlocked
	changed       chan struct{}   // closed when entries change; nil if no goroutine waits
	takenUntil    time.Time       // until when the parts stay taken, also if they are unlocked
	renewalErrors []renewalError  // by server; nil if no renewal has failed
	ended         error           // the error of its end; nil if it is held, or endIfLost has not looked yet
	lossReason    error           // nil if it was not lost, or endIfLost has not looked yet
	warned        bool            // the log says that its process may wait for itself
}

// A renewalError is the last failed renewal of a part.
type renewalError struct {
	at  time.Time // zero if none has failed
	err error
}

// become makes the parts the hold of a call. It returns nil if the majority was lost meanwhile, or if its
// session is closed.
func (m *majority) become(c *lockCall, parts []*engine.Entry, token int64) *entry {
	e := c.newEntry(m)
	m.mu.Lock()
	m.parts = slices.Clone(parts)
	if m.ended = m.whyEnded(); m.ended == nil && wire.Closed(m.q.closing) {
		m.ended = failure.ErrClosed
	}
	held := m.ended == nil
	if held {
		m.token, m.begun = token, time.Now() // from now on, checkPart handles parts that end
		m.entries = []*entry{e}
		m.local.held.Store(m)
	}
	m.mu.Unlock()
	if !held { // the call still has the turn
		e.cancel(failure.ErrLost)
		return nil
	}
	m.local.seen.CompareAndSwap(nil, unknownHolder)
	return e
}

// votes returns the parts as votes, either all of them or only the live ones. The caller must hold m.mu.
func (m *majority) votes(live bool) tally {
	t := m.q.tally(refused)
	for i, p := range m.parts {
		if p != nil && !(live && p.Err() != nil) {
			t[i] = vote{kind: granted, validUntil: p.Deadline()}
		}
	}
	return t
}

// whyEnded returns why the majority is not held; nil if it is. The caller must hold m.mu.
func (m *majority) whyEnded() error {
	closed := func(p *engine.Entry) bool { return p != nil && errors.Is(p.Err(), failure.ErrClosed) }
	switch {
	case m.ended != nil:
		return m.ended
	case slices.ContainsFunc(m.parts, closed):
		return failure.ErrClosed
	case !m.votes(true).won():
		return failure.ErrLost
	}
	return nil
}

// live returns the parts that are not lost, as votes.
func (m *majority) live() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.votes(true)
}

// deadline returns the time until which a majority of the parts is valid, also if that was lost.
func (m *majority) deadline() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.votes(false).validUntil()
}

// renewed reports whether the leases are renewed, because one of the entries has no fixed lease. The caller
// must hold m.mu.
func (m *majority) renewed() bool {
	return slices.ContainsFunc(m.entries, func(e *entry) bool { return !e.fixed })
}

// setRenewal switches the renewal of all leases on or off, as the entries want it. The caller must hold m.mu.
func (m *majority) setRenewal() {
	on := m.renewed()
	for _, p := range m.parts {
		if p != nil {
			p.Renew(on)
		}
	}
}

// wakeNesting wakes the goroutines that wait to nest. The caller must hold m.mu.
func (m *majority) wakeNesting() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// endIfLost ends the holds if their majority was lost, or if its session is closed. It returns why the
// majority is not held, or nil.
func (m *majority) endIfLost() error {
	m.mu.Lock()
	err := m.whyEnded()
	if err == nil || m.ended != nil {
		m.mu.Unlock()
		return err
	}
	m.ended = err
	token, held, reason := m.token, time.Since(m.begun), m.whyLost()
	if err == failure.ErrLost {
		m.lossReason = reason
	}
	entries := slices.Clone(m.entries)
	m.wakeNesting()
	m.mu.Unlock()
	for _, e := range entries {
		e.cancel(err) // first, because users watch this context
	}
	m.stop()
	report := func() {
		lead := m.q.lead
		if err == failure.ErrClosed {
			m.l.observe(lead.Ctx, session.Event{Kind: session.EventReleased, Token: token, Held: held})
			return
		}
		lead.Warn("lock lost", "lock", m.l.name, "kind", protocol.RedLock, "token", token, "held", held,
			"reason", reason)
		m.l.observe(lead.Ctx, session.Event{Kind: session.EventLost, Token: token, Held: held,
			Err: failure.Lost(reason)})
	}
	if m.q.home.Begin() {
		m.q.home.Go(report)                    // many may be lost at one instant
		m.release(context.Background(), false) // or live parts would still be renewed
		m.q.home.End()
	} else {
		report()
	}
	m.local.passTurn()
	return err
}

// renewalFailed notes that a renewal on one server has failed, for the reason of a loss.
func (m *majority) renewalFailed(i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.renewalErrors == nil {
		m.renewalErrors = make([]renewalError, len(m.q.servers))
	}
	m.renewalErrors[i] = renewalError{time.Now(), err}
}

// warnOfItself logs, once for each hold, that goroutines wait for it for long, because the process may wait
// for itself.
func (m *majority) warnOfItself() {
	m.mu.Lock()
	long := !m.warned && time.Since(m.begun) >= engine.LongWait
	m.warned = m.warned || long
	m.mu.Unlock()
	if long {
		m.q.lead.Warn(engine.WaitsForItself, "lock", m.l.name, "kind", protocol.RedLock)
	}
}

// extend makes the lease at least d, and so confirms the hold, on all servers but one; -1 leaves none out. It
// blocks until a majority has confirmed, all servers have answered, or ctx ends. Requests that are in flight
// continue after that.
func (m *majority) extend(ctx context.Context, except int, d time.Duration) error {
	until := time.Now().Add(protocol.Valid(d))
	m.mu.Lock()
	parts, asked := slices.Clone(m.parts), m.q.tally(refused)
	for i, v := range m.votes(true) {
		if v.kind == granted && i != except {
			asked[i].kind = pending
		}
	}
	m.mu.Unlock()
	p := ask(m.q, asked, func(i int) (none struct{}, _ error) {
		return none, parts[i].Extend(context.WithoutCancel(ctx), d)
	})
	// A part that was extended may be lost before the next one is.
	enough := func() bool { return p.votes.won() && !m.deadline().Before(until) }
	p.await(ctx, enough)
	err := m.endIfLost()
	switch {
	case err != nil:
	case enough():
		return nil
	case ctx.Err() != nil:
		err = failure.OfContext(ctx)
	default:
		err = p.noMajority("answered", granted)
	}
	return failure.Named(m.l.name, err)
}

// release unlocks the parts in the background. If all is set, lost parts are unlocked, too. Their leases keep
// others out until then, because the user of the hold may not know of the loss yet.
func (m *majority) release(ctx context.Context, all bool) *poll[struct{}] {
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	if all {
		clear(m.parts) // or a lost hold would still have their deadline
	}
	m.mu.Unlock()
	asked := m.q.tally(refused)
	for i, p := range parts {
		if p != nil && (all || p.Err() == nil) {
			asked[i].kind = pending
		}
	}
	return ask(m.q, asked, func(i int) (none struct{}, _ error) { return none, parts[i].Unlock(ctx) })
}

// released waits for the answers to a release, no longer than an Unlock with this context.
func (m *majority) released(ctx context.Context, p *poll[struct{}]) error {
	until, cancel := handle.UnlockBound(ctx)
	defer cancel()
	lost := func() bool { return p.votes.blocked(refused) }
	p.await(until, func() bool { return p.votes.won() || lost() })
	var err error
	switch {
	case p.votes.won():
		return nil
	case lost():
		err = failure.Lost(failure.ErrGone)
	case until.Err() != nil:
		err = fmt.Errorf("%w; %v", failure.OfContext(until), p.noMajority("released the lock", granted))
	default:
		err = p.noMajority("released the lock", granted)
	}
	return failure.Named(m.l.name, err)
}
