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
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// majority is a grant of a RedLock: holds of its servers' locks, of which it needs a majority. Each of these
// parts renews its lease, or is lost, by itself. A round makes it. It ends with its last entry.
type majority struct {
	// What follows never changes once it is held.
	l    *RedLock
	q    *quorum
	d    *desk           // it has the turn there
	seek context.Context // has the values of Lock's, and ends with it: parts that are missing are looked for
	stop func()          // ends seek, and what goes on of the round
	note string          // of the call that it was made for, for parts that are acquired later

	mu         sync.Mutex      // guards what follows, and entries; mutexes of the parts may be taken under it
	token      int64           // set when it becomes a hold; 0 before, while all of it belongs to its round
	begun      time.Time       // when it became a hold
	parts      []*engine.Entry // by server; nil where there is none
	entries    []*entry        // each nested in the one before; they leave when they are unlocked
	changed    chan struct{}   // closed when another one may nest; nil: no goroutine waits for that
	stays      time.Time       // until when its parts stay taken, also when it is unlocked
	unrenewed  []unrenewed     // by server: the last renewal that failed; nil if none did
	over       error           // why it is not held any more
	lossReason error           // nil: it was not lost, or check did not find that
	suspected  bool            // the log says that its process may wait for itself
}

// unrenewed is a renewal of a part that failed.
type unrenewed struct {
	at  time.Time // zero: none has failed
	err error
}

// become makes it the hold of a call; nil if it was lost, or its session is closed.
func (m *majority) become(v *vote, token int64) *entry {
	e := v.entry(m)
	m.mu.Lock()
	if m.over = m.state(); m.over == nil && wire.Closed(m.q.closing) {
		m.over = failure.ErrClosed
	}
	held := m.over == nil
	if held {
		m.token, m.begun = token, time.Now() // from now on, checkPart takes in the ends of parts
		m.entries = []*entry{e}
		m.d.hold.Store(m)
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

// live are the servers on which it is held. mu held.
func (m *majority) live() (live []int) {
	for i, p := range m.parts {
		if p != nil && p.Err() == nil {
			live = append(live, i)
		}
	}
	return live
}

// servers are on how many servers it is held.
func (m *majority) servers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.live())
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

// renewed reports whether the leases are renewed, because one of the entries has no fixed lease. mu held.
func (m *majority) renewed() bool {
	return slices.ContainsFunc(m.entries, func(e *entry) bool { return !e.fixed })
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
	if why := m.whyUnrenewed(); reason == failure.ErrExpired && why != "" {
		reason = fmt.Errorf("%w; the last renewals failed: %s", reason, why)
	}
	if err == failure.ErrLost {
		m.lossReason = reason
	}
	entries := slices.Clone(m.entries)
	m.wake()
	m.mu.Unlock()
	for _, e := range entries {
		e.cancel(err) // first, as it is what the user watches
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
			Err: fmt.Errorf("%w: %w", err, reason)})
	}
	if m.q.home.Begin() {
		m.q.home.Go(report)                    // many may be lost at one instant
		m.release(context.Background(), false) // what is not lost would be renewed
		m.q.home.End()
	} else {
		report()
	}
	m.d.next()
	return err
}

// renewalFailed notes that a renewal on one server has failed, for the reason of a loss.
func (m *majority) renewalFailed(i int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unrenewed == nil {
		m.unrenewed = make([]unrenewed, len(m.q.servers))
	}
	m.unrenewed[i] = unrenewed{time.Now(), err}
}

// whyUnrenewed returns which renewals of lost parts have failed within the last lease, and how; "" if none
// has. mu held.
func (m *majority) whyUnrenewed() string {
	var failed []error
	for i, u := range m.unrenewed {
		live := m.parts[i] != nil && m.parts[i].Err() == nil
		if !live && !u.at.IsZero() && time.Since(u.at) <= m.q.lead.Lease {
			failed = append(failed, m.q.servers[i].named(u.err))
		}
	}
	if len(failed) == 0 {
		return ""
	}
	return failure.Join(failed...).Error()
}

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
	servers := slices.DeleteFunc(m.live(), func(i int) bool { return i == but })
	m.mu.Unlock()
	answers := ask(m.q, servers, func(i int) (none struct{}, _ error) {
		return none, parts[i].Extend(context.WithoutCancel(ctx), d)
	})
	// A part that was extended may be lost before the next one is.
	enough := func(t tally, _ answer[struct{}]) bool { return t.yes >= m.q.need && !m.until().Before(until) }
	t := count(ctx, m.q, answers, enough)
	err := m.check()
	switch {
	case err != nil:
	case enough(t, answer[struct{}]{}):
		return nil
	case ctx.Err() != nil:
		err = failure.OfContext(ctx)
	default:
		err = m.q.noMajority(t.yes, append(t.lost, t.failing...))
	}
	return failure.Named(m.l.name, err)
}

// release unlocks the parts. When it returns, the servers' locks know that. all: also those that are lost.
// Without that, their leases keep others out until the Unlock of a user that may not know of the loss yet.
func (m *majority) release(ctx context.Context, all bool) <-chan answer[struct{}] {
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	if all {
		clear(m.parts) // otherwise a lost hold still tells its deadline by them
	}
	m.mu.Unlock()
	var servers []int
	tell := make([]func(context.Context) error, len(parts))
	for i, p := range parts {
		if p != nil && (all || p.Err() == nil) {
			servers, tell[i] = append(servers, i), p.Leave()
		}
	}
	return ask(m.q, servers, func(i int) (none struct{}, _ error) { return none, tell[i](ctx) })
}

