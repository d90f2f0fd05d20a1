// Package rlock provides a distributed, reentrant lock on Redis or Valkey. It also has the types that all
// locks of this module share: Session, Hold, Locker, options and errors.
//
// Make one [Session] for each Redis client. A [Mutex] names a lock, and Do runs a function while the lock is
// held:
//
//	session, err := rlock.NewSession(rdb)
//	...
//	defer session.Close()
//	orders := rlock.New(session, "orders:42")
//
//	err = orders.Do(ctx, func(ctx context.Context) error {
//		return work(ctx) // ctx is canceled if the lock is lost
//	})
//
// Where a function does not fit, call Lock, which returns a [Hold] and a context for the work. Do not
// overwrite the context that you passed to Lock, because the returned context ends when the hold is unlocked.
//
//	held, hold, err := orders.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
//	return work(held)
//
// # The context
//
// The context that Lock returns carries the hold. If Lock of the same lock is called with this context, it
// re-enters instead of waiting for the hold of its own caller. The context is canceled when the hold ends.
// Its cause then matches [ErrLost] if the lock was lost, [ErrNotHeld] after Unlock, and [ErrClosed] after
// Session.Close. The context also ends when its parent ends. Use this context for all work that the lock
// protects, and the original context for all work after Unlock. A transaction must commit before Unlock,
// because otherwise the next holder can read the data from before the commit.
//
// Lockline cannot stop running code. When the lock is lost, code that does not watch the context continues.
//
// Only one hold at a time can be nested directly in another hold. So goroutines that call Lock with the
// context of the same hold take turns. For code that cannot pass on the context that Lock returned, see
// [WithOwner].
//
// # The lease
//
// If a holder dies, Redis frees the lock when its lease ends. While the holder lives, its session renews the
// lease each time that a third of the lease has passed, unless [WithLease] has set a fixed lease. The lease
// is 15 s long unless [WithWatchdogTimeout] sets another length. The session measures the validity of a hold
// on the local monotonic clock. The validity begins at or before the moment at which Redis grants or renews
// the lease. It lasts for the lease, less 1 % and 2 ms. When the validity ends, the context of the hold is
// canceled. After a process was frozen for longer than the lease, or its machine was suspended, the code of
// the process can act before it notices the loss. If such an action would do harm, check [Hold.Token] with
// each write.
//
// docs/failures.md describes failures of holders, of Redis, of clocks and of machines. For each failure, it
// says whether two holders can be inside at the same time, for how long, and how to prepare for that.
//
// # Waiting
//
// A waiter does not poll. A session has at most one place in the queue in Redis, for all of its waiting
// goroutines. When a holder unlocks, Redis makes the first session in the queue the next holder. This takes
// one request and at most two messages, however long the queue is. The goroutines of one session wait in
// memory, first come, first served. They pass the lock on from one to the next in memory until the session
// has had the lock for 5 ms ([WithHandover]). Each of their holds has its own token. After the 5 ms, the next
// session has its turn. So sessions get the lock in the order in which they came, but for these 5 ms,
// goroutines of the session that has the lock overtake waiters of other sessions. In package fairlock, such
// goroutines do not overtake. With [WithLinger], a session also keeps a lock that none of its goroutines
// wants. It does so for a limited time, and only until another session wants the lock.
//
// A session keeps its place in the queue by heartbeats. It sends a heartbeat after each three fifths of the
// waiter timeout ([WithWaiterTimeout]), which is every 6 s by default. If the process of a waiter has died,
// Redis usually sees that its session has no subscription, and skips the waiter. If Redis does not see this,
// the dead waiter delays the waiters behind it by some seconds (docs/failures.md). The first lease of a lock
// that is handed over is at most 2 s, and is then renewed.
//
// The design follows Redisson's RLock: a hash with the owner and the hold count, a lease, and a watchdog that
// renews the lease. Locks of package redisson can be shared with programs on a JVM.
//
// # Options
//
// The options are the same for all kinds of locks, but some options have no effect on some kinds. This table
// shows for each kind whether an option counts (yes), has no effect (no), is an error (error), or cannot be
// passed (-):
//
//	                     rlock fairlock rwlock semaphore redisson RedLock MultiLock member election latch
//	WithLease            yes   yes      yes    yes       yes      yes     yes       yes    -        -
//	HoldAtLeast          yes   yes      yes    yes       error    yes     yes       yes    -        -
//	WaitAtMost           yes   yes      yes    yes       yes      yes     yes       yes    -        -
//	WithNote             yes   yes      yes    yes       yes      yes     yes       yes    -        -
//	WithPrefix           yes   yes      yes    yes       no       yes     yes       -      yes      yes
//	WithWatchdogTimeout  yes   yes      yes    yes       yes      yes     yes       -      yes      yes
//	WithWaiterTimeout    yes   yes      yes    yes       yes      yes     yes       -      yes      no
//	WithHandover         yes   no       yes    yes       no       no      yes       -      no       no
//	WithLinger           yes   no       yes    yes       no       no      yes       -      no       no
//	WithLabel            yes   yes      yes    yes       yes      yes     yes       -      yes      no
//	WithObserver         yes   yes      yes    yes       yes      yes     yes       -      yes      no
//
// The first four options are passed to New or to a call. An option of the call overrides the same option of
// New. The column MultiLock is for options of the calls of a MultiLock, and for options of the sessions of
// its members. The column member is for options that were passed to New for a member of a MultiLock. Both
// columns describe members of this package. For members of other kinds, see the columns of these kinds.
//
// The other options are passed to NewSession, and apply to all locks of the session. A RedLock uses the
// observer and the logger of its first session. WithLogger and WithClassicPubSub are not in the table,
// because they concern the session itself, and not a kind of lock.
package rlock
