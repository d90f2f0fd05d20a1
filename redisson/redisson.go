// Package redisson provides locks that Go programs share with a JVM: Redisson's RLock and RFencedLock.
//
// A lock of this package has the hash, the channel and the token counter of the JVM's lock of the same name.
// Go and JVM exclude each other and wake each other. A [Mutex] is used like an rlock.Mutex. The documentation
// of Lock, TryLock, Do, re-entry, leases and tokens in package rlock applies here, too. There are two
// differences: [rlock.HoldAtLeast] is an error, and no goroutine passes the lock on to another one in memory.
//
//	session, err := rlock.NewSession(rdb)
//	...
//	m := redisson.New(session, "orders:42") // redisson.getLock("orders:42") in the JVM
//	err = m.Do(ctx, func(ctx context.Context) error { ... })
//
// The session's prefix is not used, because the name of the lock is its key. So every method refuses names
// that could be keys of other locks. Such names begin with "redisson_lock_token:" or "lockline_lock_memory:",
// or contain a lower-case letter between ":" and ":{", for example ":r:{". Names whose braces are not a hash
// tag are refused, too.
//
// # Waiting
//
// There is no queue, because Redisson's RLock has none. An unlock publishes a message to all waiters. Waiters
// of a JVM send a request then, and so does one goroutine of each session. Goroutines of a session take
// turns, in the order in which they came. After its turn, a session lets other clients go first. So a waiter
// may be overtaken without limit. For locks that no JVM takes, use package rlock. If a message is lost,
// waiters send a request when the holder's lease has ended, and every 6 s ([rlock.WithWaiterTimeout]).
//
// On a Cluster, a release is published in one mode, classic or sharded, and wakes only waiters that are
// subscribed in the same mode. By default, a session does the same as Redisson with its default,
// ShardedSubscriptionMode.AUTO. With [rlock.WithClassicPubSub], it does the same as Redisson with OFF. The
// reply to a lock request contains the mode in which the server publishes.
package redisson

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// scripts use the hash, the channel and the token counter in the same way as the JVM.
var scripts = struct{ acquire, keep, release, inspect, force *wire.Script }{
	acquire: wire.Named("redisson/acquire"),
	keep:    wire.Named("redisson/keep"),
	release: wire.Named("redisson/release"),
	inspect: wire.Named("redisson/inspect"),
	force:   wire.Named("redisson/force"),
}

// A Mutex is, in one session, a lock that Go programs share with a JVM. It has no state of any
// acquisition. Any number of goroutines can use one Mutex, and all Mutexes with the same name are one lock.
// On a zero Mutex, every method that can return an error returns one.
type Mutex struct {
	s   *session.Session
	all *locks
	n   *names // nil if New has failed
	cfg engine.Config
	err error // error of New, which all methods return
}

var _ rlock.Locker = (*Mutex)(nil)

// identity is equal for Mutexes that name one lock in one session.
type identity struct {
	s   *session.Session
	key string
}

func init() {
	inner.Identify(func(l rlock.Locker) any {
		if m, ok := l.(*Mutex); ok && m != nil && m.n != nil {
			return identity{m.s, m.n.keys.LockKey()}
		}
		return nil
	})
}

// New names a lock that the JVM takes by getLock. It does no I/O and is cheap. If the name or the session is
// not valid, Lock returns an error.
//
// If the JVM takes the lock by getFencedLock, use [NewFenced]. With New, the JVM's tokens begin at 1, even if
// Go had higher tokens before. But if the JVM has already created its token counter, each hold of Go
// increases the counter.
//
// The lock does not exclude locks of this library's other kinds with the same name. Both can be held at the
// same time, without an error.
func New(s *rlock.Session, name string, options ...rlock.Option) *Mutex {
	return newMutex(s, name, "", options)
}

// NewFenced names a lock that the JVM takes by getFencedLock. From the first hold on, the tokens of Go and
// the JVM increase together, whichever side has the hold. For this, the first hold creates Redisson's token
// counter, redisson_lock_token:{name}. The key has no expiry, as if Redisson had created it. Use New or
// NewFenced for a name, but not both. The lock does not exclude locks of other kinds with the same name, see
// [New].
func NewFenced(s *rlock.Session, name string, options ...rlock.Option) *Mutex {
	return newMutex(s, name, "0", options)
}

// newMutex returns a lock. counter is the first value of the token counter, or "" if the lock must not create
// one (see the type names).
func newMutex(s *rlock.Session, name, counter string, options []rlock.Option) *Mutex {
	m := &Mutex{s: inner.Session(s), cfg: engine.NewConfig(engine.Config{}, options)}
	if m.s == nil {
		m.err = failure.Named(name, failure.ErrNilSession)
		return m
	}
	if m.n, m.err = newNames(m.s, name, counter); m.err != nil {
		return m
	}
	if m.all, m.err = session.PartOf(m.s, locksKey{}, newLocks); m.err != nil {
		m.err = failure.Named(name, m.err)
	}
	return m
}

