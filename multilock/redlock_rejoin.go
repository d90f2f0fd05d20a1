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

// A hold outlives a rolling restart of its servers, because the majority acquires lost parts again:
//
//	a part ends --checkPart--> rejoin waits in the queue of its server --addPart--> the part counts again
//
// The restarted server may have forgotten everything, so its grant alone proves nothing. The part counts only
// after a majority of all servers has confirmed the hold. The requests for this confirmation are sent after
// the grant. The restarted server gets no such request, so if there are three servers, both others must
// confirm. A server that has forgotten the hold refuses (see extend). So each server that confirms has kept
// its part since that part began to count. If some of these parts have joined late, each of them was
// confirmed in the same way when it joined. So at all times since the hold began, a majority has had the
// hold, and no other holder can have come between.
//
// Another waiter may get the lock on a restarted server before this process. That waiter then has only a
// minority, and releases the lock after about the server timeout (see round). Then the server hands the lock
// over to this process, which waits in its queue.
//
// A hold outlives the restarts only if each part has joined again before the next restart takes a part that
// the majority needs. Otherwise there can be two holders, until the renewals of the first holder show that it
// has lost its majority. There can also be two holders if a server forgets a part on which a bare majority
// depends, even while the round that acquires the parts is still running. A hold with a fixed lease does not
// acquire its lost parts again.

// acquirePart acquires the lock on the i-th server. The wait ends when the majority ends, or after the time
// that the options allow. The caller must add the returned entry to m.parts. When the context of this entry
// ends, the part may be lost, so checkPart is called then.
func (m *majority) acquirePart(i int, cfg engine.Config, try bool) (*engine.Entry, error) {
	p, err := m.l.parts[i].AcquireEntry(m.ctx, engine.Exclusive, cfg, try)
	if err != nil {
		return nil, m.l.refusal(i, err)
	}
	if err := m.l.checkToken(i, p.Token()); err != nil {
		m.q.unlockInBackground(p)
		return nil, err
	}
	context.AfterFunc(p.Context(), func() { m.checkPart(i) })
	return p, nil
}

// checkPart is called when the part of the i-th server may be lost, because its lease has ended, its server
// has forgotten it, or its session is closed. If the loss of the part is the loss of the majority, checkPart
// ends the holds. If the majority is still held, and its leases are renewed, checkPart removes the lost part,
// and acquires it again in the background.
func (m *majority) checkPart(i int) {
	m.mu.Lock()
	inRound := m.token == 0 // the round looks for lost parts at its end
	m.mu.Unlock()
	if inRound {
		return
	}
	ended := m.endIfLost() != nil
	m.mu.Lock()
	p := m.parts[i]
	// If the hold is lost, its lost parts stay in m.parts until Unlock releases them. A part with a fixed
	// lease also stays, because it is not acquired again, and its lease lasts a little longer in Redis than
	// here.
	lost := p != nil && p.Err() != nil && !ended && m.renewed()
	if lost {
		m.parts[i] = nil
	}
	m.mu.Unlock()
	if !lost || !m.q.home.Begin() {
		return
	}
	m.rejoin(i, 0, p)
	m.q.home.End()
}

// rejoin acquires the missing part of the i-th server, in the background and after a pause. It waits in the
// queue of the server until the part has joined the hold, the hold ends, or its leases are not renewed any
// more. Without rejoin, each restart of a server would take a part from the hold, until the hold has no
// majority. lost is the lost part, or nil if there was no part. rejoin first sends requests until the server
// says whether an operator has freed the lost part. If so, rejoin does not acquire the part again. rejoin
// unlocks the lost part after this answer, or when it ends without an answer. It does not do so earlier,
// because a release may leave the same tombstone on the server as a forced unlock. The caller must be counted
// in q.home.
func (m *majority) rejoin(i int, pause time.Duration, lost *engine.Entry) {
	q := m.q
	bounds := call.Bounds{Until: m.ctx, Closing: q.closing}
	q.home.Go(func() {
		defer func() { q.unlockInBackground(lost) }()
		for try := 0; !bounds.Over(); try++ {
			if _, ended := bounds.Sleep(pause, nil); ended {
				return
			}
			pause = wire.Backoff(try, 10*time.Millisecond, q.lead.Lease/15)
			m.mu.Lock()
			renewed := m.renewed()
			m.mu.Unlock()
			if !renewed {
				return
			}
			freed, err := m.wasFreed(i, lost)
			if freed {
				return
			}
			if err == nil {
				q.unlockInBackground(lost)
				lost = nil // the part was not freed, and this answer does not change
				cfg := engine.Config{Bounded: true, Wait: q.lead.Lease / 3, Note: m.note}
				var p *engine.Entry
				if p, err = m.acquirePart(i, cfg, false); err == nil && m.addPart(i, p) {
					return
				}
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

// wasFreed reports whether an operator has freed the lost part of the i-th server. If lost is nil, it returns
// false without a request.
func (m *majority) wasFreed(i int, lost *engine.Entry) (bool, error) {
	if lost == nil {
		return false, nil
	}
	until, cancel := context.WithTimeout(m.ctx, m.q.lead.Lease/3)
	defer cancel()
	st, err := m.l.parts[i].Inspect(until)
	return slices.Contains(st.Over, lost.OwnerField()), err
}

// addPart makes p, a grant of the i-th server, a part of the hold. Two conditions
// must hold. First, a majority without this server confirms the hold. Second, the server has stored the token
// of the hold, so that it grants only higher tokens later. addPart reports whether p is now a part. If not,
// it unlocks p.
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
		m.checkPart(i) // the part may have been lost before it was added
	} else {
		_ = p.Unlock(context.Background())
	}
	return added
}
