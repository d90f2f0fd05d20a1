package multilock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/operate"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// lost is called when a part may be: its lease is over, its server has forgotten it, or its session is
// closed.
func (m *majority) lost(i int) {
	m.mu.Lock()
	voting := m.token == 0 // the round looks
	m.mu.Unlock()
	if voting {
		return
	}
	over := m.check() != nil
	m.mu.Lock()
	p := m.parts[i]
	is := p != nil && p.Err() != nil
	stays := over && !m.told() || !over && !m.renewed() // a fixed lease goes on in Redis for a moment
	if is && !stays {
		m.parts[i] = nil
	}
	m.mu.Unlock()
	if !is || stays || !m.q.home.Begin() {
		return
	}
	m.q.home.Go(func() {
		_ = p.Unlock(context.Background())
		m.fetch(i, 0, p.OwnerField())
	})
	m.q.home.End()
}

// fetch looks, after a while, for the part that is missing on a server, which has lost it or was not
// reached. Else each restart of a server would leave the hold one fewer, until it has no majority. owner is
// the attempt that the server had, or "": where an operator has freed that, it is not taken back.
func (m *majority) fetch(i int, after time.Duration, owner string) {
	q := m.q
	bounds := call.Bounds{Until: m.seek, Closing: q.closing}
	if bounds.Over() || !q.home.Begin() {
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
				st, err := operate.Inspect(while, &m.l.parts[i])
				if err == nil && slices.Contains(st.Over, owner) {
					cancel()
					return
				}
				if err == nil {
					owner = ""
				}
			}
			cfg := engine.Config{Part: m.part(i, while)}
			p, err := m.l.parts[i].Admitted(m.values, engine.Exclusive, cfg, false)
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

// admit makes what one server has granted part of it, if a majority without that server has been found to
// hold it since. So that majority had it all the time, and no other holder can have come between. And no
// later grant of that server may have a token that is not higher.
func (m *majority) admit(i int, p *engine.Entry) bool {
	confirmed := false
	if err := m.q.servers[i].credible(p.Token()); err != nil {
		m.q.warn(m.q.servers[i], noVote, m.l.name, err)
	} else {
		confirmed = m.extend(m.seek, i, 0) == nil
	}
	m.mu.Lock()
	token := m.token
	m.mu.Unlock()
	if confirmed && (p.Token() >= token || p.Raise(m.seek, token) == nil) {
		m.mu.Lock()
		in := m.over == nil && m.parts[i] == nil && p.Err() == nil && max(p.Token(), token) >= m.token
		if in {
			m.parts[i] = p
			p.Renew(m.renewed())
			if left := time.Until(m.stays); left > 0 {
				p.Stay(left)
			}
		}
		m.mu.Unlock()
		if in {
			m.lost(i) // it may have been meanwhile
			return true
		}
	}
	_ = p.Unlock(context.Background())
	return false
}
