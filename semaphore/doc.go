// Package semaphore is a distributed semaphore: a fixed number of permits, shared by all processes and held
// under leases. It uses the Session of package rlock.
//
//	sem := semaphore.New(session, "reports", 4)   // at most 4 at a time, in all processes
//	err := sem.Do(ctx, 1, func(ctx context.Context) error { // with 1 of the permits
//		return makeReport(ctx)                   // ctx is canceled if the permit is lost
//	})
//
// A permit is a Hold, as of a lock. The session renews its lease. If the permit is lost, the hold's context
// is canceled. The permits of a process that dies come back when their lease ends (rlock.WithWatchdogTimeout,
// 15 s by default). The first waiter gets them then, on time. An Unlock that comes after that adds no permit.
//
// # Waiting
//
// Acquire of n permits takes all of them or none. Waiters stand in a queue in Redis and are served in their
// order. So a request for many permits is not starved by requests for few: these wait behind it. A release
// hands permits to the first in the queue, and its session gets a message. Waiters do not poll.
//
// Once a session knows that others wait, it has one place in the queue for each number of permits that its
// goroutines want. They take turns at that place, first come, first served. When one of them unlocks a
// permit, the next one gets it in memory, without a request. This goes on for as long as rlock.WithHandover
// says (5 ms by default) since Redis was last asked. After that, the permit goes to the first in the queue.
// With WithHandover(0), each permit goes by Redis.
//
// # Nesting
//
// Permits do not nest. An Acquire under the context of another hold of the same semaphore takes further
// permits. If all holders wait for more, they wait for each other.
//
// # The limit
//
// New says how many permits there are. Give it the same limit everywhere: one that differs from the number in
// use is refused with a LimitError. SetLimit changes the number for all, whatever New says, until the
// semaphore has not been used for a while. So a rolling deployment with another limit calls SetLimit.
//
// # What is guaranteed
//
// At no instant are more permits held than the limit, under the conditions of rlock's mutual exclusion.
// Clocks run at the same rate to within 1 %, and Redis does not lose what it has acknowledged. Where
// docs/failures.md says that two holders can be inside, permits may be granted that are still in use.
//
// Each grant of Redis has a token, which is larger than that of all grants before. Goroutines of one session
// that have a permit one after the other, in memory, have the same token. A token tells which grant is newer.
// It does not fence, since several holders are valid at one time.
package semaphore
