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
// Where a function does not fit, Lock returns a [Hold] and a context to work with. Do not overwrite the
// context that you passed to Lock, because the returned one ends when the hold is unlocked.
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
// The context that Lock returns carries the hold. A Lock of the same name with this context re-enters the
// lock instead of waiting for itself. The context is canceled when the hold ends. Its cause then matches
// [ErrLost] if the lease was lost, [ErrNotHeld] after Unlock, and [ErrClosed] after Session.Close. It also
// ends when its parent does. Use it for all work that the lock protects, and the original context for all
// work after Unlock. A transaction must commit before Unlock, because otherwise the next holder reads the
// data from before the commit.
//
// Lockline cannot stop running code. When the lock is lost, code that does not watch the context continues.
//
// A Lock with a context that descends from a live hold re-enters. Only one hold at a time can be nested in
// another, so goroutines that share the context of a hold take turns. For code that cannot pass on the
// context that Lock returned, see [WithOwner].
//
// # The lease
//
// If a holder dies, Redis frees the lock when its lease ends. While the holder lives, its session renews the
// lease (15 s unless [WithWatchdogTimeout] sets another one) after each third of it. The validity of a hold
// is measured on the local monotonic clock. It begins before the request was sent that granted or last
// renewed the lease, and lasts for the lease less 1 % and 2 ms. Then the context is canceled. A process that
// is frozen for longer than its lease, or a machine that sleeps, can act before it notices. If that does
// harm, check [Hold.Token] with each write.
//
// docs/failures.md describes failures of holders, of Redis, of clocks and of machines. It says for each
// whether two holders can be inside at the same time, for how long, and how to prepare for it.
//
// # Waiting
//
// A waiter does not poll. Each session that wants the lock has one place in a queue in Redis. The unlock of
// another process makes the first session in that queue the holder. That takes one request and at most two
// messages, however long the queue is. The goroutines of one session wait in memory, first come, first
// served. They pass the lock on from one to the next in memory, each with a token of its own, until the
// session has had it for 5 ms ([WithHandover]). Then the next session has its turn. So between processes the
// lock is first come, first served, but for that time goroutines of the session that has the lock overtake
// others. In package fairlock they do not. With [WithLinger], a session also keeps a lock that none of its
// goroutines wants, until another session wants it.
//
// A session keeps its place in the queue by a heartbeat at three fifths of the waiter timeout
// ([WithWaiterTimeout]), every 6 s by default. If the process of a waiter died, Redis skips the waiter at
// once if it sees that the session has no subscription. Otherwise the waiter delays the others by some
// seconds (docs/failures.md). A lock that is handed over is leased for 2 s at first, and then renewed.
//
// The design follows Redisson's RLock: a hash with the owner and the hold count, a lease, and a watchdog
// that renews it. Package redisson has locks that are shared with programs on a JVM.
//
// # Options
//
// Options are the same for all kinds, but some have no effect on some kinds. This table shows for which
// kinds an option counts (yes), has no effect (no), is an error, or cannot be given (-):
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
// The first four are options of New and of each call. An option of the call overrides the option of New. The
// column MultiLock is for options of its calls, and of the sessions of its members. The column member is for
// options that were passed to New for a member. Both are for members of this package. Other members are as
// in their own column.
//
// The other options are of a session, and all locks of the session share them. A RedLock uses the observer
// and the logger of its first session. WithLogger and WithClassicPubSub are for the session itself, with any
// kinds of locks.
package rlock
