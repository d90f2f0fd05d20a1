package multilock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/operate"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// lost is called when a part is: its lease is over, its server has forgotten it, or its session is closed.
func (m *majority) lost(i int) {
	over := m.check() != nil
	m.mu.Lock()
	owner := ""
	if p := m.parts[i]; p != nil {
		owner = p.OwnerField()
	}
	told := m.unlocked || !m.entered
	m.mu.Unlock()
	if over && !told || !over && m.fixed || !m.q.home.Begin() { // a fixed lease goes on in Redis for a moment
		return
	}
	m.q.home.Go(func() {
		m.bury()
		m.fetch(i, 0, owner)
	})
	m.q.home.End()
}

// fetch looks, after a while, for the part that is missing on a server, which has lost it or was not
// reached. Else each restart of a server would leave the hold one fewer, until it has no majority. owner is
// the attempt that the server had, or "": where an operator has freed that, it is not taken back.
func (m *majority) fetch(i int, after time.Duration, owner string) {
	q := m.q
	bounds := wakeup.Bounds{Until: m.seek, Closing: q.closing}
	if m.fixed && m.outer == nil || bounds.Over() || !q.home.Begin() {
		return
	}
	q.home.Go(func() {
		for try := 0; ; try++ {
			if _, over := bounds.Sleep(after, nil); over {
				return
			}
			if after = wire.Backoff(try, 10*time.Millisecond, q.lead.Lease/15); m.outer.lacks(i) {
				continue // that is first
			}
			if m.fixed && m.outer.Err() != nil {
				return // what it would get is no part of the outer hold
			}
			while, cancel := context.WithTimeout(m.seek, q.lead.Lease/3)
			if owner != "" {
				st, err := operate.Inspect(while, &m.l.parts[i])
				if err == nil && slices.Contains(st.Over, owner) {
					cancel()
					return
				}
				if err == nil {
					owner = ""
				}
			}
			part := &engine.Part{While: while, Lost: func() { m.lost(i) }}
			p, err := m.l.parts[i].Admitted(m.values, engine.Exclusive, engine.Config{Part: part}, false)
			cancel()
			if err == nil && m.admit(i, p) {
				return
			}
			if len(m.live()) <= q.need && !bounds.Over() {
				if err == nil || errors.Is(err, rlock.ErrLocked) {
					err = errTaken
				}
				q.warn(q.servers[i], "a RedLock is held by a bare majority", m.l.name, err)
			}
		}
	})
	q.home.End()
}

// lacks reports whether it is held, and not on a server. m may be nil.
func (m *majority) lacks(i int) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state() == nil && (m.parts[i] == nil || m.parts[i].Err() != nil)
}

// has reports whether it is held, on that server by the same grant. m may be nil.
func (m *majority) has(i int, p *engine.Entry) bool {
	if m == nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state() == nil && m.parts[i] != nil && m.parts[i].Joins(p)
}

// admit makes what one server has granted part of it, if a majority without that server has been found to
// hold it since. So that majority had it all the time, and no other holder can have come between. And no
// later grant of that server may have a token that is not higher.
func (m *majority) admit(i int, p *engine.Entry) bool {
	yes := 0
	if m.outer.has(i, p) {
		yes = m.q.need // the outer hold counts on it
	} else if err := m.q.servers[i].credible(p.Token()); err != nil {
		m.q.warn(m.q.servers[i], noVote, m.l.name, err)
	} else {
		m.tell(m.seek, i, (*engine.Entry).Confirm, func(err error) bool {
			if err == nil {
				yes++
			}
			return yes >= m.q.need
		})
	}
	if yes >= m.q.need && (p.Token() >= m.token || p.Raise(m.seek, m.token) == nil) {
		m.mu.Lock()
		in := m.over == nil && m.parts[i] == nil && p.Err() == nil
		if in {
			m.parts[i] = p
			if left := time.Until(m.stays); left > 0 {
				p.Stay(left)
			}
		}
		m.mu.Unlock()
		if in {
			_ = m.check() // it may have been lost meanwhile
			return true
		}
	}
	_ = p.Unlock(context.Background())
	return false
}

// tell sends something to all servers but one. It reads the answers until enough of them are in, or ctx ends.
// What others are asked goes on.
func (m *majority) tell(
	ctx context.Context, but int, what func(*engine.Entry, context.Context) error, enough func(error) bool,
) {
	m.mu.Lock()
	parts := slices.Clone(m.parts)
	servers := slices.DeleteFunc(m.liveParts(), func(i int) bool { return i == but })
	m.mu.Unlock()
	answers := ask(m.q, servers, func(i int) (struct{}, error) {
		return struct{}{}, what(parts[i], context.WithoutCancel(ctx))
	})
	for range servers {
		select {
		case a := <-answers:
			if a.err != nil {
				a.err = m.q.servers[a.i].named(a.err)
			}
			if enough(a.err) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
