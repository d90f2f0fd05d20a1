package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// pool is what a session knows of one name.
type pool struct {
	s    *session.Session
	kind *Kind
	keys *protocol.Keys
	all  *pools
	uses int // acquisitions, attempts and grants; guarded by pools.mu

	mu        sync.Mutex        // guards the following, and what lanes, attempts, grants and entries say
	lanes     []*lane           // the latest last
	grants    []*Grant          // that are held
	seen      *failure.Sighting // of a holder
	attempts  []*attempt        // if its kind is Alone: those that have not ended
	released  chan struct{}     // closed when one of these has ended; nil: no goroutine waits for that
	suspicion *time.Timer       // looks whether the session waits for itself; nil: no goroutine has waited
	asking    *attempt          // of a fair kind: its first request is under way; nil: none of this pool is
	releases  int32             // under way
	rivals    bool              // other sessions want the lock, as far as is known
	one       lane              // the first
}

// poolsKey finds the pools in a session.
type poolsKey struct{}

// pools are those of a session, which they are a part of.
type pools struct {
	s     *session.Session
	inbox *inbox

	mu   sync.Mutex // guards what follows, and the uses of pools; a leaf
	pool map[string]*pool
}

func newPools(s *session.Session) *pools {
	return &pools{s: s, inbox: newInbox(s), pool: map[string]*pool{}}
}

// use finds or makes a pool, which is kept until drop.
func (ps *pools) use(kind *Kind, keys *protocol.Keys) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.pool[keys.LockKey()]
	if p == nil {
		all := &struct { // in one allocation: there are very many
			pool
			lanes  [1]*lane
			grants [1]*Grant
		}{pool: pool{s: ps.s, kind: kind, keys: keys, all: ps}}
		p = &all.pool
		p.lanes, p.grants = all.lanes[:0], all.grants[:0]
		ps.pool[keys.LockKey()] = p
	}
	p.uses++
	return p
}

// retain is use by a caller that keeps the pool already.
func (p *pool) retain() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.uses++
}

func (p *pool) drop() {
	p.all.mu.Lock()
	// A lost hold's Unlock uses its pool again, when the name may have another one.
	p.uses--
	unused := p.uses == 0 && p.all.pool[p.keys.LockKey()] == p
	if unused {
		delete(p.all.pool, p.keys.LockKey())
	}
	p.all.mu.Unlock()
	if unused {
		p.mu.Lock() // the timer may go off
		if p.suspicion != nil {
			p.suspicion.Stop()
		}
		p.mu.Unlock()
	}
}

// Shutdown gives back all that is held.
func (ps *pools) Shutdown(ctx context.Context) error {
	ps.mu.Lock()
	var all []*pool
	for _, p := range ps.pool {
		p.uses++ // end drops the uses of the grants
		all = append(all, p)
	}
	ps.mu.Unlock()
	var errs []error
	var mu sync.Mutex // guards errs
	var wg sync.WaitGroup
	limit := make(chan struct{}, 100) // requests at once: where there are so many, they share pipelines
	for _, p := range all {
		p.mu.Lock()
		grants := slices.Clone(p.grants) // end takes mu
		p.mu.Unlock()
		for _, g := range grants {
			if !g.end(handle.Closed, nil) {
				continue // lost or unlocked in that instant
			}
			p.retain() // released drops it
			p.mu.Lock()
			back := g.notice()
			p.mu.Unlock()
			wg.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				if ctx.Err() != nil {
					p.drop()
					return // the session says so
				}
				if err := back.send(ctx); err != nil && !errors.Is(err, failure.ErrLost) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		p.drop()
	}
	wg.Wait()
	return failure.Join(errs...)
}

// nextRelease is closed when the next release has ended. mu held.
func (p *pool) nextRelease() <-chan struct{} {
	if p.released == nil {
		p.released = make(chan struct{})
	}
	return p.released
}

// endRelease counts one that has ended. mu held.
func (p *pool) endRelease() {
	p.releases--
	p.endsRelease()
}

// endsRelease tells those that wait for it. mu held.
func (p *pool) endsRelease() {
	if p.released != nil {
		close(p.released)
		p.released = nil
	}
}

// releasing: some of what its session has there may soon be given back. mu held.
func (p *pool) releasing() bool {
	return p.releases > 0 || slices.ContainsFunc(p.attempts, func(a *attempt) bool {
		return time.Since(a.moved) < ownRelease // else its request may be lost
	})
}