var errZero = errors.New("lockline: the lock is nil or a zero value; make one with redisson.New")

// check returns the error of a call that cannot work, or that has a nil context.
func (m *Mutex) check(ctx context.Context) error {
	switch {
	case m == nil || m.s == nil && m.err == nil:
		return errZero
	case m.err != nil:
		return m.err
	case ctx == nil:
		return failure.Named(m.n.keys.Name, failure.ErrNilContext)
	}
	return nil
}

// Name returns the lock's name.
func (m *Mutex) Name() string {
	if m == nil || m.n == nil {
		return ""
	}
	return m.n.keys.Name
}

// Lock waits until the lock is held, and returns the hold and the context for the work. It blocks at most
// until ctx ends, or for the time of [rlock.WaitAtMost]. Everything else is the same as for
// [rlock.Mutex.Lock].
func (m *Mutex) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.take(ctx, options, false)
}

// TryLock does the same as Lock, but does not wait for another holder. If the lock is held, it returns a
// *[rlock.LockedError]. It blocks for one request, bounded by ctx and by a [rlock.WaitAtMost] above zero. In
// an outage, the request is sent up to four times. If the session is just releasing the lock, TryLock first
// waits for the end of the release, for up to 250 ms.
func (m *Mutex) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.take(ctx, options, true)
}

func (m *Mutex) take(
	ctx context.Context, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	if err := m.check(ctx); err != nil {
		return ctx, nil, err
	}
	h, err := m.acquire(ctx, engine.NewConfig(m.cfg, options), try)
	if err != nil {
		return ctx, nil, err
	}
	ctx, hd := handle.New(ctx, h)
	return ctx, (*rlock.Hold)(hd), nil
}

// Do calls [rlock.Do] with this lock.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, m, fn, options...)
}

// Inspect reads the holder of the lock, which may be a thread of a JVM. It changes nothing, and blocks for
// one request, at most until ctx ends.
func (m *Mutex) Inspect(ctx context.Context) (rlock.State, error) {
	reply, err := m.operate(ctx, scripts.inspect)
	if err != nil {
		return rlock.State{}, err
	}
	s, err := protocol.DecodeRedisson(m.Name(), reply)
	if err != nil {
		return rlock.State{}, failure.Named(m.Name(), err)
	}
	st := rlock.State{Name: s.Name, Held: s.Held, Holder: rlock.Holder(s.Holder)}
	for _, h := range s.Holders {
		st.Holders = append(st.Holders, rlock.Holder(h))
	}
	return st, nil
}

// ForceUnlock frees the lock, whether a session or a JVM holds it, and reports whether it was held. It is for
// operators, because the holder continues for a while without the lock, see [rlock.Mutex.ForceUnlock].
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) { return m.force(ctx, "") }

// ForceUnlockToken does the same as [Mutex.ForceUnlock] for the one holder that [Mutex.Inspect] has shown
// with this token. If another owner holds the lock by now, or the lock is free, it changes nothing and
// returns false. It blocks for one request, at most until ctx ends. A token that is not above 0 is an error.
// Inspect shows the token 0 for a hold of a JVM. Only ForceUnlock frees such a hold.
func (m *Mutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	if token <= 0 {
		return false, failure.Named(m.Name(), fmt.Errorf("a token is above 0, not %d", token))
	}
	return m.force(ctx, protocol.Number(token))
}

// force frees the lock if its holder has this token. If token is "", any holder loses the lock.
func (m *Mutex) force(ctx context.Context, token string) (bool, error) {
	if err := m.check(ctx); err != nil {
		return false, err
	}
	reply, err := m.operate(ctx, scripts.force, m.s.Args.Retention, token, m.n.channel, m.n.how)
	if err != nil {
		return false, err
	}
	n, err := strconv.Atoi(reply)
	if err != nil {
		return false, m.n.keys.Failed("", wire.Unexpected(reply))
	}
	return n > 0, nil
}

// operate sends a request of an operator and returns the reply. If the caller leaves before the reply, the
// effect of the request is not undone.
func (m *Mutex) operate(ctx context.Context, sc *wire.Script, argv ...any) (string, error) {
	if err := m.check(ctx); err != nil {
		return "", err
	}
	r := &protocol.FixedRequest{Script: sc, Keys: m.n.keys, Argv: argv}
	send := func(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
		return m.s.Link.Call(ctx, r, maxTries, abandoned)
	}
	o, err := call.Do(ctx, m.s, m.n.keys, "", call.Func(send))
	return o.Reply, err
}
