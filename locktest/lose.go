package locktest

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// noticed is the longest time for which Lose waits until a session notices the loss of a hold.
const noticed = 10 * time.Second

// Lose takes every lock of this name from its holders, as an operator does by a forced unlock. Lose works for
// locks of all kinds, and for the leadership of an election. It takes all permits of a semaphore. It takes a
// read-write lock from the writer and from all readers. Lose finds a lock of package redisson only if a
// session of [Server.NewSession] has held this lock.
//
// The first waiter gets the lock, possibly some milliseconds before the last holder notices the loss. In
// contrast, a holder notices the end of its lease before other sessions can get the lock. To test the end of
// a lease, use [Server.Silence] and fake time.
//
// Lose notifies the sessions that NewSession has made, so that they notice the loss before their next
// renewal. When Lose returns, the contexts of the lost holds have ended with the cause [rlock.ErrLost]. There
// are four exceptions:
//   - A session that cannot reach the server, because of Silence or Refuse, notices the loss when it reaches
//     the server again, unless the lease ends first.
//   - A session of a client from [Server.Client] or [Server.Options] notices the loss when it next
//     renews or uses the hold.
//   - The context of a hold of a MultiLock ends a moment later. Wait until this context is done.
//   - A RedLock stays held while a majority of its servers still has it. After its loss, its context ends a
//     moment later, too.
//
// Lose fails the test if nothing of this name is held. In fake time, Lose may take some milliseconds.
func (s *Server) Lose(name string) {
	s.t.Helper()
	if wrong := s.misplaced(); wrong != nil {
		s.t.Error(wrong)
		return
	}
	if err := protocol.CheckName(name); err != nil {
		s.t.Errorf("locktest: Lose: %v", err)
		return
	}
	what, before := fmt.Sprintf("Lose(%q)", name), s.begun()
	shared := slices.ContainsFunc(before, func(b begun) bool {
		return b.holds[lock{protocol.Redisson, name}] > 0
	})
	kinds, err := s.force(name, shared)
	switch {
	case err != nil:
		s.t.Errorf("locktest: %s: %v", what, err)
		return
	case len(kinds) == 0:
		s.t.Errorf("locktest: %s: nothing of this name is held at this server", what)
		return
	}
	lost := func(l lock) bool { return l.name == name && slices.Contains(kinds, l.kind) }
	s.confirmHolds(what, before, lost)
}

// A begun has, for each lock, the number of holds that the session of a link has begun so far.
type begun struct {
	*link
	holds map[lock]int64
}

// begun returns the counts of the holds that each session of the server has begun so far.
func (s *Server) begun() (all []begun) {
	for _, l := range s.sessions() {
		all = append(all, begun{l, l.holds.begun()})
	}
	return all
}

// confirmHolds makes the sessions check in Redis that they still have their holds. For each lock for which
// `lost` returns true, it then waits until the holds that are counted in `before` have ended.
func (s *Server) confirmHolds(what string, before []begun, lost func(lock) bool) {
	s.t.Helper()
	for _, b := range before {
		inner.Session(b.session).Link.Reconnected()
	}
	for _, b := range before {
		for l, n := range b.holds {
			// A RedLock may stay held, because a majority of its servers may still have it.
			if l.kind != protocol.RedLock && lost(l) && !s.notices(b.link, l, n) {
				s.t.Errorf("locktest: %s: the holder of %q has not noticed the loss within %v", what, l.name,
					noticed)
			}
		}
	}
}

