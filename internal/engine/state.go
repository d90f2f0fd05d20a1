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
// exists while there is any of these. If another session is known to want the lock after a release, the
// lockState exists for at least contendedMemory longer.
type lockState struct {
	s        *session.Session
	kind     *Kind
	keys     *protocol.Keys
	registry *registry
	uses     int // number of calls, attempts, grants and releases that need the state; guarded by registry.mu

	// mu guards the following fields. It also guards fields of the types lane, waiter, attempt, Grant and
	// Entry, as the comments of these types say.
	mu          sync.Mutex
	lanes       []*lane           // lanes for calls of Lock, the oldest first
	tries       []*lane           // lanes for calls of TryLock, each for one call
	grants      []*Grant          // grants that are held
	lastHolder  *failure.Sighting // last known holder, for the errors of waiters; nil means none is known
	numReleases int32             // number of releases and downgrades that wait for their first reply
	contended   bool              // another session is known to want the lock
	pending     []*attempt        // if kind.Alone: attempts that are not finished (finish); otherwise empty
	releaseDone chan struct{}     // see nextRelease; nil means nobody waits
	timer       *time.Timer       // calls onTimer; nil means it was never set
	timerAt     time.Duration     // age of the session at which the timer fires; 0 means it is not set
	suspectAt   time.Duration     // age at which to run warnOfItself; 0 means never

	inlineLane lane // used for the first lane, which saves an allocation
}

// registryKey is the key of the registry among the parts of a session.
type registryKey struct{}

// registry has the states of all locks that a session uses. It is a part of the session.
type registry struct {
	s     *session.Session
	inbox *inbox

	mu    sync.Mutex            // guards locks and lockState.uses; no other mutex is locked under it
	locks map[string]*lockState // lock states by their LockKey
}

func newRegistry(s *session.Session) *registry {
	return &registry{s: s, inbox: newInbox(s), locks: map[string]*lockState{}}
}

// use returns the state of a lock, and counts one more use of this state. If there is no state, use makes
// one. The caller must end the use with change(l, -1).
func (r *registry) use(kind *Kind, keys *protocol.Keys) *lockState {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.locks[keys.LockKey()]
	if l == nil {
		all := &struct { // one allocation for all, because a session may hold very many locks
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

// change adds delta to the number of uses of a lock state. When no use is left, the registry forgets the
// state. The caller must not hold the mutex of the lock.
func (r *registry) change(l *lockState, delta int) {
	r.mu.Lock()
	l.uses += delta
	// If l belongs to a lost hold that is unlocked late, the registry may already have another state for this
	// lock.
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

// Shutdown releases all grants. It blocks until each release has got a reply or an error. After the end of
// ctx, it sends no further requests.
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
	limit := make(chan struct{}, 100) // at most 100 requests at once; they share pipelines
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
					return // the session reports that ctx has ended
				}
				if err := back.call(ctx); err != nil && !errors.Is(err, failure.ErrLost) {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, err)
				}
			})
		}
		fx.uses--
		fx.run() // without settle, because waiters end when the session closes
	}
	wg.Wait()
	return failure.Join(errs...)
}

// nextRelease returns a channel. It is closed when a release or a downgrade has got a reply or an error, or
// when a grant is lost or closed, whichever comes first. If kind.Alone is set, the end of an attempt (finish)
// also closes the channel. The caller must hold l.mu.
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

// mayFree reports whether this session may soon free the lock or some permits. This is so while a release is
// in flight. If kind.Alone is set, an unfinished attempt that began, or was withdrawn, less than ownRelease
// ago counts, too.
func (l *lockState) mayFree() bool {
	return l.numReleases > 0 || slices.ContainsFunc(l.pending, func(a *attempt) bool {
		return time.Since(a.changedAt) < ownRelease // an older attempt may not finish soon
	})
}

// grantOf returns the grant that has this owner field. It returns nil if the session has no such grant. The
// caller must hold l.mu.
func (l *lockState) grantOf(owner string) *Grant {
	for _, g := range l.grants {
		if g.owner == owner {
			return g
		}
	}
	return nil
}

// observe calls the observer of the session with an event of this lock. The caller must not hold l.mu.
func (l *lockState) observe(ctx context.Context, e session.Event) {
	l.s.Observe(ctx, l.kind.Letter, l.keys.Name, e)
}

// named prefixes an error with the kind and name of the lock.
func (l *lockState) named(err error) error { return l.kind.Named(l.keys.Name, err) }
