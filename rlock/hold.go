package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// Hold is one entry into a lock, ended by Unlock. Holds of one lock that are
// nested share its lease and token, and may be unlocked in any order: the last one
// frees the lock. All methods are safe for concurrent use, and on a nil Hold.
//
// A Hold without a fixed lease that was not unlocked is logged and released once the garbage collector finds
// it. That is when neither the Hold nor the context that came with it can be reached any more. Keep one of
// them for as long as the lock is needed: a goroutine that only waits for the channel of Done keeps neither.
type Hold hold

// hold is the whole of a Hold, so that a Lock need not allocate another one around it.
type hold = handle.Hold

// HoldFrom is the innermost Hold that ctx descends from, of whatever lock, also if it is over. It is nil if
// there is none, or ctx is nil: all methods are safe to call on it. In the function that [Do] runs, it is the
// Hold of that lock. In code that runs under the context of a Campaign (package election), use the Hold only
// for its token, and end the leadership by Resign, not by Unlock.
func HoldFrom(ctx context.Context) *Hold { return (*Hold)(handle.From(ctx)) }

// Unlock ends the hold. If no nested hold is left, it frees the lock, or hands it, in memory and at once, to
// the goroutine of this session that is next in line (see [WithHandover]). The release is always sent. ctx
// bounds only the wait for its answer, as it bounds [Mutex.Lock]. The bound is 5 s if ctx is nil, never ends,
// or has ended, as the hold's own context has by then. It returns
//   - nil: the hold has ended;
//   - [ErrNotHeld] for a second call (or a nil Hold), which does nothing;
//   - [ErrLost] if the lock had been lost before;
//   - [ErrClosed] if the session gave the lock back;
//   - else an error of ctx or of go-redis, as of Lock: whether Redis was told is not known. It
//     is tried again in the background until the lease has run out, unless the error says that it is not.
//     The client may be closed, for one.
//
// Whatever it returns, the hold's context is canceled: treat the lock as released. Unlocking never frees a
// lock that another owner holds by now.
func (h *Hold) Unlock(ctx context.Context) error { return (*handle.Hold)(h).Unlock(ctx) }

// Token is the fencing token. It is larger than that of every holder of the lock before. This holds across
// restarts of Redis, too, as long as its clock is not set back by more than it was down. Nested holds share
// it. What the lock protects can refuse a request whose token is smaller than one it has seen. The function
// that Do runs finds its Hold by [HoldFrom]. The Hold of a MultiLock has none, and says 0: its Parts have.
func (h *Hold) Token() int64 { return (*handle.Hold)(h).Token() }

// Name is the lock's name.
func (h *Hold) Name() string { return (*handle.Hold)(h).Name() }

// Deadline is until when the lock is safely held as things stand: it moves with
// every renewal. Of a hold that is over it says nothing.
func (h *Hold) Deadline() time.Time { return (*handle.Hold)(h).Deadline() }

// Err is nil while the lock is held, and then says why it is not any more: [ErrNotHeld] after Unlock,
// [ErrLost], or [ErrClosed]. It sends no request. It goes by the deadline on the local monotonic clock, so in
// a process that was stopped it knows of the end of the lease before the context ends. On Linux that clock
// stands still while the machine is suspended. After that, Err is nil until the next renewal finds the lock
// lost, or until the end of a fixed lease.
func (h *Hold) Err() error { return (*handle.Hold)(h).Err() }

// Extend makes the lease last at least d from now; it never shortens it. It asks
// Redis and blocks for the answer, not longer than ctx. After an error other than
// [ErrLost], [ErrNotHeld] and [ErrClosed] the hold goes on with the lease it had.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	return (*handle.Hold)(h).Extend(ctx, d)
}

// WaitReplicas blocks until at least n replicas of the server have the lock, as far as Redis' WAIT tells. So
// a failover to one of them does not forget it. It tries until ctx ends or the hold does. It makes a loss
// less likely and does not rule it out: WAIT does not decide which replica is promoted, and a replica that
// restarts empty forgets.
//
// Call it after Lock, where a lock that a failover forgets would do harm. After an error the hold goes on, so
// unlock it:
//
//	held, hold, err := m.Lock(ctx)
//	...
//	defer hold.Unlock(ctx)
//	if err := hold.WaitReplicas(held, 1); err != nil {
//		return err
//	}
//
// The error matches ctx's where that has ended, and says how many replicas have the lock. It is [ErrLost] if
// a failover has forgotten the lock already. The context should have a deadline: without one, it waits as
// long as replicas are missing and the hold lasts. Each try blocks a connection for up to 100 ms, and two
// requests are sent. The client must be a *redis.Client or a *redis.ClusterClient, or have MasterForKey. The
// hold of a MultiLock waits for each part. A RedLock needs no replicas, and its hold refuses.
func (h *Hold) WaitReplicas(ctx context.Context, n int) error {
	return (*handle.Hold)(h).WaitReplicas(ctx, n)
}

// Parts are the holds that it is made of, in the order of its members, for a Hold of several locks (package
// multilock); nil for a Hold of one lock. They end with it and need no Unlock of their own.
func (h *Hold) Parts() []*Hold {
	var parts []*Hold
	for _, p := range (*handle.Hold)(h).Parts() {
		parts = append(parts, (*Hold)(p))
	}
	return parts
}

// WithOwner makes all that runs below the returned context one owner of whatever locks it takes, whether or
// not it passes on the contexts that Lock returns. It is for code whose layers share a request's context. A
// Lock below it nests in the latest hold of that name that was taken below it, whichever goroutine has that:
// WithOwner gives no exclusion between them. Goroutines that lock a free name at one instant take turns, so
// none of them may wait for another while it has the lock. After a loss its Locks of that name return
// [ErrLost] until the hold that was lost is unlocked, or neither it nor its context can be reached any more.
//
// WithOwner panics if ctx is nil.
func WithOwner(ctx context.Context) context.Context { return handle.WithOwner(ctx) }
