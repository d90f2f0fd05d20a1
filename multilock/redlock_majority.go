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

// A majority is the hold of a RedLock in this process. Its parts are holds of the locks on the servers. Each
// part renews its own lease, and can be lost while the other parts stay held. A round makes the majority. The
// call that holds the lock has an entry, and so has each call that nests in this hold. A majority ends when
// its last entry is unlocked, when the parts that are not lost are no majority of the servers, or when the
// quorum ends.
type majority struct {
	// The following never change once the majority is held.
	l     *RedLock
	q     *quorum
	local *localQueue     // queue of the goroutines of this process; the hold has its turn (see passTurn)
	ctx   context.Context // context of the parts, with the values of Lock's context; ends with the majority
	stop  func()          // ends ctx, and so the waits for parts
	note  string          // note of the call that made the majority, for parts that are acquired later

	announced chan struct{} // closed when EventAcquired was reported; the event of the end comes after that

	// mu guards the following, and entry.ended. The mutex of a part may be locked while mu is held.
	mu            sync.Mutex
	token         int64           // 0 while the majority still belongs to its round (see become)
	begun         time.Time       // when the majority became a hold
	parts         []*engine.Entry // by server; nil where there is no part
	entries       []*entry        // entries that are not unlocked; each is nested in the entry before it
	changed       chan struct{}   // closed when entries change; nil if no goroutine waits for that
	takenUntil    time.Time       // time until which HoldAtLeast keeps parts taken after Unlock; zero: none
	renewalErrors []renewalError  // by server; nil if no renewal has failed
	ended         error           // why the majority has ended; nil while it is held
	lossReason    error           // why the majority was lost; nil until endIfLost finds a loss
	warned        bool            // warnSelfWait has logged its warning
}

// A renewalError is the last failed renewal of a part.
type renewalError struct {
	at  time.Time // when the renewal failed; zero if no renewal has failed
	err error
}

// become makes the parts the hold of a call, and returns the entry of this call. It returns nil if the
// majority was lost meanwhile, or if the quorum has ended.
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
		m.local.outage.Store(nil)
	}
	m.mu.Unlock()
	if !held { // no passTurn, because no hold has begun, and waitForTurn passes the turn on
		e.cancel(failure.ErrLost)
		return nil
	}
	m.local.seen.CompareAndSwap(nil, unknownHolder)
	return e
}

// votes returns the parts as votes. If live is true, lost parts do not count. A part is lost at its local
// deadline at the latest. On the server, the lease of the part ends later. So while the part counts here, no
// other holder can have got it. The caller must hold m.mu.
func (m *majority) votes(live bool) tally {
	t := m.q.tally(refused)
	for i, p := range m.parts {
		if p != nil && !(live && p.Err() != nil) {
			t[i] = vote{kind: granted, validUntil: p.Deadline()}
		}
	}
	return t
}

// whyEnded returns why the majority is not held, or nil if it is held. The caller must hold m.mu.
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

// deadline returns the time until which the parts of a majority of the servers are valid. Lost parts count,
// too, because otherwise a lost hold would have no deadline.
func (m *majority) deadline() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.votes(false).validUntil()
}

// renewed reports whether the leases of the parts are renewed. They are renewed if at least one entry has no
// fixed lease. The caller must hold m.mu.
func (m *majority) renewed() bool {
	return slices.ContainsFunc(m.entries, func(e *entry) bool { return !e.fixed })
}

// setRenewal switches the renewal of all parts on or off, as renewed reports. The caller must hold m.mu.
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

