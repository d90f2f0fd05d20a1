// Package redisson has the locks that programs share with a JVM that uses Redisson: its RLock and
// RFencedLock.
//
// A lock of this package has the hash, the channel and the token counter of the JVM's lock of the same name.
// Go and JVM exclude each other and wake each other. A [Mutex] is used as an rlock.Mutex is: everything said
// there of Lock, TryLock, Do, re-entry, leases and tokens holds here, too. Two things are not there:
// [rlock.HoldAtLeast] is an error, and no goroutine hands the lock to the next one in memory.
//
//	session, err := rlock.NewSession(rdb)
//	...
//	m := redisson.New(session, "orders:42") // redisson.getLock("orders:42") in the JVM
//	err = m.Do(ctx, func(ctx context.Context) error { ... })
//
// The session's prefix is not used: the name of the lock is its key. So every method refuses names that could
// be keys of other locks. These begin with "redisson_lock_token:" or "lockline_lock_memory:", or contain
// a lower-case letter between ":" and ":{", as ":r:{". Names whose braces are no hash tag are refused, too.
//
// # Waiting
//
// There is no queue, since Redisson's RLock has none. An unlock publishes a message to all waiters. Waiters
// of a JVM send a request then, and so does one goroutine of each session. Goroutines of a session take
// turns, in the order in which they came. After its turn, a session lets other clients go first. So a wait
// has no bound. Locks that no JVM takes are better off in package rlock. If a message is lost, waiters send a
// request when the holder's lease has ended, and every 6 s ([rlock.WithWaiterTimeout]).
//
// On a Cluster, a release wakes only the waiters that are subscribed as it is published. The default is for
// Redisson's default ShardedSubscriptionMode.AUTO, and [rlock.WithClassicPubSub] for OFF. The reply to a lock
// request says which of the two the server uses.
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

// scripts keep the hash, the channel and the token counter as the JVM does.
var scripts = struct{ acquire, keep, release, inspect, force *wire.Script }{
	acquire: wire.Named("redisson/acquire"),
	keep:    wire.Named("redisson/keep"),
	release: wire.Named("redisson/release"),
	inspect: wire.Named("redisson/inspect"),
	force:   wire.Named("redisson/force"),
}

// Mutex is a lock that programs share with a JVM: a name in a session. It keeps no state of any acquisition,
// so that one Mutex serves any number of goroutines, and any number of Mutexes of one name are one lock. The
// zero Mutex returns an error from every method.
type Mutex struct {
	s   *session.Session
	all *locks
	n   *names // nil means New has an error
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

// New names a lock that the JVM takes by getLock. It does no I/O and is cheap. If the name or the
// session is wrong, Lock returns the error.
//
// Where the JVM takes the name by getFencedLock, use [NewFenced]. With New, the JVM's tokens begin at 1,
// even if Go had higher tokens before. A counter that the JVM has made is raised all the same.
//
// It does not exclude locks of this library's other kinds that have its name: both are inside at the same
// time, without an error.
func New(s *rlock.Session, name string, options ...rlock.Option) *Mutex {
	return newMutex(s, name, "", options)
}

// NewFenced names a lock that the JVM takes by getFencedLock: the tokens of both sides rise together from the
// first hold on, whichever side has it. For that it makes Redisson's token counter,
// redisson_lock_token:{name}. As Redisson's own, that key has no expiry. Take a name by New or by NewFenced,
// not by both. It excludes no locks of other kinds that have its name, see [New].
func NewFenced(s *rlock.Session, name string, options ...rlock.Option) *Mutex {
	return newMutex(s, name, "0", options)
}

// newMutex returns a lock with a counter as names has it.
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

// Lock waits until the lock is held, and returns the hold and the context for the work. It blocks until ctx
// ends, or for as long as [rlock.WaitAtMost] says. Everything else is as of [rlock.Mutex.Lock].
func (m *Mutex) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.take(ctx, options, false)
}

// TryLock never waits for another holder. Instead it returns a *[rlock.LockedError]. Otherwise it does the
// same as Lock. It blocks for one request, which is sent up to four times in an outage, and is bounded as
// Lock is by ctx and a [rlock.WaitAtMost] above zero.
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

// Inspect reads the holder of the lock, which may be a thread of a JVM. It changes nothing, and
// blocks for one request, not longer than ctx.
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

// ForceUnlock frees the lock, whichever owner holds it, here or in a JVM, and reports whether it was held. It
// is for operators, because the holder works for a while without the lock, see [rlock.Mutex.ForceUnlock].
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) { return m.force(ctx, "") }

// ForceUnlockToken does the same as [Mutex.ForceUnlock] for the one holder that [Mutex.Inspect] has shown
// with this token. If another owner holds the lock by now, or the lock is free, it changes nothing and
// returns false. It blocks for one request, not longer than ctx. A token that is not above 0 is an error.
// Inspect shows 0 for a hold of a JVM, which only ForceUnlock frees.
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

// operate sends a request of an operator, which needs no rollback, and returns the reply.
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
