// Package rlock is a distributed, reentrant lock on Redis or Valkey, and the vocabulary (Session, Mutex,
// Hold, Locker, options, errors) that all locks of this module share.
//
// A [Session] is made once for a Redis client. A [Mutex] names a lock. Do runs a function under it:
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
// Where a function does not fit, Lock returns a [Hold] and the context to work with. Do not
// overwrite the context that Lock was given: the one that it returns has ended when the hold is unlocked.
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
// The context that Lock returns carries the hold: a Lock of the same name below it re-enters instead of
// waiting for itself. It is canceled when the hold ends, with a cause that matches [ErrLost] if the lease was
// lost, [ErrNotHeld] after Unlock, [ErrClosed] after Session.Close; and it ends when its parent does. Use it
// for all work that the lock protects. What comes after Unlock needs the one that Lock was given. A
// transaction must commit before Unlock: otherwise the next holder reads the data from before it.
//
// Lockline cannot stop code that runs. When the lock is lost, code that does not watch the context works on.
//
// A Lock with a context that descends from a live hold re-enters. One hold at a time is
// nested in another, so goroutines that share a hold's context take turns. For
// code that cannot pass on what Lock returned, see [WithOwner].
//
// # The lease
//
// Redis frees a lock whose holder is gone when its lease runs out. While the holder lives, its session renews
// the lease (15 s unless [WithWatchdogTimeout] says otherwise) at a third of it. How long a hold is valid is
// counted on the local monotonic clock from before the request was sent that granted or last renewed it, less
// 1 % and 2 ms. Then its context is canceled. A process that is frozen for longer than its lease, or a
// machine that sleeps, can act before it notices. If that does harm, check [Hold.Token] with each write.
//
// docs/failures.md describes failures of holders, of Redis, of clocks and of machines. It says for each
// whether two holders can be inside at the same time, for how long, and how to prepare for it.
//
// # Waiting
//
// A waiter does not poll. One goroutine of each session that wants the lock stands in a queue that Redis
// keeps. The unlock of another process makes the first in that queue the holder. That takes one request and
// at most two messages, however many wait. The other goroutines of that session wait behind that one, first
// come, first served. They hand the lock from one to the next in memory, each with a token of its own, until
// the session has had it for 5 ms ([WithHandover]). Then the next session has its turn. So between processes
// the lock is first come, first served, but goroutines of the process that has it overtake the others for
// that time. In package fairlock they do not. With [WithLinger], a session also keeps a lock that none of its
// goroutines wants, until another session does.
//
// A session keeps its place in the queue by a heartbeat at three fifths of the waiter timeout
// ([WithWaiterTimeout]), every 6 s by default. A waiter whose process died is passed over at once if Redis
// sees that its session has no subscription. Otherwise it delays the others by some seconds
// (docs/failures.md). A lock that is handed over is leased for 2 s at first, and then renewed.
//
// The lock is, in the spirit, Redisson's RLock: a hash of owner and hold count whose time to live is the
// lease, and a watchdog. Locks that a JVM shares are in a package of their own, named after Redisson.
//
// # Options
//
// Options are the same for all kinds, and not every kind has a use for each. This table shows for which kinds
// an option counts (yes), does nothing (no), is an error, or cannot be given (-):
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
// The first four are options of New and of each call. An option of the call overrides that of New. The column
// MultiLock is for options of its calls, and of its members' sessions. The column member is for options that
// a member's New was given. Both are for members of this package. Other members are as in their own
// column.
//
// The other options are of a session, and all locks of the session share them. A RedLock has the observer and
// the logger of its first session. WithLogger and WithClassicPubSub are for the session itself, with
// any kinds of locks.
package rlock