// released is what a majority says of a release. It waits no longer than an Unlock with that context.
func (m *majority) released(ctx context.Context, answers <-chan answer[struct{}]) error {
	q := m.q
	until, cancel := handle.UnlockBound(ctx)
	defer cancel()
	lost := func(t tally) int { return len(q.servers) - cap(answers) + len(t.lost) }
	t := count(until, q, answers, func(t tally, _ answer[struct{}]) bool {
		return t.yes >= q.need || lost(t) > len(q.servers)-q.need
	})
	switch {
	case t.yes >= q.need:
		return nil
	case lost(t) > len(q.servers)-q.need:
		return failure.Named(m.l.name, failure.Lost(failure.ErrGone))
	}
	err := q.noMajority(t.yes+lost(t), t.failing)
	if until.Err() != nil {
		err = fmt.Errorf("%w; %v", failure.OfContext(until), err)
	}
	return failure.Named(m.l.name, err)
}

// locked is the error of a call that it keeps out.
func (m *majority) locked() *failure.LockedError {
	return &failure.LockedError{Name: m.l.name, Holder: m.q.id, About: m.q.home.About(m.note),
		Remaining: max(0, time.Until(m.until())), Hint: failure.SelfHint}
}

// suspect logs, once for each hold, that goroutines wait for it for long: the process may wait for itself.
func (m *majority) suspect() {
	m.mu.Lock()
	long := !m.suspected && time.Since(m.begun) >= engine.LongWait
	m.suspected = m.suspected || long
	m.mu.Unlock()
	if long {
		m.q.lead.Warn(engine.WaitsForItself, "lock", m.l.name, "kind", protocol.RedLock)
	}
}

// acquirePart takes the lock of the i-th server, and waits for it until while ends. It does not add the entry
// to m.parts.
func (m *majority) acquirePart(
	ctx, while context.Context, i int, cfg engine.Config, try bool,
) (*engine.Entry, error) {
	cfg.Part = &engine.Part{While: while, Lost: func() { m.checkPart(i) }}
	return m.l.parts[i].Admitted(ctx, engine.Exclusive, cfg, try)
}

// checkPart removes the part of the i-th server if it was lost, and looks for it again (reacquirePart). It is
// called when the part may be lost, because its lease has ended, its server has forgotten it, or its session
// is closed. If the majority is lost with the part, checkPart ends the holds.
func (m *majority) checkPart(i int) {
	m.mu.Lock()
	voting := m.token == 0 // the round looks
	m.mu.Unlock()
	if voting {
		return
	}
	over := m.check() != nil
	m.mu.Lock()
	p := m.parts[i]
	// A lost hold keeps its parts until its Unlock, which releases them. A fixed lease lasts a little longer
	// in Redis than here, and is not fetched again.
	keeps := over || !m.renewed()
	gone := p != nil && p.Err() != nil && !keeps
	if gone {
		m.parts[i] = nil
	}
	m.mu.Unlock()
	if !gone || !m.q.home.Begin() {
		return
	}
	m.q.home.Go(func() {
		_ = p.Unlock(context.Background())
		m.reacquirePart(i, 0, p.OwnerField())
	})
	m.q.home.End()
}

// reacquirePart gets the missing part of the i-th server, in the background and after a pause. The server has
// lost the part, or could not be reached. Without reacquirePart, each restart of a server would take a part
// from the hold, until the hold has no majority. owner is the owner field of the lost part, or "" if there
// was none: a part that an operator has freed is not taken back. The caller must be counted in the quorum's
// work.
func (m *majority) reacquirePart(i int, after time.Duration, owner string) {
	q := m.q
	bounds := call.Bounds{Until: m.seek, Closing: q.closing}
	if bounds.Over() {
		return
	}
	q.home.Go(func() {
		for try := 0; ; try++ {
			if _, over := bounds.Sleep(after, nil); over {
				return
			}
			after = wire.Backoff(try, 10*time.Millisecond, q.lead.Lease/15)
			m.mu.Lock()
			renewed := m.renewed()
			m.mu.Unlock()
			if !renewed {
				return
			}
			while, cancel := context.WithTimeout(m.seek, q.lead.Lease/3)
			if owner != "" {
				st, err := m.l.parts[i].Inspect(while)
				if err == nil && slices.Contains(st.Over, owner) {
					cancel()
					return
				}
				if err == nil {
					owner = ""
				}
			}
			cfg := engine.Config{Note: m.note}
			p, err := m.acquirePart(context.WithoutCancel(m.seek), while, i, cfg, false)
			cancel()
			if err == nil && m.addPart(i, p) {
				return
			}
			if m.servers() <= q.need && !bounds.Over() {
				if err == nil || errors.Is(err, rlock.ErrLocked) {
					err = errTaken
				}
				q.warn(q.servers[i], "a RedLock is held by a bare majority", m.l.name, err)
			}
		}
	})
}

// addPart makes p, which the i-th server has granted, a part of the hold, and reports whether it did.
// Otherwise it unlocks p. Before that, a majority without this server must confirm the hold. If it does, that
// majority had the hold all the time, so no other holder can have come between. And the server must have
// stored that it grants only tokens above the token of the hold.
func (m *majority) addPart(i int, p *engine.Entry) (in bool) {
	credible := m.q.credible(m.q.servers[i], m.l.name, p.Token()) == nil
	confirmed := credible && m.extend(m.seek, i, 0) == nil
	if confirmed && (p.Token() >= m.token || raise(m.seek, p, m.token) == nil) {
		m.mu.Lock()
		if in = m.over == nil && m.parts[i] == nil && p.Err() == nil; in {
			m.parts[i] = p
			p.Renew(m.renewed())
			if left := time.Until(m.stays); left > 0 {
				p.Stay(left)
			}
		}
		m.mu.Unlock()
	}
	if in {
		m.checkPart(i) // it may have been meanwhile
	} else {
		_ = p.Unlock(context.Background())
	}
	return in
}
