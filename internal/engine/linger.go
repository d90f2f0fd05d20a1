package engine

import (
	"slices"
	"time"
)

// A session may keep a grant that no goroutine has (rlock.WithLinger), as file systems leave a lock to the
// client that used it last. Then the next goroutine of the session has it in memory. Redis says so with the
// grant, and notes it there, unless another session was refused lately. The script that refuses one next
// removes the note, and tells the session that keeps the grant. That releases it at once, or with the last
// Unlock. If the message is lost, it does so when the time of the grant is over.

// lingers: the session asks to keep grants, unless they have a lease that one goroutine chose for itself.
func (p *pool) lingers(fixed time.Duration) bool {
	return fixed == 0 && p.s.Linger > 0 && p.kind.Lingers
}

// A grant that the session may keep is a recipient.

func (g *Grant) Key() string { return g.p.keys.LockKey() }

// Told is called without words if another session was refused, or may have been.
func (g *Grant) Told(words []string) {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	if len(words) == 0 {
		g.wanted()
	}
}

// wanted ends that the session may keep it. The caller must be counted in the session's work. mu held.
func (g *Grant) wanted() {
	g.endLinger()
	if g.held() && g.entries == 0 {
		g.releaseIdle()
	}
}

// endLinger forgets that the session may keep it. mu held.
func (g *Grant) endLinger() {
	if g.lingers {
		g.lingers = false
		g.p.all.inbox.remove(g.owner.(string))
	}
	if g.lapse != nil {
		g.lapse.Stop()
		g.lapse = nil
	}
}

// span is for how long it is passed on, or joined, in memory. mu held.
func (g *Grant) span() time.Duration {
	s := g.p.s
	if g.lingers {
		return max(s.Handover, s.Linger)
	}
	return s.Handover
}

// idle leaves it to the next goroutine, until its time is over. mu held.
func (g *Grant) idle() {
	if g.lapse == nil {
		g.lapse = time.AfterFunc(g.span()-(g.p.s.Age()-g.since), g.lapsed)
	}
}

// lapsed releases it if it is idle.
func (g *Grant) lapsed() {
	if !g.p.s.Begin() {
		return // Shutdown ends it
	}
	defer g.p.s.End()
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	over := g.lapse == nil // or wanted meanwhile
	g.lapse = nil          // if it is in use, its last Unlock looks
	if !over && g.entries == 0 {
		g.releaseIdle()
	}
}

// idle is a grant of what it wants that no goroutine has, with an entry for this one; nil if there is none.
// Then those of no use to it may be in its way, and are released. mu held.
func (a *acquisition) idle() *Grant {
	if !a.p.lingers(0) {
		return nil
	}
	for _, g := range a.p.grants {
		if g.entries == 0 && g.l.want == a.want && a.cfg.Lease == 0 && g.passable() {
			g.entries++
			g.pass()
			return g
		}
	}
	for _, g := range slices.Clone(a.p.grants) { // a release takes one out
		if g.entries == 0 {
			g.releaseIdle()
		}
	}
	return nil
}
