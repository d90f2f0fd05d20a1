package engine

import (
	"context"
	"errors"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Permits are one name, of one kind, in one session: all that rlock.Mutex and its like have in common. They
// keep no state of any call.
type Permits struct {
	s    *session.Session
	all  *registry
	kind *Kind
	keys *protocol.Keys
	cfg  Config
	err  error // of New, returned by every use
}

// New makes the Permits of a name. Each call of Acquire starts from cfg. If the session or the name is not
// valid, every use returns an error that says so.
func New(s *session.Session, kind *Kind, name string, cfg Config) Permits {
	ps := Permits{s: s, kind: kind, cfg: cfg}
	if s == nil {
		ps.err = kind.Named(name, failure.ErrNilSession)
		return ps
	}
	if ps.keys, ps.err = kind.newKeys(s, name); ps.err != nil {
		return ps
	}
	ps.all, ps.err = session.PartOf(s, registryKey{}, newRegistry)
	if ps.err != nil {
		ps.err = kind.Named(name, ps.err)
	}
	return ps
}

var errZero = errors.New("lockline: the lock, semaphore or election is nil or a zero value; " +
	"make one with New")

// CheckUse returns an error if a call with this context cannot work.
func (ps *Permits) CheckUse(ctx context.Context) error {
	switch {
	case ps == nil || ps.s == nil && ps.err == nil:
		return errZero
	case ps.err != nil:
		return ps.err
	case ctx == nil:
		return ps.kind.Named(ps.keys.Name, failure.ErrNilContext)
	}
	return nil
}

// Name returns the name; "" if there is none.
func (ps *Permits) Name() string {
	if ps == nil || ps.keys == nil {
		return ""
	}
	return ps.keys.Name
}

// Config returns the options from which each call starts.
func (ps *Permits) Config() (c Config) {
	if ps != nil {
		c = ps.cfg
	}
	return c
}

// ID returns a value that is equal for Permits of the same name in the same session.
func (ps *Permits) ID() any { return permitsID{ps.s, ps.keys.LockKey()} }

type permitsID struct {
	s   *session.Session
	key string
}

// Session, Keys and Kind must only be called if CheckUse returns nil.
func (ps *Permits) Session() *session.Session { return ps.s }
func (ps *Permits) Keys() *protocol.Keys      { return ps.keys }
func (ps *Permits) Kind() *Kind               { return ps.kind }

// Wanted reports, without a request, whether goroutines of this session wait for the lock or release it, and
// whether other sessions are known to want it.
func (ps *Permits) Wanted() (here, elsewhere bool) {
	if ps.err != nil {
		return false, false
	}
	ps.all.mu.Lock()
	l := ps.all.locks[ps.keys.LockKey()]
	ps.all.mu.Unlock()
	if l == nil {
		return false, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.numReleases > 0 || l.hasWaiters(), l.contended
}
