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

// ErrUpgrade means that a reader of the lock has called Lock or TryLock. A reader is a caller whose context
// carries a read hold but no write hold of the lock, or whose owner ([rlock.WithOwner]) has only read holds
// of the lock. A caller whose read hold is nested in a write hold is a reader, too, while another read hold
// is nested beside its own. A reader cannot become the writer, because two readers that both tried this would
// wait for each other forever. Unlock the read hold first.
var ErrUpgrade error = errUpgrade

var errUpgrade = engine.ErrUpgrade // a variable, so that the documentation does not show the internal package

// RWMutex names a read-write lock for one session. It keeps no state of an acquisition, and several RWMutexes
// with the same name are the same lock. All methods are safe for concurrent use. An RWMutex is the
// [rlock.Locker] of writers. [RWMutex.RLocker] returns the Locker of readers.
type RWMutex struct{ mutex *rlock.Mutex }

var _ rlock.Locker = (*RWMutex)(nil)

var kind = &engine.Kind{
	Letter:    protocol.ReadWrite,
	Want:      engine.Exclusive,
	Reentrant: true,
	Lingers:   true,
	Limited: func(name string, _ engine.Want, limit int64) error {
		err := fmt.Errorf("its limit in Redis is %d, which no read-write lock has", limit)
		return failure.Named(name, err)
	},
}

var read = engine.Want{N: 1, Limit: engine.All, Shared: true}

// New returns a read-write lock with this name. It sends no request and is cheap. The name may be any string
// of 1 to 512 bytes. If the name or the session is not valid, every method that can return an error returns
// an error that says so. The options are the defaults of each call, as with [rlock.New].
//
// Locks of different kinds with the same name do not exclude each other. A writer and a holder of a lock of
// package rlock can be inside at the same time, without an error. So use the same kind for a name in all
// programs.
func New(s *rlock.Session, name string, options ...rlock.Option) *RWMutex {
	return &RWMutex{inner.New(s, kind, name, options)}
}

// unwrap returns the Mutex on which m is built. Its Lock takes the write lock, and RLock makes it take the
// read lock. unwrap returns nil for a nil RWMutex.
func (m *RWMutex) unwrap() *rlock.Mutex {
	if m == nil {
		return nil
	}
	return m.mutex
}

// Name returns the name of the lock.
func (m *RWMutex) Name() string { return m.unwrap().Name() }

// Lock waits until it gets the write lock, which excludes all other holders. It returns the hold and a
// context for the protected work. The context carries the hold and ends with it. If ctx descends from a live
// write hold of this lock, Lock re-enters. If ctx descends from a read hold but from no write hold, Lock
// returns [ErrUpgrade] at once. If the caller has a read hold but passes a context that does not descend from
// this hold, Lock waits for the caller's own hold, which is a deadlock.
//
// The bounds of the wait and all other errors are the same as for [rlock.Mutex.Lock].
func (m *RWMutex) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return m.unwrap().Lock(ctx, options...)
}

// TryLock does the same as Lock, but does not wait for other holders. If other callers hold the lock or wait
// for it, TryLock returns a *[rlock.LockedError]. If Lock would return [ErrUpgrade], TryLock returns it, too.
// TryLock blocks for one request. ctx and a [rlock.WaitAtMost] above zero bound this wait. If the session is
// just releasing the lock, TryLock first waits for the end of the release, for up to 250 ms.
func (m *RWMutex) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return m.unwrap().TryLock(ctx, options...)
}

// RLock waits until it gets a read lock, which excludes writers but not other readers. It returns the hold
// and a context for the protected work, like Lock. If ctx descends from a live hold of this lock, to read or
// to write, RLock re-enters. A write hold can be unlocked before a read hold that is nested in it. Then the
// read hold stays held, and no other writer gets the lock in between. The Unlock of the write hold does not
// end the context of the read hold. From then on, this context ends when the read hold ends, or when the
// context that was passed to the outermost call ends.
//
// The bounds of the wait and the errors are the same as for [rlock.Mutex.Lock].
func (m *RWMutex) RLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return inner.Acquire(ctx, m.unwrap(), read, options, false)
}

// TryRLock does the same as RLock, but does not wait for other holders. If its session holds a read lock that
// it can join, it joins this lock in memory. Otherwise, if another caller holds the write lock or waits for
// it, TryRLock returns a *[rlock.LockedError]. TryRLock blocks for one request. ctx and a [rlock.WaitAtMost]
// above zero bound this wait. If Redis refuses the request while the session is releasing the lock, TryRLock
// waits for the release, for up to 250 ms, and then sends its request again.
func (m *RWMutex) TryRLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return inner.Acquire(ctx, m.unwrap(), read, options, true)
}

// Do calls fn while it holds the write lock. See [rlock.Do].
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, m, fn, options...)
}

// DoRead calls fn while it holds a read lock. See [rlock.Do].
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

// ForceUnlock takes the lock from the writer that holds it, and reports whether there was such a writer. It
// takes nothing from readers, for which there is [RWMutex.ForceUnlockReaders]. ForceUnlock is for operators,
// because the holder continues without the lock for a while. The holder notices the loss at its next request
// or renewal. A lease is renewed after each third of its length, but a fixed lease is not renewed. So a
// holder with a fixed lease may notice the loss only when the lease ends. ForceUnlock blocks for the reply,
// at most until ctx ends.
func (m *RWMutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.unwrap().ForceUnlock(ctx)
}

// ForceUnlockReaders takes the lock from all readers, as ForceUnlock does from a writer. It returns the
// number of entries that it has removed from Redis. Readers of one session usually share an entry.
func (m *RWMutex) ForceUnlockReaders(ctx context.Context) (int, error) {
	return inner.Mutex(m.unwrap()).Force(ctx, engine.ForceShared)
}

// ForceUnlockToken takes the lock from the reader or writer that [RWMutex.Inspect] has returned with this
// token, and reports whether there still was such a holder. All goroutines that share the entry of this
// holder in Redis lose the lock. The holder notices the loss as after ForceUnlock.
func (m *RWMutex) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	return m.unwrap().ForceUnlockToken(ctx, token)
}
