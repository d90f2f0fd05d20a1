package multilock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/operate"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// grant is locks of a RedLock's servers, of which it needs a majority. Each of these parts renews its lease,
// or loses it, by itself. One hold at a time has a grant: when that is unlocked, the grant may be passed on.
type grant struct {
	// What follows never changes once it has begun.
	l     *RedLock
	q     *quorum
	ctx   context.Context // for parts that are missing: the values of Lock's
	fixed bool            // a lease of its own choice, not renewed
	begun time.Time
	outer *grant          // in which it is nested
	seek  context.Context // ends with the grant: parts that are missing are looked for
	stop  func()          // ends seek, and what goes on of the vote

	mu       sync.Mutex      // guards what follows; mutexes of the parts may be taken under it
	parts    []*engine.Entry // by server; nil where there is none
	token    int64           // of the present hold
	passes   int             // holds before that
	hold     *majority       // the present one; nil before it is entered
	extended bool            // its lease was made longer than the session's
	stays    time.Time       // until when its parts stay taken, also when no hold is left
	over     error           // why it is not held any more
}

// live are the servers on which it is held.
func (g *grant) live() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.liveParts()
}

// liveParts is live, with mu held.
func (g *grant) liveParts() (live []int) {
	for i, p := range g.parts {
		if p != nil && p.Err() == nil {
			live = append(live, i)
		}
	}
	return live
}

// state is why it is not held; nil if it is. mu held.
func (g *grant) state() error {
	if g.over != nil {
		return g.over
	}
	live := 0
	for _, p := range g.parts {
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
	if live < g.q.need {
		return failure.ErrLost
	}
	return nil
}

// check ends a grant that has lost its majority, and says why it is not held.
func (g *grant) check() error {
	g.mu.Lock()
	err := g.state()
	ends, hold := err != nil && g.over == nil, g.hold
	if ends {
		g.over = err
	}
	var reason error
	if ends {
		reason = failure.LossReason(!time.Now().Before(g.deadline()))
	}
	g.mu.Unlock()
	if !ends {
		return err
	}
	if hold != nil { // first, as it is what the user watches
		hold.lose(err, reason)
	}
	g.stop()
	if g.q.home.Begin() {
		g.release(context.Background(), g.live()) // what is not lost would be renewed
		g.q.home.End()
	}
	return err
}

// deadline is when it has no majority any more. mu held.
func (g *grant) deadline() time.Time {
	var all []time.Time
	for _, p := range g.parts {
		if p != nil {
			all = append(all, p.Deadline())
		}
	}
	if len(all) < g.q.need {
		return time.Time{}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all[len(all)-g.q.need]
}

// passOn makes it the next hold's, in memory, if that may have it: the servers go on as before.
func (g *grant) passOn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	lead := g.q.lead
	switch {
	case g.state() != nil, g.fixed, g.extended, time.Now().Before(g.stays), wakeup.Closed(g.q.home.Closing()):
		return false
	case g.passes >= protocol.Block-2, time.Since(g.begun) >= lead.Handover:
		return false
	case time.Until(g.deadline()) < min(lead.Lease, lead.Liveness, protocol.FirstLease)/4:
		return false // it could not be renewed
	}
	g.passes++
	g.token++
	g.hold = nil
	for _, p := range g.parts {
		if p != nil {
			p.Renumber(g.token) // the release says which was the last
		}
	}
	return true
}

// release unlocks some parts.
func (g *grant) release(ctx context.Context, servers []int) <-chan answer[*engine.Entry] {
	g.mu.Lock()
	parts := slices.Clone(g.parts)
	for _, i := range servers {
		g.parts[i] = nil
	}
	g.mu.Unlock()
	return ask(g.q, servers, func(i int) (*engine.Entry, error) {
		if parts[i] == nil { // lost and buried since the caller looked
			return nil, failure.ErrLost
		}
		return parts[i], parts[i].Unlock(ctx)
	})
}

// bury unlocks the parts that were lost. That does not block.
func (g *grant) bury() {
	g.mu.Lock()
	var lost []*engine.Entry
	for i, p := range g.parts {
		if p != nil && p.Err() != nil {
			lost, g.parts[i] = append(lost, p), nil
		}
	}
	g.mu.Unlock()
	for _, p := range lost {
		_ = p.Unlock(context.Background())
	}
}

// lost is called when a part is: its lease is over, its server has forgotten it, or its session is closed.
func (g *grant) lost(i int) {
	over := g.check() != nil
	g.mu.Lock()
	hold, owner := g.hold, ""
	if p := g.parts[i]; p != nil {
		owner = p.OwnerField()
	}
	g.mu.Unlock()
	known := hold == nil || hold.told()
	if over && !known || !over && g.fixed || !g.q.home.Begin() { // a fixed lease goes on in Redis for a moment
		return
	}
	g.q.home.Go(func() {
		g.bury()
		g.fetch(i, 0, owner)
	})
	g.q.home.End()
}

// fetch looks, after a while, for the part that is missing on a server, which has lost it or was not
// reached. Else each restart of a server would leave the grant one fewer, until it has no majority. owner is
// the attempt that the server had, or "": where an operator has freed that, it is not taken back.
func (g *grant) fetch(i int, after time.Duration, owner string) {
	q := g.q
	bounds := wakeup.Bounds{Until: g.seek, Closing: q.home.Closing()}
	if g.fixed && g.outer == nil || bounds.Over() || !q.home.Begin() {
		return
	}
	q.home.Go(func() {
		for try := 0; ; try++ {
			if _, over := bounds.Sleep(after, nil); over {
				return
			}
			if after = wire.Backoff(try, 10*time.Millisecond, q.lead.Lease/15); g.outer.lacks(i) {
				continue // that is first
			}
			if g.fixed && g.outer.ended() {
				return // what it would get is no part of the outer hold
			}
			while, cancel := context.WithTimeout(g.seek, q.lead.Lease/3)
			if owner != "" {
				st, err := operate.Inspect(while, &g.l.parts[i])
				if err == nil && slices.Contains(st.Over, owner) {
					cancel()
					return
				}
				if err == nil {
					owner = ""
				}
			}
			part := &engine.Part{While: while, Lost: func() { g.lost(i) }}
			p, err := g.l.parts[i].Admitted(g.ctx, engine.Exclusive, engine.Config{Part: part}, false)
			cancel()
			if err == nil && g.admit(i, p) {
				return
			}
			if len(g.live()) <= q.need && !bounds.Over() {
				if err == nil || errors.Is(err, rlock.ErrLocked) {
					err = errTaken
				}
				q.warn(q.servers[i], "a RedLock is held by a bare majority", g.l.name, err)
			}
		}
	})
	q.home.End()
}

// has reports whether it is held, on that server by the same grant. g may be nil.
func (g *grant) has(i int, p *engine.Entry) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state() == nil && g.parts[i] != nil && g.parts[i].Joins(p)
}

