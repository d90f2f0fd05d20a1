// Package fairlock is a distributed lock that is served first come, first served
// across the goroutines of all processes. It has the Session, Hold, options and errors of package
// rlock; New returns an *rlock.Mutex, so everything said there of Lock, TryLock,
// Do, re-entry, leases and tokens holds here, too:
//
//	err := fairlock.New(session, "printer").Do(ctx, work)
//
// # The queue
//
// A waiter stands in a queue that Redis keeps, in the order in which Redis saw the requests; no client's
// clock has a say. The unlock itself makes the first living waiter the owner and tells its session. It tells
// the next in the queue, too, which then knows when to look whether the new owner lives. So a hand-over costs
// one request and at most two messages, whatever the length of the queue. A reentrant lock of package rlock
// has such a queue, too, but goroutines of the session that has the lock go before it. Here they do not.
// docs/guarantees.md lists the few cases in which a waiter loses its turn or its place.
//
// Goroutines of one session that come at about the same time ask together, stand in the queue as one, and
// hand the lock from one to the next in memory. These are those that come while a request of theirs is under
// way. While their session has the lock or stands in the queue, a goroutine waits for others for up to 1 ms
// before it asks. If the lock is lost under one of them, those behind it ask again.
//
// A session's waiters are kept alive by one request for each lock at three fifths of the waiter timeout (10 s
// unless [rlock.WithWaiterTimeout] says otherwise). A waiter whose session Redis has seen listen, and which
// does not listen any more, is passed over; it keeps its place, as its connection may have just broken. Redis
// cannot see that by classic pub/sub on a Cluster, without the right to PUBSUB NUMSUB, and while the
// connection looks open. docs/failures.md has the delays that such sessions cause. All together they cost the
// waiter timeout and a heartbeat at most, because they are dropped then.
//
// A lock that is handed over is at first leased for 2 s, and no longer than its new owner is known to live.
// Its session then renews it to the session's lease, or, with [rlock.WithLease], sets the lease that was
// asked for, counted from the grant. A new owner that does not do so within the first lease, as in a process
// that is frozen, loses the lock, or asks again if its Lock had not returned.
//
// TryLock takes the lock only if no goroutine waits, and never stands in the queue. A
// waiter that gives up leaves the queue before its Lock returns, if Redis answers
// within 100 ms. If not, it leaves in the background.
//
// A lease that its holder made longer than the watchdog timeout (Extend), and a lock that it keeps taken
// ([rlock.HoldAtLeast]), are not handed on in memory. Goroutines that wait directly behind it ask again, and
// may be served after those of other processes.
//
// A fair and a reentrant lock of one name are two locks.
//
// The idea is Redisson's RFairLock, with the queue in a sorted set ordered by
// tickets, and the lock handed over instead of thrown into the crowd.
package fairlock

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

var kind = engine.NewLock(protocol.Fair, true)

// New names a fair lock. It does no I/O and is cheap. Any string of 1 to 512 bytes
// is a name; what is wrong with a name or session, Lock says.
//
// Locks of several kinds that have one name do not exclude each other: a holder of this lock and one of
// rlock's are inside at the same time, without an error. So take a name by one kind in all programs. Only an
// election of this name has the same lock.
func New(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	return inner.New(s, kind, name, options)
}
