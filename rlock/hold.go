package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// A Hold is one acquisition of a lock. Unlock ends it. Nested holds of one lock share its lease and token,
// and may be unlocked in any order. The last Unlock frees the lock. All methods are safe for concurrent use,
// and may be called on a nil Hold.
//
// Suppose that a Hold without a fixed lease was not unlocked, and that neither the Hold nor its context can
// be reached any more. When the garbage collector finds this Hold, the session logs that, and releases the
// lock. So keep a reference to the Hold or to its context for as long as the lock is needed. A goroutine that
// only waits for the Done channel of the context has no such reference.
type Hold hold

// hold is the underlying type of Hold, so Lock can convert a *hold to a *Hold without an allocation.
type hold = handle.Hold

// HoldFrom returns the innermost Hold from which ctx descends, for locks of any kind, even if that Hold has
// ended. If there is no such Hold, or if ctx is nil, HoldFrom returns nil. All methods may be called on a nil
// Hold. In a function that [Do] runs, HoldFrom returns the Hold that Do has taken. In code that runs under
// the context of a Campaign (package election), use the Hold only for its token, and end the leadership by
// Resign instead of Unlock.
func HoldFrom(ctx context.Context) *Hold { return (*Hold)(handle.From(ctx)) }

// Unlock ends the hold. If no outer or nested hold is left, Unlock frees the lock, or passes the lock on in
// memory to the next goroutine of this session (see [WithHandover]). Unlock sends its request even if ctx has
// ended, because ctx bounds only the wait for the reply. If ctx is nil, can never end, or has ended already,
// the wait is at most 5 s. The same bound holds for the context of the hold itself, because Unlock ends this
// context before the wait. With any other ctx, Unlock waits until ctx ends. If such a ctx has no deadline,
// Unlock waits for at most the watchdog timeout. Unlock returns
//   - nil if this call has ended the hold, and the lock was not lost;
//   - [ErrNotHeld] for a second call, or for a nil Hold. Such a call does nothing;
//   - [ErrLost] if the lock had been lost before;
//   - [ErrClosed] if Close or Shutdown of the session was called before, which releases the lock;
//   - otherwise an error of ctx or of go-redis. If a limit of Unlock itself has ended the wait, the error
//     matches context.DeadlineExceeded. The request may have reached Redis nevertheless. The session repeats
//     a release in the background until the lease has ended, unless the error says that the release is not
//     tried again, for example because the client is closed.
//
// After every result, the context of the hold is canceled, and the lock must be treated as released. Unlock
// never frees a lock that another owner has acquired meanwhile.
func (h *Hold) Unlock(ctx context.Context) error { return (*handle.Hold)(h).Unlock(ctx) }

// Token returns the fencing token. It is larger than the token of every earlier holder of the lock. This is
// so even after a restart in which Redis has lost its data, unless its clock was set back by more than the
// time for which Redis was down. docs/guarantees.md lists all cases in which a token can repeat. Nested holds
// share one token, and so do readers of one session that share a grant of Redis. The resource that the lock
// protects can reject a request whose token is smaller than a token that it has seen before. A function that
// Do runs finds its Hold by [HoldFrom]. Token returns 0 for a nil Hold, and for the Hold of a MultiLock,
// whose Parts have the tokens.
func (h *Hold) Token() int64 { return (*handle.Hold)(h).Token() }

// Name returns the name of the lock.
func (h *Hold) Name() string { return (*handle.Hold)(h).Name() }

// Deadline returns the time at which the hold ends unless its lease is renewed. Each renewal moves the
// deadline. For a hold that has ended, the deadline has no meaning.
func (h *Hold) Deadline() time.Time { return (*handle.Hold)(h).Deadline() }

// Err returns nil until the hold ends. After that, it returns [ErrNotHeld] if the hold was unlocked,
// [ErrLost] if the lock was lost, and [ErrClosed] if the session was closed. Err sends no request. It
// compares the deadline with the local monotonic clock. So in a process that was stopped, Err reports the end
// of the lease even before the context ends. On Linux, the monotonic clock stops while the machine is
// suspended. After a suspension, Err can return nil for a lost lock until the next renewal finds the loss. A
// fixed lease is not renewed, so Err can then return nil until the lease ends by the local clock.
func (h *Hold) Err() error { return (*handle.Hold)(h).Err() }

// Extend makes the lease last for at least d from now. It never shortens the lease. It sends a request and
// blocks for the reply, at most until ctx ends. After an error other than [ErrLost], [ErrNotHeld] and
// [ErrClosed], the hold stays valid until the deadline that it had before.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	return (*handle.Hold)(h).Extend(ctx, d)
}

// WaitReplicas blocks until at least n replicas of the lock's server have the lock, according to the WAIT
// command of Redis. So a failover to one of these replicas does not lose the lock. WaitReplicas repeats its
// requests until ctx or the hold ends. It makes a loss less likely but cannot rule it out, because WAIT does
// not decide which replica is promoted, and a replica that restarts empty has no data.
//
// Call WaitReplicas after Lock if the loss of the lock in a failover would do harm. After an error, the hold
// must still be unlocked:
//
//	held, hold, err := m.Lock(ctx)
//	...
//	defer hold.Unlock(ctx)
//	if err := hold.WaitReplicas(held, 1); err != nil {
//		return err
//	}
//
// If ctx has ended, the error matches the error of ctx, and says how many replicas have the lock. If a
// failover has already lost the lock, the error matches [ErrLost]. Pass a context with a deadline, because
// otherwise WaitReplicas waits as long as replicas are missing and the lock is held. Each try blocks a
// connection for up to 100 ms, and sends two requests. The client must be a *redis.Client or a
// *redis.ClusterClient, or have the method MasterForKey. For the hold of a MultiLock, WaitReplicas waits for
// each part. For the hold of a RedLock, it returns an error, because a RedLock needs no replicas.
func (h *Hold) WaitReplicas(ctx context.Context, n int) error {
	return (*handle.Hold)(h).WaitReplicas(ctx, n)
}

// Parts returns the holds of the members of a MultiLock (package multilock), in the order of the members. For
// the Hold of any other lock, it returns nil. The parts end with the Hold. Do not unlock them.
func (h *Hold) Parts() []*Hold {
	var parts []*Hold
	for _, p := range (*handle.Hold)(h).Parts() {
		parts = append(parts, (*Hold)(p))
	}
	return parts
}

// WithOwner returns a context below which all calls of Lock have one owner, even if the code does not pass on
// the contexts that Lock returns. It is for code whose layers share one context, such as the context of an
// HTTP request. A Lock below this context nests in the latest hold of the same lock that was taken below this
// context, whichever goroutine took that hold. So goroutines below this context do not exclude each other. If
// several of them lock a free lock at the same moment, none of them finds a hold to nest in, so they take
// turns. While a goroutine has the lock, it must not wait for the others. After a loss, Lock returns
// [ErrLost] for the lost lock until the lost hold is unlocked or forgotten (see [Hold]).
//
// WithOwner panics if ctx is nil.
func WithOwner(ctx context.Context) context.Context { return handle.WithOwner(ctx) }