// ended reports whether it is not held any more.
func (g *grant) ended() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state() != nil
}

// lacks reports whether it is held, and not on a server. g may be nil.
func (g *grant) lacks(i int) bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state() == nil && (g.parts[i] == nil || g.parts[i].Err() != nil)
}

// admit makes what one server has granted part of it, if a majority without that server has been found to
// hold it since. So that majority had it all the time, and no other holder can have come between. And no
// later grant of that server may have a token that is not higher.
func (g *grant) admit(i int, p *engine.Entry) bool {
	yes := 0
	if g.outer.has(i, p) {
		yes = g.q.need // the outer hold counts on it
	} else if err := g.q.servers[i].credible(p.Token()); err != nil {
		g.q.warn(g.q.servers[i], noVote, g.l.name, err)
	} else {
		g.tell(g.seek, i, (*engine.Entry).Confirm, func(err error) bool {
			if err == nil {
				yes++
			}
			return yes >= g.q.need
		})
	}
	g.mu.Lock()
	token := g.token
	g.mu.Unlock()
	if yes >= g.q.need && (p.Token() >= token || p.Raise(g.seek, token) == nil) {
		g.mu.Lock()
		in := g.over == nil && g.parts[i] == nil && p.Err() == nil
		if in {
			g.parts[i] = p
			p.Renumber(g.token) // it may have been passed on meanwhile
			if left := time.Until(g.stays); left > 0 {
				p.Stay(left)
			}
		}
		g.mu.Unlock()
		if in {
			_ = g.check() // it may have been lost meanwhile
			return true
		}
	}
	_ = p.Unlock(context.Background())
	return false
}

// tell sends something to all servers but one. It reads the answers until enough of them are in, or ctx ends.
// What others are asked goes on.
func (g *grant) tell(
	ctx context.Context, but int, what func(*engine.Entry, context.Context) error, enough func(error) bool,
) {
	g.mu.Lock()
	parts := slices.Clone(g.parts)
	servers := slices.DeleteFunc(g.liveParts(), func(i int) bool { return i == but })
	g.mu.Unlock()
	answers := ask(g.q, servers, func(i int) (struct{}, error) {
		return struct{}{}, what(parts[i], context.WithoutCancel(ctx))
	})
	for range servers {
		select {
		case a := <-answers:
			if a.err != nil {
				a.err = g.q.servers[a.i].named(a.err)
			}
			if enough(a.err) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}
