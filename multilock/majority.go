package multilock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// majority is a grant of a RedLock: holds of its servers' locks, of which it needs a majority. Each of these
// parts renews its lease, or is lost, by itself. A round makes it. It ends with its last entry, unless the
// desk passes it on.
type majority struct {
	// What follows never changes once it is held.
	l      *RedLock
	q      *quorum
	d      *desk           // it has the turn there
	values context.Context // for parts that are missing: the values of Lock's
	seek   context.Context // ends with it: parts that are missing are looked for
	stop   func()          // ends seek, and what goes on of the round

	mu        sync.Mutex      // guards what follows, and entries; mutexes of the parts may be taken under it
	token     int64           // 0: it is not held yet, and all of it belongs to its round
	begun     time.Time       // with this token
	parts     []*engine.Entry // by server; nil where there is none
	entries   []*entry        // each nested in the one before; they leave when they are unlocked
	changed   chan struct{}   // closed when another one may nest; nil: no goroutine waits for that
	stays     time.Time       // until when its parts stay taken, also when it is unlocked
	over      error           // why it is not held any more
	own       bool            // a holder has chosen a lease: it is not passed on
	suspected bool            // the log says that its process may wait for itself
}

// become makes it the hold of a call; nil if it was lost, or its session is closed.
func (m *majority) become(v *vote, token int64) *entry {
	e := v.entry(m, token)
	m.mu.Lock()
	m.token, m.begun, m.suspected = token, time.Now(), false // from now on it learns of the ends of its parts
	m.over = nil
	if m.over = m.state(); m.over == nil && call.Closed(m.q.closing) {
		m.over = failure.ErrClosed
	}
	held := m.over == nil
	if held {
		m.entries, m.own = []*entry{e}, e.fixed
	} else {
		m.token = 0
	}
	m.mu.Unlock()
	if !held { // the call has the turn yet
		e.cancel(failure.ErrLost)
		return nil
	}
	m.d.taken.Store(true)
	return e
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

// renewed reports whether the leases are renewed: unless all of its entries have fixed ones. mu held.
func (m *majority) renewed() bool {
	return len(m.entries) == 0 || slices.ContainsFunc(m.entries, func(e *entry) bool { return !e.fixed })
}

// told reports whether all its users know that it is over. mu held.
func (m *majority) told() bool {
	return !slices.ContainsFunc(m.entries, func(e *entry) bool { return e.over == nil })
}

// wake has those look again that wait to nest in it. mu held.
func (m *majority) wake() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// check ends the holds of one that has lost its majority, or whose session is closed. It returns why it is
// not held.
func (m *majority) check() error {
	m.mu.Lock()
	err := m.state()
	if err == nil || m.over != nil {
		m.mu.Unlock()
		return err
	}
	m.over = err
	token, held := m.token, time.Since(m.begun)
	reason := failure.LossReason(!time.Now().Before(m.deadline()))
	entries := slices.Clone(m.entries)
	m.wake()
	m.mu.Unlock()
	for _, e := range entries {
		e.cancel(err) // first, as it is what the user watches
	}
	m.stop()
	open := m.q.home.Begin()
	tell := func() { m.report(token, held, err, reason) }
	if !open {
		tell()
	} else {
		m.q.home.Go(tell)                         // many may be lost at one instant
		m.release(context.Background(), m.live()) // what is not lost would be renewed
		m.q.home.End()
	}
	m.d.next()
	return err
}

// report tells operators and observers of an end without an Unlock.
func (m *majority) report(token int64, held time.Duration, why, reason error) {
	l, lead := m.l, m.q.lead
	if why == failure.ErrClosed {
		l.observe(lead.Ctx, session.Event{Kind: session.EventReleased, Token: token, Held: held})
		return
	}
	lead.Warn("lock lost", "lock", l.name, "token", token, "held", held, "reason", reason)
	l.observe(lead.Ctx, session.Event{Kind: session.EventLost, Token: token, Held: held,
		Err: fmt.Errorf("%w: %w", why, reason)})
}

// ownerField is what that of all parts begins with.
func (m *majority) ownerField() string { return holderOf(m.q.home.ID()) }

// until is its deadline.
func (m *majority) until() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.deadline()
}

// extend makes the lease at least d on all servers but one. It blocks until a majority has done so, and thus
// confirmed the hold, or all have answered, or ctx ends. What others are asked goes on.
func (m *majority) extend(ctx context.Context, but int, d time.Duration) error {
	until := time.Now().Add(protocol.Valid(d))
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	servers := slices.DeleteFunc(m.liveParts(), func(i int) bool { return i == but })
	m.mu.Unlock()
	answers := ask(m.q, servers, func(i int) (struct{}, error) {
		return struct{}{}, parts[i].Extend(context.WithoutCancel(ctx), d)
	})
	yes, no := 0, []error(nil)
	// A part that was extended may be lost before the next one is.
	enough := func() bool { return yes >= m.q.need && !m.until().Before(until) }
	for n := 0; n < len(servers) && !enough() && ctx.Err() == nil; n++ {
		select {
		case a := <-answers:
			switch {
			case a.err == nil:
				yes++
			case errors.Is(a.err, failure.ErrLost): // which is no loss of the whole
				no = append(no, m.q.servers[a.i].named(errMissing))
			default:
				no = append(no, m.q.servers[a.i].named(a.err))
			}
		case <-ctx.Done():
		}
	}
	err := m.check()
	switch {
	case err != nil:
	case enough():
		return nil
	case ctx.Err() != nil:
		err = failure.OfContext(ctx)
	default:
		err = m.q.noMajority(yes, no)
	}
	return failure.Named(m.l.name, err)
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
