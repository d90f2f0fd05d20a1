package main

import (
	"cmp"
	"context"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// lockKind is a kind of lock, and how one is opened.
type lockKind struct {
	rlock.Kind
	open func(*rlock.Session, string) subject // nil if it is no lock
	look func(*rlock.Session, string) looker  // nil: open
}

// at opens what can be looked at.
func (k lockKind) at(s *rlock.Session, name string) looker {
	if k.look != nil {
		return k.look(s, name)
	}
	return k.open(s, name)
}

var lockKinds = []lockKind{
	{rlock.KindReentrant, openReentrant, nil},
	{rlock.KindFair, openFair, nil},
	{rlock.KindRedLock, openRedLock, nil},
	{rlock.KindReadWrite, openWriter, nil},
	{rlock.KindSemaphore, openSemaphore(1), nil}, // Redis has the limit of one that is used
	{rlock.KindLatch, nil, openLatch},
}

// redissonKinds is the kind of locks that are shared with Redisson.
var redissonKinds = []lockKind{{rlock.KindRedisson, openRedisson, nil}}

// looker is what can be looked at.
type looker interface {
	// state asks Redis for its holders and waiters.
	state(ctx context.Context) (lockState, error)
}

// subject is one lock, or a permit of one semaphore.
type subject interface {
	rlock.Locker
	looker
	// force frees it under its holder: the one with the token, or any if that is 0. It reports whether there was one.
	force(ctx context.Context, token int64) (bool, error)
	// nests: a holder's child that wants it, too, waits for itself.
	nests() bool
}

// mutex is a lock that has one holder.
type mutex struct {
	operated
	kind rlock.Kind
}

// operated is a lock of any kind, with its operators' methods.
type operated interface {
	rlock.Locker
	Inspect(ctx context.Context) (rlock.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
	ForceUnlockToken(ctx context.Context, token int64) (bool, error)
}

func openReentrant(s *rlock.Session, name string) subject {
	return mutex{rlock.New(s, name), rlock.KindReentrant}
}

func openRedisson(s *rlock.Session, name string) subject {
	return mutex{redisson.New(s, name), rlock.KindRedisson}
}

func openFair(s *rlock.Session, name string) subject {
	return mutex{fairlock.New(s, name), rlock.KindFair}
}

// openRedLock opens a RedLock as this one server has it.
func openRedLock(s *rlock.Session, name string) subject {
	q, err := multilock.NewQuorum([]*rlock.Session{s}, multilock.WithServerTimeout(10*time.Second)) // there is no other to ask
	if err != nil {
		return mutex{multilock.NewRedLock(name, s), rlock.KindRedLock} // which tells it
	}
	return mutex{q.New(name), rlock.KindRedLock}
}

func (m mutex) state(ctx context.Context) (lockState, error) {
	s, err := m.Inspect(ctx)
	return stateOf(m.kind, s), err
}

// stateOf is what Inspect says of a lock.
func stateOf(kind rlock.Kind, s rlock.State) lockState {
	st := newState(s.Name, kind.String())
	side := func(shared bool) string {
		switch {
		case kind != rlock.KindReadWrite:
			return ""
		case shared:
			return "read"
		}
		return "write"
	}
	for _, h := range s.Holders {
		st.hold(holder{party: party{h.Owner, h.Session, h.Host, h.PID, h.Label},
			Side: side(h.Shared), Permits: h.Permits, Token: h.Token,
			RemainingMS: h.Remaining.Milliseconds(), Lingers: h.Lingers})
	}
	st.Count, st.Token, st.Limit = cmp.Or(s.Used(), s.Count, st.Count), s.Token, s.Limit
	for _, w := range s.Queue {
		st.Queue = append(st.Queue, waiter{party: party{w.Owner, w.Session, w.Host, w.PID, w.Label},
			AgeMS: w.Age.Milliseconds(), Side: side(w.Shared), Permits: w.Permits})
	}
	return st
}

func (m mutex) force(ctx context.Context, token int64) (bool, error) {
	if token > 0 {
		return m.ForceUnlockToken(ctx, token)
	}
	return m.ForceUnlock(ctx)
}

func (mutex) nests() bool { return true }

func newState(name, kind string) lockState {
	st := lockState{Name: name, Kind: kind}
	if !utf8.ValidString(name) {
		st.NameBytes = []byte(name)
	}
	return st
}

// rw is a read-write lock, to write or to read.
type rw struct {
	rlock.Locker
	m *rwlock.RWMutex
}

func openWriter(s *rlock.Session, name string) subject {
	m := rwlock.New(s, name)
	return rw{m, m}
}

func openReader(s *rlock.Session, name string) subject {
	m := rwlock.New(s, name)
	return rw{m.RLocker(), m}
}

func (l rw) state(ctx context.Context) (lockState, error) {
	s, err := l.m.Inspect(ctx)
	return stateOf(rlock.KindReadWrite, s), err
}

func (l rw) force(ctx context.Context, token int64) (bool, error) {
	if token > 0 {
		return l.m.ForceUnlockToken(ctx, token)
	}
	forced, err := l.m.ForceUnlock(ctx)
	if forced || err != nil {
		return forced, err
	}
	n, err := l.m.ForceRUnlock(ctx)
	return n > 0, err
}

func (rw) nests() bool { return true }

// permit is one permit of a semaphore.
type permit struct {
	rlock.Locker
	s *semaphore.Semaphore
}

func openSemaphore(limit int) func(*rlock.Session, string) subject {
	return func(s *rlock.Session, name string) subject {
		sem := semaphore.New(s, name, limit)
		return permit{sem.Locker(1), sem}
	}
}

func (p permit) state(ctx context.Context) (lockState, error) {
	s, err := p.s.Inspect(ctx)
	return stateOf(rlock.KindSemaphore, s), err
}

func (p permit) force(ctx context.Context, token int64) (forced bool, err error) {
	if token > 0 {
		return p.s.ForceRelease(ctx, token)
	}
	s, err := p.s.Inspect(ctx)
	for _, h := range s.Holders {
		one, e := p.s.ForceRelease(ctx, h.Token)
		if e != nil {
			return forced, e
		}
		forced = forced || one
	}
	return forced, err
}

func (permit) nests() bool { return false }

// counted is a latch.
type counted struct{ *latch.Latch }

func openLatch(s *rlock.Session, name string) looker { return counted{latch.New(s, name)} }

func (l counted) state(ctx context.Context) (lockState, error) {
	s, err := l.Inspect(ctx)
	st := newState(l.Name(), rlock.KindLatch.String())
	st.Count = s.Count
	for i, p := range s.Parties {
		if i == 0 {
			st.RemainingMS = p.Remaining.Milliseconds()
		}
		st.Holders = append(st.Holders, holder{party: party{Owner: p.Owner, Session: p.Session}, Party: p.Name, RemainingMS: p.Remaining.Milliseconds()})
	}
	return st, err
}

// addValue asks what the leader says, if the lock is that of an election.
func (o *operator) addValue(ctx context.Context, st *lockState) error {
	if !st.Held || st.Kind != rlock.KindFair.String() {
		return nil
	}
	leader, ok, err := election.New(o.session, st.Name).Leader(ctx)
	if ok && leader.Owner == st.Holder.Owner { // else another one leads by now
		st.Value = &leader.Value
		if !utf8.ValidString(leader.Value) {
			st.ValueBytes = []byte(leader.Value)
		}
	}
	return err
}
