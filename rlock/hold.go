package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// Hold is one acquisition of a lock, which Unlock ends. Nested holds of one lock share its lease and token,
// and may be unlocked in any order. The last Unlock frees the lock. All methods are safe for concurrent use,
// and on a nil Hold.
//
// If a Hold without a fixed lease was not unlocked, the session logs and releases it once the garbage
// collector finds it. That happens when neither the Hold nor the context that came with it can be reached
// any more. Keep a reference to one of them for as long as the lock is needed. A goroutine that only waits
// for the channel of Done keeps neither.
type Hold hold

// hold is the underlying type of Hold. Since Hold adds no fields, Lock does not allocate a second object.
type hold = handle.Hold

// HoldFrom returns the innermost Hold of any lock from which ctx descends, even if that Hold has ended. It
// returns nil if there is none, or if ctx is nil. All methods may be called on a nil Hold. In a function
// that [Do] runs, HoldFrom returns the Hold of that lock. In code that runs under the context of a Campaign
// (package election), use the Hold only for its token, and end the leadership by Resign instead of Unlock.
func HoldFrom(ctx context.Context) *Hold { return (*Hold)(handle.From(ctx)) }

// Unlock ends the hold. If no nested hold is left, it frees the lock, or passes it on in memory to the
// goroutine of this session that is next (see [WithHandover]). The release is always sent. ctx bounds only
// the wait for the reply, as it does for [Mutex.Lock]. If ctx is nil, has no deadline, or has ended, as the
// context of the hold itself has by then, the bound is 5 s. Unlock returns
//   - nil if the hold has ended;
//   - [ErrNotHeld] for a second call, or for a nil Hold, which does nothing;
//   - [ErrLost] if the lock had been lost before;
//   - [ErrClosed] if the session has closed and released the lock;
//   - otherwise an error of ctx or of go-redis, as Lock does. It is then not known whether the request has
//     reached Redis. The session repeats it in the background until the lease has ended, unless the error
//     says that it does not, for example because the client is closed.
//
// After every result, the context of the hold is canceled, and the lock must be treated as released. Unlock
// never frees a lock that another owner has acquired meanwhile.
func (h *Hold) Unlock(ctx context.Context) error { return (*handle.Hold)(h).Unlock(ctx) }

// Token returns the fencing token. It is larger than the token of every earlier holder of the lock. That
// holds across restarts of Redis, too, as long as its clock is not set back by more than the time for which
// Redis was down. Nested holds share one token. The resource that the lock protects can reject a request
// whose token is smaller than one it has seen. A function that Do runs finds its Hold by [HoldFrom]. Token
// returns 0 for the Hold of a MultiLock, whose Parts have the tokens.
func (h *Hold) Token() int64 { return (*handle.Hold)(h).Token() }

// Name returns the name of the lock.
func (h *Hold) Name() string { return (*handle.Hold)(h).Name() }

// Deadline returns the time until which the lock is held unless its lease is renewed. Each renewal moves it.
// It has no meaning for a hold that has ended.
func (h *Hold) Deadline() time.Time { return (*handle.Hold)(h).Deadline() }

// Err returns nil while the lock is held, and then [ErrNotHeld] after Unlock, [ErrLost], or [ErrClosed]. It
// sends no request. It compares the deadline with the local monotonic clock. So in a process that was
// stopped, Err reports the end of the lease even before the context ends. On Linux, this clock stops while
// the machine is suspended. After that, Err returns nil until the next renewal finds that the lock is lost,
// or until a fixed lease ends.
func (h *Hold) Err() error { return (*handle.Hold)(h).Err() }

// Extend makes the lease last for at least d from now. It never shortens the lease. It sends a request and
// blocks for the reply, at most until ctx ends. After an error other than [ErrLost], [ErrNotHeld] and
// [ErrClosed], the hold stays valid with the lease that it had.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	return (*handle.Hold)(h).Extend(ctx, d)
}

// WaitReplicas blocks until at least n replicas of the server have the lock, according to the WAIT command
// of Redis. So a failover to one of these replicas does not lose the lock. WaitReplicas repeats its requests
// until ctx or the hold ends. It makes a loss less likely but cannot rule it out, because WAIT does not
// decide which replica is promoted, and a replica that restarts empty has no data.
//
// Call it after Lock if a lock that is lost in a failover would do harm. After an error the lock is still
// held, so unlock it:
//
//	held, hold, err := m.Lock(ctx)
//	...
//	defer hold.Unlock(ctx)
//	if err := hold.WaitReplicas(held, 1); err != nil {
//		return err
//	}
//
// If ctx has ended, the error matches that of ctx, and says how many replicas have the lock. The error is
// [ErrLost] if a failover has already lost the lock. Pass a context with a deadline, because otherwise
// WaitReplicas waits as long as replicas are missing and the lock is held. Each try blocks a connection for
// up to 100 ms, and sends two requests. The client must be a *redis.Client or a *redis.ClusterClient, or
// have MasterForKey. For the hold of a MultiLock, WaitReplicas waits for each part. For the hold of a
// RedLock it returns an error, because a RedLock needs no replicas.
func (h *Hold) WaitReplicas(ctx context.Context, n int) error {
	return (*handle.Hold)(h).WaitReplicas(ctx, n)
}

// Parts returns the holds of the members, in the order of the members, for a Hold of several locks (package
// multilock). It returns nil for a Hold of one lock. The parts end with the Hold, and must not be unlocked.
func (h *Hold) Parts() []*Hold {
	var parts []*Hold
	for _, p := range (*handle.Hold)(h).Parts() {
		parts = append(parts, (*Hold)(p))
	}
	return parts
}

// WithOwner returns a context below which all calls of Lock have one owner, even if the code does not pass
// on the contexts that Lock returns. It is for code whose layers share the context of a request. A Lock
// below it nests in the latest hold of the same name that was taken below it, whichever goroutine took that
// hold. So WithOwner does not exclude these goroutines from each other. Goroutines that lock a free name at
// the same moment take turns, so none of them may wait for another one while it has the lock. After a loss,
// Lock returns [ErrLost] for that name until the lost hold is unlocked, or neither the hold nor its context
// can be reached any more.
//
// WithOwner panics if ctx is nil.
func WithOwner(ctx context.Context) context.Context { return handle.WithOwner(ctx) }
