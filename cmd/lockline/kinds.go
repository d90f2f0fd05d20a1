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

// A lockKind is a kind of lock that the commands can look at.
type lockKind struct {
	rlock.Kind
	open func(*rlock.Session, string) subject // returns an exclusive lock or a permit; nil for latches
}

// at returns the lock or latch of this name.
func (k lockKind) at(s *rlock.Session, name string) looker {
	if k.Kind == rlock.KindLatch {
		return counted{latch.New(s, name)}
	}
	return k.open(s, name)
}

var lockKinds = []lockKind{
	{rlock.KindReentrant, openReentrant},
	{rlock.KindFair, openFair},
	{rlock.KindRedLock, openRedLock},
	{rlock.KindReadWrite, openWriter},
	{rlock.KindSemaphore, openSemaphore(1)}, // Redis knows the real limit of a semaphore that is in use
	{Kind: rlock.KindLatch},
}

// redissonKinds has the kind of lock that is shared with Redisson.
var redissonKinds = []lockKind{{rlock.KindRedisson, openRedisson}}

// A looker is a lock or a latch.
type looker interface {
	// state reads the holders and the waiters from Redis.
	state(ctx context.Context) (lockState, error)
}

// A subject is a lock, or a permit of a semaphore.
type subject struct {
	rlock.Locker
	operated
	kind rlock.Kind
}

// operated has the methods of a lock of any kind for operators. ForceUnlock takes the lock from all holders,
// and reports whether there was a holder. ForceUnlockToken takes the lock from the holder with this token,
// and reports whether there was a holder with this token.
type operated interface {
	Inspect(ctx context.Context) (rlock.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
	ForceUnlockToken(ctx context.Context, token int64) (bool, error)
}

func openReentrant(s *rlock.Session, name string) subject {
	return mutex(rlock.KindReentrant, rlock.New(s, name))
}

func openRedisson(s *rlock.Session, name string) subject {
	return mutex(rlock.KindRedisson, redisson.New(s, name))
}

func openFair(s *rlock.Session, name string) subject {
	return mutex(rlock.KindFair, fairlock.New(s, name))
}

// openRedLock returns the part of a RedLock on the server of the session.
func openRedLock(s *rlock.Session, name string) subject {
	// The timeout is long, because no other server can replace a slow one.
	longest := multilock.WithServerTimeout(7 * time.Second)
	q, err := multilock.NewQuorum([]*rlock.Session{s}, longest)
	if err != nil { // the timeout may be too long for the lease of the session
		q, _ = multilock.NewQuorum([]*rlock.Session{s})
	}
	return mutex(rlock.KindRedLock, q.New(name))
}

// mutex returns a subject for a lock that has one holder.
func mutex(kind rlock.Kind, m interface {
	rlock.Locker
	operated
}) subject {
	return subject{m, m, kind}
}

func openWriter(s *rlock.Session, name string) subject {
	m := rwlock.New(s, name)
	return subject{m, both{m}, rlock.KindReadWrite}
}

func openReader(s *rlock.Session, name string) subject {
	m := rwlock.New(s, name)
	return subject{m.RLocker(), both{m}, rlock.KindReadWrite}
}

// both is a read-write lock whose ForceUnlock takes the lock from its writer or from all its readers.
type both struct{ *rwlock.RWMutex }

func (l both) ForceUnlock(ctx context.Context) (bool, error) {
	forced, err := l.RWMutex.ForceUnlock(ctx)
	if forced || err != nil {
		return forced, err
	}
	n, err := l.ForceUnlockReaders(ctx)
	return n > 0, err
}

func openSemaphore(limit int) func(*rlock.Session, string) subject {
	return func(s *rlock.Session, name string) subject {
		sem := semaphore.New(s, name, limit)
		return subject{sem.Locker(1), permits{sem}, rlock.KindSemaphore}
	}
}

// permits is a semaphore whose ForceUnlock takes the permits from all holders.
type permits struct{ *semaphore.Semaphore }

func (p permits) ForceUnlock(ctx context.Context) (forced bool, err error) {
	s, err := p.Inspect(ctx)
	for _, h := range s.Holders {
		one, e := p.ForceRelease(ctx, h.Token)
		if e != nil {
			return forced, e
		}
		forced = forced || one
	}
	return forced, err
}

func (p permits) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return p.ForceRelease(ctx, token)
}

// nests reports whether locks of this kind can be nested. Only permits of a semaphore cannot be nested.
func (l subject) nests() bool { return l.kind != rlock.KindSemaphore }

func (l subject) state(ctx context.Context) (lockState, error) {
	s, err := l.Inspect(ctx)
	st := newState(s.Name, l.kind)
	side := func(shared bool) string {
		switch {
		case l.kind != rlock.KindReadWrite:
			return ""
		case shared:
			return "read"
		}
		return "write"
	}
	for _, h := range s.Holders {
		versions := speaks{h.Protocol, h.Library}
		by := party{h.Owner, h.Session, h.Host, h.PID, h.Label, h.Note, versions}
		st.hold(holder{party: by,
			Side: side(h.Shared), Permits: h.Permits, Token: h.Token,
			RemainingMS: h.Remaining.Milliseconds(), Lingers: h.Lingers})
	}
	st.Count, st.Token, st.Limit = cmp.Or(s.Used(), s.Count, st.Count), s.Token, s.Limit
	for _, w := range s.Queue {
		versions := speaks{w.Protocol, w.Library}
		by := party{w.Owner, w.Session, w.Host, w.PID, w.Label, w.Note, versions}
		st.Queue = append(st.Queue, waiter{party: by,
			AgeMS: w.Age.Milliseconds(), Side: side(w.Shared), Permits: w.Permits})
	}
	return st, err
}

func newState(name string, kind rlock.Kind) lockState {
	st := lockState{Name: name, Kind: kind.String()}
	if !utf8.ValidString(name) {
		st.NameBytes = []byte(name)
	}
	return st
}

// notKnown returns a state with an error, for a lock that could not be read.
func notKnown(name string, kind rlock.Kind, why string) lockState {
	st := newState(name, kind)
	st.Error = why
	return st
}

// counted makes a looker of a latch.
type counted struct{ *latch.Latch }

func (l counted) state(ctx context.Context) (lockState, error) {
	s, err := l.Inspect(ctx)
	st := newState(l.Name(), rlock.KindLatch)
	st.Count = s.Count
	for i, p := range s.Parties {
		h := holder{party: party{Owner: p.Owner, Session: p.Session}, Party: p.Name,
			RemainingMS: p.Remaining.Milliseconds()}
		if i == 0 {
			st.RemainingMS = h.RemainingMS
		}
		st.Holders = append(st.Holders, h)
	}
	return st, err
}

// addValue adds the value of the leader to st, if the lock belongs to an election.
func (o *operator) addValue(ctx context.Context, st *lockState) error {
	if !st.Held || st.Kind != rlock.KindFair.String() {
		return nil
	}
	leader, ok, err := election.New(o.session, st.Name).Leader(ctx)
	if ok && leader.Owner == st.Holder.Owner { // otherwise the leader has changed meanwhile
		st.Value = &leader.Value
		if !utf8.ValidString(leader.Value) {
			st.ValueBytes = []byte(leader.Value)
		}
	}
	return err
}
