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

// lockState has the state that a session keeps for one lock: its waiters, attempts, grants and releases. It
// exists while there is any of these.
type lockState struct {
	s        *session.Session
	kind     *Kind
	keys     *protocol.Keys
	registry *registry
	uses     int // calls, attempts, grants and releases that need the state; guarded by registry.mu

	// mu guards the following, and all of lanes, waiters, attempts, grants and entries that may change.
	mu          sync.Mutex
	lanes       []*lane           // where calls of Lock wait, the oldest lane first
	tries       []*lane           // each has one call of TryLock
	grants      []*Grant          // the grants that are held
	lastHolder  *failure.Sighting // the holder that was seen last; nil means none was
	numReleases int32             // releases in flight
	contended   bool              // another session wants the lock, as far as is known
	pending     []*attempt        // only if kind.Alone: attempts that have not ended in Redis
	releaseDone chan struct{}     // closed when a release or an attempt has ended; nil means nobody waits
	timer       *time.Timer       // calls onTimer; nil means it was never needed
	timerAt     time.Duration     // age of the session at which the timer fires; 0 means it is not set
	suspectAt   time.Duration     // age at which to look whether the session waits for itself; 0 means never

	inlineLane lane // the first lane; saves an allocation
}

// registryKey is the key of the registry among the parts of a session.
type registryKey struct{}

// registry has the states of all locks that a session uses. It is a part of the session.
type registry struct {
	s     *session.Session
	inbox *inbox

	mu    sync.Mutex            // guards the following, and lockState.uses; no other mutex is locked under it
	locks map[string]*lockState // by the first key of the lock
}

func newRegistry(s *session.Session) *registry {
	return &registry{s: s, inbox: newInbox(s), locks: map[string]*lockState{}}
}

// use finds or makes the state of a lock, and counts one use of it. The caller must end the use by change.
func (r *registry) use(kind *Kind, keys *protocol.Keys) *lockState {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.locks[keys.LockKey()]
	if l == nil {
		all := &struct { // in one allocation, because a session may hold very many locks
			lockState
			lanes  [1]*lane
			grants [1]*Grant
		}{lockState: lockState{s: r.s, kind: kind, keys: keys, registry: r}}
		l = &all.lockState
		l.lanes, l.grants = all.lanes[:0], all.grants[:0]
		r.locks[keys.LockKey()] = l
	}
	l.uses++
	return l
}

// change adds by to the number of uses of a lock. Without a use, the state is forgotten. The caller must not
// hold the mutex of the lock.
func (r *registry) change(l *lockState, by int) {
	r.mu.Lock()
	l.uses += by
	// A lost hold may be unlocked when the name has another state already.
	unused := l.uses == 0 && r.locks[l.keys.LockKey()] == l
	if unused {
		delete(r.locks, l.keys.LockKey())
	}
	r.mu.Unlock()
	if unused {
		l.mu.Lock()
		if l.timer != nil {
			l.timer.Stop()
		}
		l.mu.Unlock()
	}
}

// Shutdown releases all that is held. It blocks until Redis has replied, not longer than ctx.
func (r *registry) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	var locks []*lockState
	for _, l := range r.locks {
		l.uses++
		locks = append(locks, l)
	}
	r.mu.Unlock()
	var errs []error
	var mu sync.Mutex // guards errs
	var wg sync.WaitGroup
	limit := make(chan struct{}, 100) // requests at once: many requests at once share pipelines
	for _, l := range locks {
		fx := l.begin()
		for _, g := range slices.Clone(l.grants) { // end removes grants
			g.end(handle.Closed, nil, &fx)
			back := g.newRelease(&fx)
			wg.Go(func() {
				limit <- struct{}{}
				defer func() { <-limit }()
				if ctx.Err() != nil {
					r.change(l, -1)
					return // the session reports that
				}
				if err := back.call(ctx); err != nil && !errors.Is(err, failure.ErrLost) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		fx.uses--
		fx.run() // without settle: waiters end because the session closes
	}
	wg.Wait()
	return failure.Join(errs...)
}

// nextRelease returns a channel that is closed when the next release, or attempt, has ended. The caller must
// hold l.mu.
func (l *lockState) nextRelease() <-chan struct{} {
	if l.releaseDone == nil {
		l.releaseDone = make(chan struct{})
	}
	return l.releaseDone
}

// notifyReleaseDone wakes the goroutines that wait for nextRelease.
func (l *lockState) notifyReleaseDone() {
	if l.releaseDone != nil {
		close(l.releaseDone)
		l.releaseDone = nil
	}
}

// mayFree reports whether the session may soon release something in Redis.
func (l *lockState) mayFree() bool {
	return l.numReleases > 0 || slices.ContainsFunc(l.pending, func(a *attempt) bool {
		return time.Since(a.changedAt) < ownRelease // after that time, its request may be lost
	})
}

// grantOf returns the grant of an attempt of this session; nil if it has none. The caller must hold l.mu.
func (l *lockState) grantOf(owner string) *Grant {
	for _, g := range l.grants {
		if g.owner == owner {
			return g
		}
	}
	return nil
}

// age returns the age of the session. It is never 0, so that a time of 0 can mean "never".
func (l *lockState) age() time.Duration { return l.s.Age() + 1 }

// observe calls the observer of the session. The caller must not hold l.mu.
func (l *lockState) observe(ctx context.Context, e session.Event) {
	l.s.Observe(ctx, l.kind.Letter, l.keys.Name, e)
}

// named prefixes an error with the kind and name of the lock.
func (l *lockState) named(err error) error { return l.kind.Named(l.keys.Name, err) }
