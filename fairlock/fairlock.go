// Package fairlock provides a distributed lock that is served first come, first served, across the goroutines
// of all processes. It uses the Session, Hold, options and errors of package rlock. New returns an
// *rlock.Mutex, so the documentation of Lock, TryLock, Do, re-entry, leases and tokens in package rlock is
// true here, too:
//
//	err := fairlock.New(session, "printer").Do(ctx, work)
//
// # The queue
//
// Waiters are queued in Redis, in the order in which Redis received their requests. The clocks of clients do
// not matter. When a holder unlocks, Redis makes the first living waiter the new holder and notifies its
// session. Redis also notifies the next waiter, which then knows when to check whether the new holder is
// alive. So a hand-over costs one request and at most two messages, however long the queue is. A reentrant
// lock of package rlock has such a queue, too, but goroutines of the session that has the lock overtake the
// waiters in this queue. In package fairlock, such goroutines do not overtake. docs/guarantees.md lists the
// few cases in which a waiter loses its turn or its place.
//
// Goroutines of one session that call Lock at about the same time share one place in the queue. They pass the
// lock on from one to the next in memory. A place is for the goroutines that want the same lease, and that
// call Lock before the request for this place is sent. At most 1,000 goroutines share a place. If their
// session already has the lock or is queued, the first of these goroutines waits for others for up to 1 ms
// before it sends the request. If a goroutine loses the lock, the goroutines that wait behind it at the same
// place are queued again.
//
// A session keeps the places of its waiters by heartbeats. A heartbeat is one request for each place, after
// each three fifths of the waiter timeout. This timeout is 10 s unless [rlock.WithWaiterTimeout] sets another
// one. If Redis has seen a subscription of the session before, and the session has no subscription any more,
// Redis skips the waiters of the session. These waiters keep their places, because the connection of the
// session may have just broken. Redis cannot see that a subscription is missing while the connection still
// seems to be open. On a Cluster with classic pub/sub, or without the right to use PUBSUB NUMSUB, Redis can
// never see this. docs/failures.md describes the delays that dead waiters cause. All dead waiters together
// delay others by at most the waiter timeout and the interval of a heartbeat. After that, Redis removes them.
//
// The first lease of a lock that is handed over is the shortest of three times: 2 s, the lease that the new
// holder wants, and the rest of its waiter timeout. The session of the new holder then renews the lease to
// the lease of the session. With [rlock.WithLease], it sets the fixed lease, counted from the grant. If the
// session does not renew within the first lease, for example because its process is frozen, the new holder
// loses the lock. If its Lock has not returned yet, this Lock is queued again.
//
// TryLock takes the lock only if no goroutine waits. It is never queued. If a waiter gives up, and no other
// goroutine shares its place, the waiter leaves the queue before its Lock returns. But if Redis does not
// reply within 100 ms, Lock returns, and the waiter leaves the queue in the background.
//
// A session does not pass the lock on in memory if the holder has a fixed lease ([rlock.WithLease]) or keeps
// the lock taken ([rlock.HoldAtLeast]). Nor does it if the holder has made the lease longer than the watchdog
// timeout ([rlock.Hold.Extend]). Goroutines that share a place with such a holder are queued again. So
// goroutines of other processes may be served before them.
//
// A fair lock and a reentrant lock with the same name are two different locks.
//
// The idea of a fair lock on Redis comes from Redisson's RFairLock. Package fairlock keeps the queue in a
// sorted set, and hands the lock over to the next waiter.
package fairlock

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

var kind = engine.NewLock(protocol.Fair, true)

// New returns a fair lock with this name. It sends no request and is cheap. The name may be any string of 1
// to 512 bytes. If the name or the session is not valid, every method except Name returns an error that says
// so.
//
// Locks of different kinds with the same name do not exclude each other. A holder of this lock and a holder
// of a lock of package rlock can be inside at the same time, without an error. So use the same kind for a
// name in all programs. An election with this name (package election) uses the same lock.
func New(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	return inner.New(s, kind, name, options)
}