// endIfLost ends all holds of the majority if the majority was lost, or if the quorum ends. It returns why
// the majority is not held, or nil if it is held.
func (m *majority) endIfLost() error {
	m.mu.Lock()
	err := m.whyEnded()
	if err == nil || m.ended != nil {
		m.mu.Unlock()
		return err
	}
	m.ended = err
	held, reason := time.Since(m.begun), m.whyLost()
	if err == failure.ErrLost {
		m.lossReason = reason
		for _, p := range m.parts {
			if p != nil {
				p.StayNoLonger() // HoldAtLeast has no effect if the lock was lost before its Unlock
			}
		}
	}
	entries := slices.Clone(m.entries)
	m.wakeNesting()
	m.mu.Unlock()
	for _, e := range entries {
		e.cancel(err) // first, because users watch this context
	}
	m.stop()
	report := func() { // in the background, because it waits, and calls the user's observer
		<-m.announced
		ctx := m.q.lead.Ctx
		if err == failure.ErrLost {
			m.reportLost(ctx, held, reason)
			return
		}
		m.l.observe(ctx, session.Event{Kind: session.EventReleased, Token: m.token, Held: held})
	}
	if m.q.home.Begin() {
		m.q.home.Go(report)
		m.release(context.Background(), false) // otherwise live parts would still be renewed
		m.q.home.End()
	} else {
		go report() // not by home.Go, because that session is closing
	}
	m.local.passTurn()
	return err
}

// reportLost logs that the majority was lost, and reports it to the observer. The caller must not hold m.mu.
func (m *majority) reportLost(ctx context.Context, held time.Duration, reason error) {
	m.q.lead.Warn("lock lost", "lock", m.l.name, "kind", protocol.RedLock, "token", m.token, "held", held,
		"reason", reason)
	m.l.observe(ctx, session.Event{Kind: session.EventLost, Token: m.token, Held: held,
		Err: failure.Lost(reason)})
}

// renewalFailed records that a renewal on the i-th server has failed. If the majority is lost, whyLost names
// this error.
func (m *majority) renewalFailed(i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.renewalErrors == nil {
		m.renewalErrors = make([]renewalError, len(m.q.servers))
	}
	m.renewalErrors[i] = renewalError{time.Now(), err}
}

// warnSelfWait logs that goroutines have waited for a long time for a lock that their own process holds. The
// process may be waiting for itself. warnSelfWait logs this once for each hold.
func (m *majority) warnSelfWait() {
	m.mu.Lock()
	long := !m.warned && time.Since(m.begun) >= engine.LongWait
	m.warned = m.warned || long
	m.mu.Unlock()
	if long {
		m.q.lead.Warn(engine.WaitsForItself, "lock", m.l.name, "kind", protocol.RedLock)
	}
}

// extend makes the leases of the parts last for at least d from now, by a request to each server with a live
// part. A server that carries out this request confirms that it has the hold. A server that has forgotten the
// hold refuses, because the request has the owner field and the token of the part. extend leaves out the
// server with the index except; -1 means none. It blocks until a majority of all servers has confirmed the
// hold, until all servers with a live part have answered, or until ctx ends. The other requests then continue
// in the background.
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
	p := startPoll(m.q, asked, func(i int) (none struct{}, _ error) {
		return none, parts[i].Extend(context.WithoutCancel(ctx), d)
	})
	// The votes alone are not enough, because a part may be lost after it was extended.
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

// release unlocks the parts in the background, and returns the poll of the replies. If all is true, lost
// parts are unlocked, too. If all is false, lost parts are left out, because the user of the hold may not
// know of the loss yet, and the rest of their leases keeps others out.
func (m *majority) release(ctx context.Context, all bool) *poll[struct{}] {
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	if all {
		clear(m.parts) // otherwise Deadline of a lost hold would still count these parts
	}
	m.mu.Unlock()
	asked := m.q.tally(refused)
	for i, p := range parts {
		if p != nil && (all || p.Err() == nil) {
			asked[i].kind = pending
		}
	}
	return startPoll(m.q, asked, func(i int) (none struct{}, _ error) { return none, parts[i].Unlock(ctx) })
}

// awaitRelease waits until a majority has released the lock, or until so many servers have lost it that no
// majority is left. It does not wait longer than an Unlock with this context may wait. It returns the error
// of the release, or nil. p is the result of release.
func (m *majority) awaitRelease(ctx context.Context, p *poll[struct{}]) error {
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
