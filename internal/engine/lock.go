package engine

import (
	"context"
	"errors"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Lock is a lock or a semaphore with a name, of one kind, used by one session. rlock.Mutex and its like are
// made of it. It has no state of any call.
type Lock struct {
	s    *session.Session
	all  *registry
	kind *Kind
	keys *protocol.Keys
	cfg  Config
	err  error // of New, returned by every use
}

// New returns the Lock with this name. Each call of Acquire starts from cfg. If the session or the name is
// not valid, every use returns an error that says so.
func New(s *session.Session, kind *Kind, name string, cfg Config) Lock {
	lk := Lock{s: s, kind: kind, cfg: cfg}
	if s == nil {
		lk.err = kind.Named(name, failure.ErrNilSession)
		return lk
	}
	if lk.keys, lk.err = kind.newKeys(s, name); lk.err != nil {
		return lk
	}
	lk.all, lk.err = session.PartOf(s, registryKey{}, newRegistry)
	if lk.err != nil {
		lk.err = kind.Named(name, lk.err)
	}
	return lk
}

var errZero = errors.New("lockline: the lock, semaphore or election is nil or a zero value; " +
	"make one with New")

// CheckUse returns an error if a call with this context cannot work.
func (lk *Lock) CheckUse(ctx context.Context) error {
	switch {
	case lk == nil || lk.s == nil && lk.err == nil:
		return errZero
	case lk.err != nil:
		return lk.err
	case ctx == nil:
		return lk.kind.Named(lk.keys.Name, failure.ErrNilContext)
	}
	return nil
}

// Name returns the name, or "" if there is none.
func (lk *Lock) Name() string {
	if lk == nil || lk.keys == nil {
		return ""
	}
	return lk.keys.Name
}

// Config returns the options from which each call starts.
func (lk *Lock) Config() (c Config) {
	if lk != nil {
		c = lk.cfg
	}
	return c
}

// ID returns a value that is equal for Locks with the same name in the same session.
func (lk *Lock) ID() any { return lockID{lk.s, lk.keys.LockKey()} }

type lockID struct {
	s   *session.Session
	key string
}

// Session, Keys and Kind must only be called if CheckUse returns nil.
func (lk *Lock) Session() *session.Session { return lk.s }
func (lk *Lock) Keys() *protocol.Keys      { return lk.keys }
func (lk *Lock) Kind() *Kind               { return lk.kind }

// Wanted reports whether goroutines of this session wait for the lock or release it, and whether other
// sessions are known to want it. It sends no request.
func (lk *Lock) Wanted() (here, elsewhere bool) {
	if lk.err != nil {
		return false, false
	}
	lk.all.mu.Lock()
	l := lk.all.locks[lk.keys.LockKey()]
	lk.all.mu.Unlock()
	if l == nil {
		return false, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.numReleases > 0 || l.hasWaiters(), l.contended
}
