package multilock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// A hold outlives a rolling restart of its servers, because a majority gets parts back that it has lost:
//
//	a part ends --checkPart--> rejoin waits in the queue of its server --addPart--> the part counts again
//
// The server may have forgotten everything. So a part counts only after a majority without this server has
// confirmed, later than the grant, that it has the hold. Then that majority had the hold all the time, and no
// other holder can have come between.

// acquirePart takes the lock of the i-th server. The wait ends with the majority, and within the bound that
// the options set. The caller adds the entry to m.parts. When the entry's context ends, the part may be lost.
func (m *majority) acquirePart(i int, cfg engine.Config, try bool) (*engine.Entry, error) {
	p, err := m.l.parts[i].AcquireEntry(m.ctx, engine.Exclusive, cfg, try)
	if err != nil {
		return nil, m.l.refusal(i, err)
	}
	if err := m.l.credible(i, p.Token()); err != nil {
		m.q.giveBack(p)
		return nil, err
	}
	context.AfterFunc(p.Context(), func() { m.checkPart(i) })
	return p, nil
}

// checkPart is called when the part of the i-th server may be lost, because its lease has ended, its server
// has forgotten it, or its session is closed. If the majority is lost with the part, checkPart ends the
// holds. Otherwise it removes a lost part, and gets it back in the background.
func (m *majority) checkPart(i int) {
	m.mu.Lock()
	inRound := m.token == 0 // which looks for lost parts at its end
	m.mu.Unlock()
	if inRound {
		return
	}
	ended := m.endIfLost() != nil
	m.mu.Lock()
	p := m.parts[i]
	// A lost hold keeps its parts until its Unlock, which releases them. A part with a fixed lease is not
	// taken again. It lasts a little longer in Redis than here.
	lost := p != nil && p.Err() != nil && !ended && m.renewed()
	if lost {
		m.parts[i] = nil
	}
	m.mu.Unlock()
	if !lost || !m.q.home.Begin() {
		return
	}
	m.q.home.Go(func() {
		_ = p.Unlock(context.Background())
		m.rejoin(i, 0, p.OwnerField())
	})
	m.q.home.End()
}

// rejoin gets the missing part of the i-th server, in the background and after a pause. It waits in the queue
// of the server until the part has joined, or the hold ends. Without rejoin, each restart of a server would
// take a part from the hold, until the hold has no majority. owner is the owner field of the lost part, or ""
// if there was none. A part that an operator has freed is not taken again. The caller must be counted in the
// quorum's work.
func (m *majority) rejoin(i int, after time.Duration, owner string) {
	q := m.q
	bounds := call.Bounds{Until: m.ctx, Closing: q.closing}
	if bounds.Over() {
		return
	}
	q.home.Go(func() {
		for try := 0; ; try++ {
			if _, ended := bounds.Sleep(after, nil); ended {
				return
			}
			after = wire.Backoff(try, 10*time.Millisecond, q.lead.Lease/15)
			m.mu.Lock()
			renewed := m.renewed()
			m.mu.Unlock()
			if !renewed {
				return
			}
			if owner != "" {
				until, cancel := context.WithTimeout(m.ctx, q.lead.Lease/3)
				st, err := m.l.parts[i].Inspect(until)
				cancel()
				if err == nil && slices.Contains(st.Over, owner) {
					return
				}
				if err == nil {
					owner = ""
				}
			}
			cfg := engine.Config{Bounded: true, Wait: q.lead.Lease / 3, Note: m.note}
			p, err := m.acquirePart(i, cfg, false)
			if err == nil && m.addPart(i, p) {
				return
			}
			if m.live().bare() && !bounds.Over() {
				if err == nil || errors.Is(err, rlock.ErrLocked) {
					err = errTaken
				}
				q.warn(q.servers[i], "a RedLock is held by a bare majority", m.l.name, err)
			}
		}
	})
}

// addPart makes p, which the i-th server has granted, a part of the hold, and reports whether it did.
// Otherwise it unlocks p. A majority without this server must confirm the hold first. And the server must
// have stored that it grants only tokens above the token of the hold.
func (m *majority) addPart(i int, p *engine.Entry) (added bool) {
	confirmed := m.extend(m.ctx, i, 0) == nil
	if confirmed && (p.Token() >= m.token || store(m.ctx, p, m.token) == nil) {
		m.mu.Lock()
		if added = m.ended == nil && m.parts[i] == nil && p.Err() == nil; added {
			m.parts[i] = p
			p.Renew(m.renewed())
			if left := time.Until(m.takenUntil); left > 0 {
				p.Stay(left)
			}
		}
		m.mu.Unlock()
	}
	if added {
		m.checkPart(i) // the part may be lost by now
	} else {
		_ = p.Unlock(context.Background())
	}
	return added
}
