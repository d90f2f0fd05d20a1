package permit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Kind is what makes one kind of permits.
type Kind struct {
	Letter    string                                                                                  // in keys and events
	Reentrant bool                                                                                    // a context that descends from a hold enters that again
	Named     func(name string, err error) error                                                      // puts what it is, and its name, before an error
	Failed    func(k *protocol.Keys, err error) error                                                 // the same of a request's error
	Locked    func(e *failure.LockedError) error                                                      // the error of what is not free
	Ended     func(ctx context.Context, closing bool, name string, holder *failure.LockedError) error // the error of a wait that has ended
	Limited   func(name string, want Want, limit int64) error                                         // the error where Redis has a limit with which it never ends
}

// Want is what one acquisition wants. What is wanted alike waits in one lane.
type Want struct {
	N      int64         // permits; All excludes all others
	Limit  int64         // how many there are, unless SetLimit has set another number
	Lease  time.Duration // fixed, not renewed; 0: the session's
	Shared bool          // goroutines of the session that want it have one grant together
}

func (w Want) exclusive() bool { return w.N == All }

func (w Want) lease(s *session.Session) time.Duration {
	if w.Lease != 0 {
		return w.Lease
	}
	return s.Lease
}

// pool is what a session knows of one name.
type pool struct {
	kind *Kind
	keys *protocol.Keys
	all  *pools
	uses int // acquisitions, attempts and grants; guarded by pools.mu

	mu     sync.Mutex // guards what follows, and what lanes, attempts, grants and entries say that it guards
	lanes  map[Want]*lane
	grants map[*Grant]struct{} // that are held
	seen   *failure.Sighting   // of a holder
	unlock handover.Pending    // releases under way
}

func (p *pool) s() *session.Session { return p.all.s }

// silent: requests need goroutines of their own.
func (p *pool) silent(ctx context.Context) bool { return p.s().Link.Silent(ctx, p.keys.Lock()) }

// poolsKey finds the pools in a session.
type poolsKey struct{}

// pools are those of a session, which they are a part of.
type pools struct {
	s     *session.Session
	inbox *inbox.Inbox

	mu   sync.Mutex // guards what follows, and the uses of pools; a leaf
	pool map[string]*pool
}

func poolsOf(s *session.Session) (*pools, error) {
	in, err := inbox.Of(s) // made before the pools, so Shutdown ends it after them
	if err != nil {
		return nil, err
	}
	return session.PartOf(s, poolsKey{}, func(s *session.Session) *pools {
		return &pools{s: s, inbox: in, pool: map[string]*pool{}}
	})
}

// use finds or makes a pool, which is kept until drop.
func (ps *pools) use(kind *Kind, keys *protocol.Keys) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.pool[keys.Lock()]
	if p == nil {
		p = &pool{kind: kind, keys: keys, all: ps, lanes: map[Want]*lane{}, grants: map[*Grant]struct{}{}}
		ps.pool[keys.Lock()] = p
	}
	p.uses++
	return p
}

// keep is use by a caller that keeps the pool already.
func (p *pool) keep() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	p.uses++
}

func (p *pool) drop() {
	p.all.mu.Lock()
	defer p.all.mu.Unlock()
	// A lost hold's Unlock uses its pool again, when the name may have another one.
	if p.uses--; p.uses == 0 && p.all.pool[p.keys.Lock()] == p {
		delete(p.all.pool, p.keys.Lock())
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
	limit := make(chan struct{}, 16) // requests at once
	for _, p := range all {
		p.mu.Lock()
		var grants []*Grant // end takes mu, so they are listed first
		for g := range p.grants {
			grants = append(grants, g)
		}
		p.mu.Unlock()
		for _, g := range grants {
			if !g.end(handover.Closed, nil) {
				continue // lost or unlocked in that instant
			}
			p.keep() // released drops it
			p.mu.Lock()
			back := g.news()
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
