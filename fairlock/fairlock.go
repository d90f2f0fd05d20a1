// Package fairlock provides a distributed lock that is served first come, first served, across the
// goroutines of all processes. It uses the Session, Hold, options and errors of package rlock. New returns
// an *rlock.Mutex, so the documentation of Lock, TryLock, Do, re-entry, leases and tokens there is true
// here, too:
//
//	err := fairlock.New(session, "printer").Do(ctx, work)
//
// # The queue
//
// Waiters are queued in Redis, in the order in which Redis received their requests. The clocks of clients do
// not matter. The unlock itself makes the first living waiter the owner and notifies its session. It also
// notifies the next waiter, which then knows when to check whether the new owner lives. So a hand-over costs
// one request and at most two messages, however long the queue is. A reentrant lock of package rlock has
// such a queue, too, but goroutines of the session that has the lock overtake it. In this package they do
// not. docs/guarantees.md lists the few cases in which a waiter loses its turn or its place.
//
// Goroutines of one session that call Lock at about the same time share one place in the queue. They pass
// the lock on from one to the next in memory. A place is shared by the goroutines that have come before its
// request is sent. While their session has the lock or is queued, the first of them waits for others for up
// to 1 ms before its request. If the lock is lost under one of them, the others behind it are queued again.
//
// A session keeps the places of its waiters by one request for each lock at three fifths of the waiter
// timeout (10 s unless [rlock.WithWaiterTimeout] sets another one). If Redis has seen a subscription of the
// session before, and the session has none any more, its waiter is skipped. The waiter keeps its place,
// because the connection may have just broken. Redis does not see that a subscription is missing on a
// Cluster with classic pub/sub, or if the user may not use PUBSUB NUMSUB. It also does not see that while
// the connection still seems to be open. docs/failures.md describes the delays that such sessions cause. All
// together they cost at most the waiter timeout and a heartbeat, because then they are removed.
//
// The first lease of a lock that is handed over is 2 s, but ends at the latest when the waiter timeout of
// its new owner does. The session of the owner then renews it to the lease of the session. With
// [rlock.WithLease], it sets that lease, counted from the grant. If a new owner does not do so within the
// first lease, for example because its process is frozen, it loses the lock. If its Lock had not returned
// yet, it is queued again.
//
// TryLock takes the lock only if no goroutine waits. It is never queued. If a waiter gives up, it leaves the
// queue before its Lock returns, provided that Redis replies within 100 ms. Otherwise it leaves in the
// background.
//
// A grant is not passed on in memory if its holder has made the lease longer than the watchdog timeout
// (Extend), or keeps the lock taken ([rlock.HoldAtLeast]). Goroutines that share a place with that holder
// are queued again, and may be served after those of other processes.
//
// A fair lock and a reentrant lock with the same name are two locks.
//
// The idea is that of Redisson's RFairLock. Here the queue is a sorted set in the order of tickets, and the
// lock is handed over to the next waiter.
package fairlock

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

var kind = engine.NewLock(protocol.Fair, true)

// New returns a fair lock with this name. It sends no request and is cheap. The name may be any string of 1
// to 512 bytes. If the name or the session is not valid, every method returns an error that says so.
//
// Locks of different kinds with the same name do not exclude each other. A holder of this lock and a holder
// of a lock of package rlock can be inside at the same time, without an error. So use the same kind for a
// name in all programs. Only an election with this name uses the same lock.
func New(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	return inner.New(s, kind, name, options)
}
