// Package redisson provides locks that Go programs share with Java programs. In Java, such a lock is an RLock
// or an RFencedLock of Redisson, a client of Redis for the JVM.
//
// A lock of this package uses the hash, the channel and the token counter of Redisson's lock of the same
// name. So Go programs and JVMs exclude each other, and each side notifies the waiters of the other side. A
// [Mutex] is used like an [rlock.Mutex]. The documentation of Lock, TryLock, Do, re-entry, leases and tokens
// in package rlock applies here, too. But [rlock.HoldAtLeast] is an error. [rlock.WithHandover] and
// [rlock.WithLinger] have no effect, because the last Unlock of an owner always releases the lock in Redis.
//
//	session, err := rlock.NewSession(rdb)
//	...
//	m := redisson.New(session, "orders:42") // redisson.getLock("orders:42") in the JVM
//	err = m.Do(ctx, func(ctx context.Context) error { ... })
//
// The keys of a lock do not contain the session's prefix, because the name of the lock is itself a key. So a
// name must not look like a key of another lock. It must not begin with "redisson_lock_token:" or
// "lockline_lock_memory:", and must not contain a lower-case letter between ":" and ":{", as in ":r:{". If a
// name contains braces, they must form a hash tag.
//
// # Waiting
//
// There is no queue, because Redisson's RLock has none. A release publishes a message to all waiters. After
// this message, waiters of JVMs send requests, and so does one waiting goroutine of each session. The
// goroutines of a session take turns, in the order in which they came. After a release, a session usually
// lets other clients go first, for at most 1 ms. But without a queue, a waiter may be overtaken any number of
// times. For locks that no JVM takes, use package rlock.
//
// A message can be lost. So a session that waits also sends a request when the holder's lease has ended, and
// at least every 6 s by default (three fifths of [rlock.WithWaiterTimeout]).
//
// On a Cluster, a release publishes its message by either classic or sharded pub/sub. The message wakes only
// waiters that are subscribed in the same mode. By default, the mode is chosen in the same way as by a client
// of Redisson with the default setting (ShardedSubscriptionMode.AUTO). With [rlock.WithClassicPubSub],
// the mode is always classic, as with the setting ShardedSubscriptionMode.OFF.
package redisson

import (
	"context"
	"errors"
	"fmt"
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

// scripts use the hash, the channel and the token counter in the same way as Redisson.
var scripts = struct{ acquire, keep, release, inspect, force *wire.Script }{
	acquire: wire.Named("redisson/acquire"),
	keep:    wire.Named("redisson/keep"),
	release: wire.Named("redisson/release"),
	inspect: wire.Named("redisson/inspect"),
	force:   wire.Named("redisson/force"),
}

// A Mutex names, for one session, a lock that Go programs share with JVMs. It keeps no state of an
// acquisition, so any number of goroutines may use it. Several Mutexes with the same name stand for the same
// lock. On a zero Mutex, every method that can return an error returns one.
type Mutex struct {
	s   *session.Session
	all *locks
	n   *names // nil if the name or the session is not valid
	cfg engine.Config
	err error // error of New, which every method except Name returns
}

var _ rlock.Locker = (*Mutex)(nil)

// identity is the same value for all Mutexes that name one lock in one session.
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

// New returns a Mutex for a lock that JVMs get by getLock. It sends no request and is cheap. If the name or
// the session is not valid, every method except Name returns an error.
//
// If JVMs get the lock by getFencedLock, use [NewFenced]. A Mutex of New does not create Redisson's token
// counter. So the tokens of a JVM begin at 1, even if Go programs had higher tokens before. After a JVM has
// created the counter, each new holder in Go increases it, too.
//
// This lock and a lock of the same name from another package of this library do not exclude each other. Both
// locks can be held at the same time, without an error.
func New(s *rlock.Session, name string, options ...rlock.Option) *Mutex {
	return newMutex(s, name, "", options)
}

// NewFenced returns a Mutex for a lock that JVMs get by getFencedLock. It does the same as [New], except that
// Go programs and JVMs share one sequence of tokens. Each new holder, on either side, gets a higher token
// than all holders before. For this, the first holder creates Redisson's token counter,
// redisson_lock_token:{name}. This key never expires, whichever side has created it. For one name, use either
// New or NewFenced in all programs.
func NewFenced(s *rlock.Session, name string, options ...rlock.Option) *Mutex {
	return newMutex(s, name, "0", options)
}

// newMutex returns a Mutex. counter becomes names.counter.
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

// check returns an error if m is nil or zero, if New has failed, or if ctx is nil.
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

// Name returns the lock's name. It returns "" for a nil or zero Mutex, and if the name or the session is not
// valid.
func (m *Mutex) Name() string {
	if m == nil || m.n == nil {
		return ""
	}
	return m.n.keys.Name
}

// Lock waits until its caller holds the lock, and returns the hold and the context for the work. It waits
// until ctx ends at the latest, and with [rlock.WaitAtMost] for at most the given time. [rlock.Mutex.Lock]
// describes errors, nested calls and outages, which are the same here.
func (m *Mutex) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.take(ctx, options, false)
}

// TryLock does the same as Lock, but does not wait for another holder. If another owner holds the lock, or
// other goroutines of the session wait for it, TryLock returns a *[rlock.LockedError]. TryLock usually blocks
// for one request. In an outage, it sends the request up to five times. The end of ctx and an
// [rlock.WaitAtMost] above zero also bound TryLock. If the session is just releasing the lock, TryLock first
// waits for the end of this release, for up to 250 ms.
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

// Inspect reads the state of the lock. The holder may be a thread of a JVM. Inspect changes nothing, and
// blocks for one request, at most until ctx ends.
func (m *Mutex) Inspect(ctx context.Context) (rlock.State, error) {
	o, err := m.operate(ctx, scripts.inspect)
	if err != nil {
		return rlock.State{}, err
	}
	s, err := protocol.DecodeRedisson(m.Name(), o.Reply)
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
// operators. The former holder works without the lock until it notices the loss, see
// [rlock.Mutex.ForceUnlock]. ForceUnlock blocks for one request, at most until ctx ends.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) { return m.force(ctx, "") }

// ForceUnlockToken does the same as [Mutex.ForceUnlock] for the one holder that [Mutex.Inspect] has shown
// with this token. If another owner holds the lock by now, or the lock is free, ForceUnlockToken changes
// nothing and returns false. It blocks for one request, at most until ctx ends. A token that is not above 0
// is an error. If a JVM holds the lock, Inspect shows the token 0, and only ForceUnlock can free the lock.
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
	o, err := m.operate(ctx, scripts.force, m.s.Args.Retention, token, m.n.channel, m.n.how)
	if err != nil {
		return false, err
	}
	n, err := protocol.Forced(o)
	if err != nil {
		return false, m.n.keys.Failed("", err)
	}
	return n > 0, nil
}

// operate sends a request of an operator and returns the outcome. If the caller leaves before the reply, the
// request may still take effect.
func (m *Mutex) operate(ctx context.Context, sc *wire.Script, argv ...any) (wire.Outcome, error) {
	if err := m.check(ctx); err != nil {
		return wire.Outcome{}, err
	}
	r := &protocol.FixedRequest{Script: sc, Keys: m.n.keys, Argv: argv}
	send := func(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
		return m.s.Link.Call(ctx, r, maxTries, abandoned)
	}
	return call.Do(ctx, m.s, m.n.keys, "", call.Func(send))
}
