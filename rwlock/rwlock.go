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

// ErrUpgrade: Lock or TryLock got a context that carries a read hold, or an owner ([rlock.WithOwner]) that
// has one. A reader cannot become the writer, because two that tried would wait for each other without end.
// Unlock the read hold first.
var ErrUpgrade error = errUpgrade

var errUpgrade = engine.ErrUpgrade // so that documentation shows no internal package

// RWMutex is a read-write lock: a name in a session. It keeps no state of its own. Safe for concurrent use.
// Any number of RWMutexes of one name are one lock. It is a [rlock.Locker], to write; that to read is
// [RWMutex.RLocker].
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

// New names a read-write lock. It does no I/O and is cheap. Any string of 1 to 512 bytes is a name. What is
// wrong with a name or session, every method returns. The options are those of each acquisition,
// as of [rlock.New].
//
// Locks of several kinds that have one name do not exclude each other: a writer and a holder of rlock's lock
// are inside at the same time, without an error. So take a name by one kind in all programs.
func New(s *rlock.Session, name string, options ...rlock.Option) *RWMutex {
	return &RWMutex{inner.New(s, kind, name, options)}
}

// unwrap is the lock to write.
func (m *RWMutex) unwrap() *rlock.Mutex {
	if m == nil {
		return nil
	}
	return m.mutex
}

// Name is the lock's name.
func (m *RWMutex) Name() string { return m.unwrap().Name() }

// Lock waits until the lock is held to write: no other hold of it is left. It returns the hold and the
// context to go on with, which carries the hold and ends with it. A ctx that descends from a live hold of
// this lock re-enters if that is to write, and else gets [ErrUpgrade] at once. With a context that does not
// descend from the caller's own read hold, it waits for a lock that its own caller holds: a deadlock.
//
// What bounds the wait, and what the errors are, is as with [rlock.Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.unwrap().Lock(ctx, options...)
}

// TryLock is Lock that never waits: it returns a *[rlock.LockedError] instead, also if others wait. Where
// Lock returns [ErrUpgrade], so does TryLock. It blocks for one request, not longer than ctx and a
// [rlock.WaitAtMost] above zero say.
func (m *RWMutex) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return m.unwrap().TryLock(ctx, options...)
}

// RLock waits until the lock is held to read. Others may hold it to read, too, and none holds it to write. A
// ctx that descends from a live hold of this lock, to read or to write, re-enters. If the write hold is
// unlocked first, the lock goes on being held to read, and no writer comes between. The context of that
// reader goes on, too: until the context ends that the outermost Lock was given.
//
// What bounds the wait, and what the errors are, is as with [rlock.Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return inner.Acquire(ctx, m.unwrap(), read, options, false)
}

// TryRLock is RLock that never waits: it returns a *[rlock.LockedError] instead, also if a writer waits,
// unless it joins what its session reads. It blocks for one request, not longer than ctx and a
// [rlock.WaitAtMost] above zero say.
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

// RLocker is the lock to read, as a [rlock.Locker]: its Lock is RLock, and its TryLock is TryRLock.
func (m *RWMutex) RLocker() rlock.Locker { return reader{m} }

type reader struct{ m *RWMutex }

func (r reader) Name() string { return r.m.Name() }

func (r reader) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return r.m.RLock(ctx, options...)
}

func (r reader) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return r.m.TryRLock(ctx, options...)
}

// Inspect asks Redis for the holders, those that read or the one that writes, and the waiters. It changes
// nothing, and blocks for one request, not longer than ctx.
func (m *RWMutex) Inspect(ctx context.Context) (rlock.State, error) { return m.unwrap().Inspect(ctx) }

// ForceUnlock takes the lock from the holder that writes, and reports whether there was one. If the lock is
// only held to read, ForceUnlock does nothing and returns false, and [RWMutex.ForceUnlockReaders] frees the
// lock. ForceUnlock is for operators: the holder goes on without the lock until its next request or renewal.
// That is at most a third of its lease, or the rest of a fixed one. It blocks for one request, not longer
// than ctx.
func (m *RWMutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.unwrap().ForceUnlock(ctx)
}

// ForceUnlockReaders is ForceUnlock of all that hold the lock to read. It returns how many sessions did.
func (m *RWMutex) ForceUnlockReaders(ctx context.Context) (int, error) {
	return inner.Mutex(m.unwrap()).Force(ctx, engine.ForceShared)
}

// ForceUnlockToken is ForceUnlock of the one holder, to read or to write, that [RWMutex.Inspect] has shown
// with this token. If it does not hold the lock any more, nothing changes.
func (m *RWMutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return m.unwrap().ForceUnlockToken(ctx, token)
}
