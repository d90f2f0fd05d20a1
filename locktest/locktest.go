// Package locktest has locks in memory, for the tests of code that takes an [rlock.Locker]. A [Space] stands
// for Redis. Its Lockers do what an [rlock.Mutex] promises: re-entry by context, fencing tokens, leases,
// waiters, the same errors. And a test can make happen what is rare in production:
//
//	var space locktest.Space
//	orders := space.New("orders:42")   // for the code under test
//	space.Lose("orders:42")            // its holder's context is canceled with rlock.ErrLost
//	free := space.Occupy("orders:42")  // another session holds it until free is called
//	space.Fail(errors.New("outage"))   // Lock, TryLock, Unlock and Extend fail
//
// There is no server, and no goroutine. Time can be that of testing/synctest.
// What differs from Redis, and what to test with a server, is in docs/testing.md.
package locktest

import (
	"os"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// Space is where Lockers of one name exclude each other, as sessions do that use the
// same Redis and prefix. All Lockers of a Space are of one session. The zero Space is
// ready for use. Its methods are safe for concurrent use and never block. Those of a nil
// Space panic.
type Space struct {
	mu     sync.Mutex // guards all that belongs to the Space: locks, grants, holds
	locks  map[string]*lock
	outage error // what requests fail with; nil: they succeed
}

// New names a lock. It does no more, and any number of Lockers of one name are one lock.
func (s *Space) New(name string, options ...rlock.Option) *Locker {
	cfg := engine.NewConfig(engine.Config{}, options)
	return &Locker{lock: s.lock(name), cfg: cfg, err: protocol.CheckName(name)}
}

// Lose takes the lock from its holder, as an expired lease, an operator or a failover would, and reports
// whether there was one. At once the context of each of the holder's holds is canceled with cause
// [rlock.ErrLost], which is what Unlock returns, too. The first waiter gets the lock.
func (s *Space) Lose(name string) bool {
	l := s.lock(name)
	defer l.enter()()
	if l.st == nil {
		return false
	}
	l.pass(nil)
	return true
}

// Occupy has another session hold the lock, as one of another process would, until free is
// called. A holder loses it, as by [Space.Lose]. Waiters go on waiting.
func (s *Space) Occupy(name string) (free func()) {
	l := s.lock(name)
	defer l.enter()()
	l.grants++
	st := l.newGrant(elsewhere, l.grants)
	l.pass(st)
	return func() {
		defer l.enter()()
		if l.st == st {
			l.pass(nil)
		}
	}
}

// Fail makes requests fail with err, as an outage of Redis does, until Fail(nil): Lock
// and TryLock, also those that re-enter, Unlock and Extend. A hold whose Unlock failed has
// ended. Goroutines that wait already go on waiting. No lock is lost by it: for that there is Lose.
func (s *Space) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outage = err
	for _, l := range s.locks {
		l.expire()
		l.serve()
	}
}

// Inspect shows the holder of the lock and its waiters. Queue has all waiters, in
// order, those that wait for a re-entry among them.
func (s *Space) Inspect(name string) rlock.State {
	l := s.lock(name)
	defer l.enter()()
	state := rlock.State{Name: name}
	state.Token = l.last
	if st := l.st; st != nil {
		state.Held = true
		state.Holder = rlock.Holder{Owner: st.owner, Session: st.by.session, Host: st.by.host, PID: st.by.pid,
			Token: st.token, Remaining: time.Until(st.deadline()),
			Count: max(len(st.holds), 1)} // another session enters once
		state.Holders = []rlock.Holder{state.Holder}
	}
	for _, h := range l.queue {
		state.Queue = append(state.Queue, rlock.Waiter{
			Owner: l.owner(here, h.number), Session: here.session, PID: here.pid, Host: here.host,
			Age: time.Since(h.since),
		})
	}
	return state
}

// party is a session that holds or waits.
type party struct {
	session, host string
	pid           int
}

var (
	here      = &party{"locktest", "localhost", os.Getpid()}
	elsewhere = &party{"somebody-else", "elsewhere", 1}
)

func (s *Space) lock(name string) *lock {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks == nil {
		s.locks = map[string]*lock{}
	}
	l := s.locks[name]
	if l == nil {
		l = &lock{s: s, name: name}
		s.locks[name] = l
	}
	return l
}
