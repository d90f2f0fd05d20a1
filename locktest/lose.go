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

// noticed is the longest time for which Lose waits for sessions to notice a loss.
const noticed = 10 * time.Second

// Lose takes the lock of this name from its holders, as an operator does by a forced unlock. This works for
// locks of any kind, all permits of a semaphore, the writer and all readers of a read-write lock, and the
// leadership of an election. The first waiter gets the lock, possibly some milliseconds before the last
// holder notices the loss. In contrast, a holder notices the end of its lease before others can get the lock.
// To test that, use [Server.Silence] and fake time.
//
// Lose notifies the sessions of the server, so that they notice the loss before their next renewal. When Lose
// returns, the contexts of their holds have ended with the cause [rlock.ErrLost]. There are three exceptions:
//   - A session that cannot reach the server, because of Silence or Refuse, is not notified. Its holds end
//     with their leases.
//   - The context of a MultiLock ends a moment later. Wait for its Done.
//   - A RedLock is lost when a majority of its servers has lost it. Its context ends a moment later, too.
//
// Lose fails the test if nothing of that name is held. In fake time, some milliseconds pass.
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

// begun has the number of holds that had begun in a session, for each lock.
type begun struct {
	*link
	holds map[lock]int64
}

// begun returns the holds that have begun in each session.
func (s *Server) begun() (all []begun) {
	for _, l := range s.sessions() {
		all = append(all, begun{l, l.holds.begun()})
	}
	return all
}

// confirmHolds makes the sessions confirm all of their holds in Redis. It waits until the holds in `before`
// of lost locks have ended.
func (s *Server) confirmHolds(what string, before []begun, lost func(lock) bool) {
	s.t.Helper()
	for _, b := range before {
		inner.Session(b.session).Link.Reconnected()
	}
	for _, b := range before {
		for l, n := range b.holds {
			// A RedLock is not lost while a majority of its servers has it.
			if l.kind != protocol.RedLock && lost(l) && !s.notices(b.link, l, n) {
				s.t.Errorf("locktest: %s: the holder of %q has not noticed the loss within %v", what, l.name,
					noticed)
			}
		}
	}
}

// notices waits until n holds of a lock have ended in a session. It returns at once if the session cannot
// reach the server.
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

// force takes all locks of this name from their holders, and returns the kinds that were held. It looks for a
// lock of package redisson only if shared is true, because otherwise the key of such a lock may belong to
// other data.
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

// operate calls f with a session whose connection has no faults.
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
// does, and reports whether there were any.
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

// holds counts the holds of a session, by kind and name.
type holds struct {
	mu    sync.Mutex     // guards the fields below
	began map[lock]int64 // number of holds that have begun
	over  map[lock]int64 // number of holds that have ended
}

type lock struct{ kind, name string }

// follow counts the holds of a session from now on.
func follow(s *rlock.Session) *holds {
	h := &holds{began: map[lock]int64{}, over: map[lock]int64{}}
	in := inner.Session(s)
	observer := in.Observer // an observer of the user, or nil
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
	case e.Kind == session.EventAcquired && e.Depth == 1: // nested holds are not counted
		h.began[l]++
	case e.Kind == session.EventReleased, e.Kind == session.EventLost:
		h.over[l]++
	}
}

// begun returns the number of holds of each lock that have begun.
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
