package rwlock

import (
	"context"
	"fmt"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// ErrUpgrade means that Lock or TryLock was called with a context that carries a read hold, or with an owner
// ([rlock.WithOwner]) that has one. A reader cannot become the writer, because two readers that try would
// wait for each other without end. Unlock the read hold first.
var ErrUpgrade error = errUpgrade

var errUpgrade = engine.ErrUpgrade // keeps the internal package out of the documentation

// RWMutex is a read-write lock with a name, used by one session. It has no state of any acquisition, and all
// RWMutexes with the same name are one lock. It is safe for concurrent use. An RWMutex is the [rlock.Locker]
// of writers. [RWMutex.RLocker] returns the Locker of readers.
type RWMutex struct{ mutex *rlock.Mutex }

var _ rlock.Locker = (*RWMutex)(nil)

var kind = &engine.Kind{
	Letter:    protocol.ReadWrite,
	Want:      engine.Exclusive,
	Reentrant: true,
	Lingers:   true,
	Limited: func(name string, _ engine.Want, limit int64) error {
		return failure.Named(name, fmt.Errorf("its limit in Redis is %d, as of no read-write lock", limit))
	},
}

var read = engine.Want{N: 1, Limit: engine.All, Shared: true}

// New returns a read-write lock with this name. It sends no request and is cheap. The name may be any string
// of 1 to 512 bytes. If the name or the session is not valid, every method returns an error that says so.
// The options are the defaults of each call, as with [rlock.New].
//
// Locks of different kinds with the same name do not exclude each other. A writer and a holder of a lock of
// package rlock can be inside at the same time, without an error. So use the same kind for a name in all
// programs.
func New(s *rlock.Session, name string, options ...rlock.Option) *RWMutex {
	return &RWMutex{inner.New(s, kind, name, options)}
}

// unwrap returns the lock of writers. It returns nil for a nil RWMutex.
func (m *RWMutex) unwrap() *rlock.Mutex {
	if m == nil {
		return nil
	}
	return m.mutex
}

// Name returns the name of the lock.
func (m *RWMutex) Name() string { return m.unwrap().Name() }

// Lock waits until the lock is held to write, beside which there is no other hold. It returns the hold, and
// a context for the protected work, which carries the hold and ends with it. If ctx descends from a live
// write hold of this lock, Lock re-enters. If ctx descends from a read hold, Lock returns [ErrUpgrade] at
// once. If the caller has a read hold but passes another context, Lock waits for the caller itself: a
// deadlock.
//
// The bounds of the wait and the errors are the same as for [rlock.Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.unwrap().Lock(ctx, options...)
}

// TryLock is Lock without waiting for other holders. If the lock is held, or if others wait, it returns a
// *[rlock.LockedError]. Where Lock returns [ErrUpgrade], so does TryLock. It blocks for one request, bounded
// by ctx and by a [rlock.WaitAtMost] above zero.
func (m *RWMutex) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return m.unwrap().TryLock(ctx, options...)
}

// RLock waits until the lock is held to read, beside which there may be other readers and no writer. If ctx
// descends from a live hold of this lock, to read or to write, RLock re-enters. If the write hold is
// unlocked first, the lock stays held to read, and no other writer gets it in between. The context of that
// reader stays valid, too, until the context ends that was passed to the outermost Lock.
//
// The bounds of the wait and the errors are the same as for [rlock.Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return inner.Acquire(ctx, m.unwrap(), read, options, false)
}

// TryRLock is RLock without waiting for other holders. If a writer holds the lock or waits, TryRLock returns
// a *[rlock.LockedError], unless it can join a read lock that its session holds. It blocks for one request,
// bounded by ctx and by a [rlock.WaitAtMost] above zero.
func (m *RWMutex) TryRLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return inner.Acquire(ctx, m.unwrap(), read, options, true)
}

// Do is [rlock.Do] with the lock held to write.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, m, fn, options...)
}

// DoRead is [rlock.Do] with the lock held to read.
func (m *RWMutex) DoRead(
	ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option,
) error {
	return rlock.Do(ctx, m.RLocker(), fn, options...)
}

// RLocker returns the [rlock.Locker] of readers. Its Lock is RLock, and its TryLock is TryRLock.
func (m *RWMutex) RLocker() rlock.Locker { return reader{m} }

type reader struct{ m *RWMutex }

func (r reader) Name() string { return r.m.Name() }

func (r reader) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return r.m.RLock(ctx, options...)
}

func (r reader) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return r.m.TryRLock(ctx, options...)
}

// Inspect returns the holders, either readers or one writer, and the waiters. It sends one request, which
// changes nothing, and blocks for the reply, at most until ctx ends.
func (m *RWMutex) Inspect(ctx context.Context) (rlock.State, error) { return m.unwrap().Inspect(ctx) }

// ForceUnlock takes the lock from the writer that holds it, and reports whether there was one. If only
// readers hold the lock, ForceUnlock does nothing and returns false, and [RWMutex.ForceUnlockReaders] frees
// the lock. ForceUnlock is for operators, because the holder continues without the lock until its next
// request or renewal. That is at most for a third of its lease, or for the rest of a fixed one. It blocks
// for one request, at most until ctx ends.
func (m *RWMutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.unwrap().ForceUnlock(ctx)
}

// ForceUnlockReaders is ForceUnlock for all readers. It returns the number of sessions from which it has
// taken the lock.
func (m *RWMutex) ForceUnlockReaders(ctx context.Context) (int, error) {
	return inner.Mutex(m.unwrap()).Force(ctx, engine.ForceShared)
}

// ForceUnlockToken is ForceUnlock for the holder, reader or writer, that [RWMutex.Inspect] has returned with
// this token. If that holder has ended, nothing changes.
func (m *RWMutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return m.unwrap().ForceUnlockToken(ctx, token)
}
