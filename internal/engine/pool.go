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

// Kind is what makes one kind of permits.
type Kind struct {
	Letter string // in keys and events
	Scripts

	Reentrant bool // a context that descends from a hold enters that again
	Counts    bool // Redis has a hash with the hold count: it is told of each nested hold
	Fair      bool // only the queue says which goroutine of all sessions is next
	Lingers   bool // a session may keep it while no goroutine has it

	// Keys names the keys of one name, or says why there are none; nil: as all kinds of Lockline's own do.
	Keys func(s *session.Session, name string) (*protocol.Keys, error)

	Noun string // for errors; "": a lock

	// Locked is the error of what is not free, and Ended that of a wait that has ended.
	Locked func(e *failure.LockedError) error
	Ended  func(ctx context.Context, closing bool, name string, holder *failure.LockedError) error

	// Limited is the error where Redis has a limit with which the wait never ends; of a kind that has Shares.
	Limited func(name string, want Want, limit int64) error
}

// NewLock is a kind of lock, with its letter.
func NewLock(letter string, fair bool) *Kind {
	return &Kind{
		Letter: letter, Scripts: Hash, Counts: true, Fair: fair, Reentrant: true,
		Locked: func(e *failure.LockedError) error { return failure.Public(e) },
		Ended:  failure.OfWait,
	}
}

// Named puts what it is, and its name, before an error.
func (k *Kind) Named(name string, err error) error { return failure.Of(k.Noun, name, err) }

// Failed is Named for the error of a request.
func (k *Kind) Failed(keys *protocol.Keys, err error) error { return keys.Failed(k.Noun, err) }

// newKeys names the keys of one name.
func (k *Kind) newKeys(s *session.Session, name string) (*protocol.Keys, error) {
	switch {
	case k.Keys != nil:
		return k.Keys(s, name)
	case !k.Counts:
		return protocol.NewKeys(s.Prefix, k.Letter, name, ":q", ":a", ":d", ":h")
	}
	keys, err := protocol.NewKeys(s.Prefix, k.Letter, name, ":q", ":a", ":d")
	if err == nil {
		keys.Queued = true
	}
	return keys, err
}

// Want is what one acquisition wants. What is wanted alike waits in one lane.
type Want struct {
	N      int64         // permits; All excludes all others
	Limit  int64         // how many there are, unless SetLimit has set another number
	Lease  time.Duration // fixed, not renewed; 0: the session's, or any one where goroutines take turns
	Shared bool          // goroutines of the session that want it have one grant together
}

func (w Want) exclusive() bool { return w.N == All }

// pool is what a session knows of one name.
type pool struct {
	kind *Kind
	keys *protocol.Keys
	all  *pools
	uses int // acquisitions, attempts and grants; guarded by pools.mu

	mu        sync.Mutex        // guards the following, and what lanes, attempts, grants and entries say
	lanes     []*lane           // the latest last
	grants    []*Grant          // that are held
	seen      *failure.Sighting // of a holder
	unlock    pending           // releases under way
	suspicion *time.Timer       // looks whether the session waits for itself; nil: no goroutine has waited
	order                       // of sessions and lanes
	ear       *ear              // of a lock without a queue
	one       lane              // the first
}

func (p *pool) s() *session.Session { return p.all.s }

// silent: requests need goroutines of their own.
func (p *pool) silent(ctx context.Context) bool { return p.s().Link.Silent(ctx, p.keys.Lock()) }

// poolsKey finds the pools in a session.
type poolsKey struct{}

// pools are those of a session, which they are a part of.
type pools struct {
	s     *session.Session
	inbox *inbox

	mu   sync.Mutex // guards what follows, and the uses of pools; a leaf
	pool map[string]*pool
}

func poolsOf(s *session.Session) (*pools, error) {
	return session.PartOf(s, poolsKey{}, func(s *session.Session) *pools {
		return &pools{s: s, inbox: newInbox(s), pool: map[string]*pool{}}
	})
}

// use finds or makes a pool, which is kept until drop.
func (ps *pools) use(kind *Kind, keys *protocol.Keys) *pool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.pool[keys.Lock()]
	if p == nil {
		all := &struct { // in one allocation: there are very many
			pool
			lanes  [1]*lane
			grants [1]*Grant
		}{pool: pool{kind: kind, keys: keys, all: ps}}
		p = &all.pool
		p.lanes, p.grants = all.lanes[:0], all.grants[:0]
		ps.pool[keys.Lock()] = p
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
	unused := p.uses == 0 && p.all.pool[p.keys.Lock()] == p
	if unused {
		delete(p.all.pool, p.keys.Lock())
	}
	p.all.mu.Unlock()
	if unused {
		p.ear.close()
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
