package engine

import (
	"context"
	"errors"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Lock names a lock or a semaphore of one kind, for one session. rlock.Mutex and similar types are built on
// Lock. A Lock never changes. The state of its calls is in a lockState.
type Lock struct {
	s    *session.Session
	all  *registry
	kind *Kind
	keys *protocol.Keys
	cfg  Config
	err  error // error of New, which CheckUse returns; nil if New succeeded
}

// New returns the Lock with this name. cfg has the default options of its calls. If the session is nil or
// closed, or the name is not valid, CheckUse of the Lock returns an error that says so.
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

// CheckUse returns an error if the Lock is nil or zero, if New has failed, or if ctx is nil.
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

// Name returns the name of the lock. It returns "" for a nil or zero Lock, and if New got a nil session or a
// name that is not valid.
func (lk *Lock) Name() string {
	if lk == nil || lk.keys == nil {
		return ""
	}
	return lk.keys.Name
}

// Config returns the options that a call has by default.
func (lk *Lock) Config() (c Config) {
	if lk != nil {
		c = lk.cfg
	}
	return c
}

// ID returns a value that is equal for two Locks if they have the same session, kind and name.
func (lk *Lock) ID() any { return lockID{lk.s, lk.keys.LockKey()} }

type lockID struct {
	s   *session.Session
	key string
}

// Session, Keys and Kind must only be called if CheckUse returns nil.
func (lk *Lock) Session() *session.Session { return lk.s }
func (lk *Lock) Keys() *protocol.Keys      { return lk.keys }
func (lk *Lock) Kind() *Kind               { return lk.kind }

// Wanted reports who wants the lock, as far as the session knows. It sends no request. here is true if a call
// in this session waits for the lock, or if the session is releasing the lock. elsewhere is true if another
// session is known to want the lock.
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
