// Package semaphore is a distributed semaphore: so many permits for all processes together, held under leases. It uses the
// Session of package rlock.
//
//	sem := semaphore.New(session, "reports", 4)   // at most 4 at a time, in all processes
//	err := sem.Do(ctx, 1, func(ctx context.Context) error {
//		return makeReport(ctx)                   // ctx ends if the permit is lost
//	})
//
// A permit is a Hold as of a lock. The session renews its lease. If it is lost, the hold's context is canceled. A process that dies gives its permits
// back when their lease ends (rlock.WithWatchdogTimeout, 30 s by default), and what it held comes back to a waiter on time, without a request
// of anybody else. An Unlock that comes after that adds no permit.
//
// # Waiting
//
// Acquire of n permits takes all of them or none. Waiters stand in a queue in Redis and are served in their order. So one that wants many
// is not starved by those that want few: these wait behind it. Whatever gives permits back hands them to the first in the queue and sends its session a
// message. Nobody polls.
//
// A session has one place in the queue for each number of permits that its goroutines want, once it has found that others wait. They take turns at it, first come,
// first served. A permit whose holder unlocks it goes to the next goroutine of the same session that wants as many, in memory, for as
// long as rlock.WithStreak says (5 ms by default) since Redis was last asked. After that it goes to the first in the queue. WithStreak(0) makes each permit go by Redis.
//
// # Reentrancy
//
// Permits do not nest. An Acquire under the context of another hold of the same semaphore takes further permits. If all goroutines hold some and wait for
// more, they wait for each other.
//
// # The limit
//
// New says how many permits there are. The number of the first that uses the semaphore counts, until nobody has used it for a while, or SetLimit changes it. So
// give New the same limit everywhere, and expect that in a rolling deployment the old limit stays in use until it is changed by SetLimit.
//
// # What is guaranteed
//
// No more permits are held at one instant than the limit says, under the conditions that rlock has for mutual exclusion: leases are counted by clocks that
// run at the same rate to within 1 %, and Redis does not lose what it has acknowledged. After a failover or a restart without appendfsync always, permits that were granted last may be
// granted again. rlock.WithReplicas has no effect on a semaphore.
//
// Each grant of Redis has a token, which is larger than that of all grants before. Goroutines of one session that have a permit one after the other, in memory, have the same
// token. Permits of a limit above 1 exclude nobody, so a token here tells which grant is newer, and no more.
package semaphore
