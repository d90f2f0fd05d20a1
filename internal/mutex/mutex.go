package mutex

import (
	"context"
	"errors"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Mutex is one lock's name in a session, and its kind. It holds no state of any acquisition.
type Mutex struct {
	s     *session.Session
	table *table
	kind  *Kind
	keys  *protocol.Keys
	cfg   Config
	lanes permit.Permits
	err   error // of New, returned by every use
}

// New names a lock. What is wrong with the session or the name, every use returns.
func New(s *session.Session, kind *Kind, name string, cfg Config) Mutex {
	m := Mutex{s: s, kind: kind, cfg: cfg}
	if s == nil {
		m.err = errors.New("lockline: the session is nil")
		return m
	}
	if kind.Lanes != nil {
		m.lanes = permit.New(s, kind.Lanes, name)
		m.keys, m.err = m.lanes.Keys(), m.lanes.CheckUse(context.Background())
		return m
	}
	if m.keys, m.err = kind.Keys(s, name); m.err != nil {
		return m
	}
	var err error
	if m.table, err = tableOf(s); err != nil {
		m.err = failure.Named(name, err)
	}
	return m
}

var errZeroMutex = errors.New("lockline: a zero Mutex; make one with New")

// CheckUse says what is wrong with a call that has this context.
func (m *Mutex) CheckUse(ctx context.Context) error {
	switch {
	case m == nil || m.s == nil && m.err == nil:
		return errZeroMutex
	case m.err != nil:
		return m.err
	case ctx == nil:
		return failure.Named(m.keys.Name, failure.ErrNilContext)
	}
	return nil
}

// Lanes are the lanes of a kind that has moved there.
func (m *Mutex) Lanes() *permit.Permits { return &m.lanes }

// Check says what is wrong with the Mutex, whatever it is used for.
func (m *Mutex) Check() error { return m.CheckUse(context.Background()) }

// Name is the lock's name; "" of a Mutex that has none.
func (m *Mutex) Name() string {
	if m == nil || m.keys == nil {
		return ""
	}
	return m.keys.Name
}

// Default is the configuration that an acquisition starts from.
func (m *Mutex) Default() (c Config) {
	if m != nil {
		c = m.cfg
	}
	return c
}

// Session, Kind and Keys are what a good Mutex was made of.
func (m *Mutex) Session() *session.Session { return m.s }
func (m *Mutex) Kind() *Kind               { return m.kind }
func (m *Mutex) Keys() *protocol.Keys      { return m.keys }

type lockID struct {
	s    *session.Session
	lock string
}

// ID is equal for Mutexes that are one lock in one session.
func (m *Mutex) ID() any { return lockID{m.s, m.keys.Lock()} }