// notices waits until n holds of a lock have ended in the session of l, and returns true. While the session
// cannot reach the server, notices returns true without waiting. It returns false if the holds have not ended
// after the time `noticed`.
func (s *Server) notices(l *link, of lock, n int64) bool {
	for deadline := time.Now().Add(noticed); l.holds.ended(of) < n; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		faulty := l.faulty
		s.mu.Unlock()
		if faulty {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// force takes all locks of this name from their holders, and returns the kinds that were held. The key of a
// lock of package redisson is just the name, so this key may also hold other data. Therefore force takes such
// a lock only if shared is true.
func (s *Server) force(name string, shared bool) (kinds []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), noticed)
	defer cancel()
	for _, key := range s.redis.Keys() {
		for kind, force := range forces {
			prefix, is := "lockline", key == name && shared // a key of package redisson has no prefix
			if kind != protocol.Redisson {
				keys, err := protocol.NewKeys("", kind, name)
				if err != nil {
					return nil, err
				}
				prefix, is = strings.CutSuffix(key, keys.LockKey())
			}
			if !is {
				continue
			}
			held, err := s.operate(prefix, func(operator *rlock.Session) (bool, error) {
				return force(ctx, operator, name)
			})
			if err != nil {
				return nil, err
			}
			if held {
				kinds = append(kinds, kind)
			}
		}
	}
	return kinds, nil
}

// operate calls f with a new session whose connection is not affected by Silence or Refuse.
func (s *Server) operate(prefix string, f func(*rlock.Session) (bool, error)) (bool, error) {
	operator, err := rlock.NewSession(s.direct, rlock.WithPrefix(prefix),
		rlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return false, err
	}
	defer func() { _ = operator.Close() }()
	return f(operator)
}

// forces has a function for each kind of lock. The function takes the lock from all holders, as an operator
// does, and reports whether there was a holder.
var forces = map[string]func(ctx context.Context, operator *rlock.Session, name string) (bool, error){
	protocol.Reentrant: func(ctx context.Context, o *rlock.Session, name string) (bool, error) {
		return rlock.New(o, name).ForceUnlock(ctx)
	},
	protocol.Fair: func(ctx context.Context, o *rlock.Session, name string) (bool, error) {
		return fairlock.New(o, name).ForceUnlock(ctx)
	},
	protocol.Redisson: func(ctx context.Context, o *rlock.Session, name string) (bool, error) {
		return redisson.New(o, name).ForceUnlock(ctx)
	},
	protocol.RedLock: func(ctx context.Context, o *rlock.Session, name string) (bool, error) {
		q, err := multilock.NewQuorum([]*rlock.Session{o})
		if err != nil {
			return false, err
		}
		return q.New(name).ForceUnlock(ctx)
	},
	protocol.ReadWrite: func(ctx context.Context, o *rlock.Session, name string) (bool, error) {
		m := rwlock.New(o, name)
		written, err := m.ForceUnlock(ctx)
		if err != nil {
			return written, err
		}
		readers, err := m.ForceUnlockReaders(ctx)
		return written || readers > 0, err
	},
	protocol.Semaphore: func(ctx context.Context, o *rlock.Session, name string) (held bool, err error) {
		permits := semaphore.New(o, name, 1)
		state, err := permits.Inspect(ctx)
		for _, h := range state.Holders {
			if _, err = permits.ForceRelease(ctx, h.Token); err != nil {
				break
			}
			held = true
		}
		return held, err
	},
}

// holds counts the outermost holds of a session, for each kind and name of a lock.
type holds struct {
	mu    sync.Mutex     // guards the fields below
	began map[lock]int64 // number of outermost holds that have begun
	over  map[lock]int64 // number of outermost holds that have ended
}

type lock struct{ kind, name string }

// follow returns a value that counts the holds of s from now on. For this, follow wraps the observer of s.
func follow(s *rlock.Session) *holds {
	h := &holds{began: map[lock]int64{}, over: map[lock]int64{}}
	in := inner.Session(s)
	observer := in.Observer // the observer of the user; nil: none
	in.Observer = func(ctx context.Context, e session.Event) {
		h.count(e)
		if observer != nil {
			observer(ctx, e)
		}
	}
	return h
}

func (h *holds) count(e session.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch l := (lock{e.Lock, e.Name}); {
	case e.Kind == session.EventAcquired && e.Depth == 1: // nested holds have no event for their end
		h.began[l]++
	case e.Kind == session.EventReleased, e.Kind == session.EventLost:
		h.over[l]++
	}
}

// begun returns, for each lock, the number of holds that have begun.
func (h *holds) begun() map[lock]int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.began)
}

// ended returns the number of holds of a lock that have ended.
func (h *holds) ended(l lock) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over[l]
}
