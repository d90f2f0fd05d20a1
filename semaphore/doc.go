// Package semaphore provides a distributed semaphore. A semaphore has a number of permits, which all
// processes share. Each holder has its permits under a lease. The package uses the Session of package rlock.
//
//	sem := semaphore.New(session, "reports", 4)   // 4 permits for all processes
//	err := sem.Do(ctx, 1, func(ctx context.Context) error { // with 1 of the permits
//		return makeReport(ctx)                   // ctx ends if the permit is lost
//	})
//
// Acquire returns a Hold, as rlock.Mutex.Lock does, and the session renews the lease of the permits. If the
// permits are lost, the context of the hold is canceled. If a process dies, its permits are free when their
// lease ends (rlock.WithWatchdogTimeout, 15 s by default), and then go to waiters. A late Unlock of lost
// permits does not free the permits of another holder.
//
// # Waiting
//
// Acquire takes n permits or none. Waiters are queued in Redis, and served in the order of the queue. So an
// Acquire of many permits is not starved by later calls that want few. If a release frees enough permits for
// the first waiter, Redis hands the permits over to this waiter, and notifies its session by a message. Redis
// does the same for the next waiters, as long as enough permits are free. Waiters do not poll.
//
// Within a session, goroutines that want the same number of permits are served in the order in which they
// came. While a request of one of them is queued in Redis, goroutines that come later share its place in the
// queue. A goroutine that unlocks its permits passes them on in memory, without a request, to the next
// goroutine of its session that waits for the same number of permits. The session does this for the time of
// rlock.WithHandover (5 ms by default), counted from the moment at which Redis granted the permits. The first
// Unlock after that time releases the permits in Redis, and they go to the first waiter in the queue. Permits
// with a fixed lease are not passed on in memory. With WithHandover(0), a session passes no permits on in
// memory.
//
// # Nesting
//
// Permits do not nest. An Acquire with the context of another hold of the same semaphore takes further
// permits. If all holders wait for further permits, they wait for each other, which is a deadlock.
//
// # The limit
//
// The limit is the number of permits of a semaphore. It is a parameter of New, so pass the same limit to each
// New. If Redis has no limit of the semaphore, Acquire sets the limit that was passed to New. After that, an
// Acquire returns a LimitError if its New had another limit. SetLimit sets the limit for all sessions. Redis
// then ignores the limits that were passed to New, until the semaphore has not been used for 15 to 45 s, with
// the default lease. After that, the next Acquire sets the limit of its New. So while a rolling deployment
// changes the limit, an old process may set the old limit again, and new processes then get a LimitError. Let
// the new processes answer this error by SetLimit and another try, until no old process is left.
//
// # Guarantees
//
// The number of permits that are held never exceeds the limit, with one exception. If SetLimit reduces the
// limit, the present holders keep their permits. The conditions of this guarantee are those of mutual
// exclusion in package rlock. The rates of all clocks may differ by 1 % at most, and Redis must not lose
// acknowledged writes. Where docs/failures.md says that two holders can be inside, Redis may grant permits
// that are still in use.
//
// Each grant of Redis has a token, which is larger than the tokens of all earlier grants. Goroutines that
// pass a permit on in memory all have the token of its grant. Tokens of a semaphore do not fence, because
// several holders are valid at the same time.
package semaphore
