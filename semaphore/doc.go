// Package semaphore provides a distributed semaphore. It has a fixed number of permits, which all processes
// share and hold under leases. It uses the Session of package rlock.
//
//	sem := semaphore.New(session, "reports", 4)   // at most 4 at a time, in all processes
//	err := sem.Do(ctx, 1, func(ctx context.Context) error { // with 1 of the permits
//		return makeReport(ctx)                   // ctx is canceled if the permit is lost
//	})
//
// Acquire returns a Hold, as Lock does, and the session renews the lease of the permits. If the permit is
// lost, the context of the hold is canceled. If a process dies, its permits are free when their lease ends
// (rlock.WithWatchdogTimeout, 15 s by default). The first waiter gets them at that moment. If the Unlock of a
// lost permit comes late, it does not free another permit.
//
// # Waiting
//
// Acquire takes n permits or none. Waiters are queued in Redis and served in their order. So a request for
// many permits is not starved by requests for few, which wait behind it. A release hands permits over to the
// first waiter in the queue, whose session gets a message. Waiters do not poll.
//
// Once a session knows that others wait, it has one place in the queue for each number of permits that its
// goroutines want. They take turns at that place, first come, first served. When one of them unlocks a
// permit, the next one gets it in memory, without a request. This happens during the time of
// rlock.WithHandover (5 ms by default) after the last request to Redis. After that time, the permit goes to
// the first waiter in the queue. With WithHandover(0), every permit goes through Redis.
//
// # Nesting
//
// Permits do not nest. An Acquire with the context of another hold of the same semaphore takes further
// permits. If all holders wait for further permits, they wait for each other: a deadlock.
//
// # The limit
//
// The limit, which is the number of permits, is a parameter of New. Use the same limit everywhere. If it
// differs from the limit in use, calls are refused with a LimitError. SetLimit changes the limit for all,
// whatever limits were passed to New, until the semaphore has not been used for a while. So a rolling
// deployment with another limit calls SetLimit.
//
// # Guarantees
//
// No more permits than the limit are held at any time, under the conditions of rlock's mutual exclusion. (If
// SetLimit reduces the limit, the present holders keep their permits.) Clocks must run at the same rate to
// within 1 %, and Redis must not lose acknowledged writes. Where docs/failures.md says that two holders can
// be inside, permits may be granted although they are in use.
//
// Each grant of Redis has a token, which is larger than the tokens of all earlier grants. Goroutines of one
// session that pass a permit on in memory have the same token. So a token tells which grant is newer. It
// does not fence, because several holders are valid at a time.
package semaphore
