// Package mutex is the reentrant, exclusive lock that rlock, fairlock, redisson and multilock are made of:
// acquiring, waiting, nesting, passing on, losing and unlocking.
//
// Begin with Mutex.Acquire in acquire.go, which is Lock from its call to its end. docs/design.md draws the
// same way.
//
//	kind.go       what makes a kind of lock
//	mutex.go      a Mutex: a name in a session, and a kind
//	acquire.go    one acquisition: a newcomer is admitted, others nest
//	nest.go       how an acquisition becomes an entry of a tenure
//	queue.go      waiting in Redis' queue from end to end
//	attempt.go    an attempt that stands there, for some goroutines; answer.go: what Redis says to it
//	enter.go      one goroutine of a session asks for all; try.go: TryLock; listen.go: without a queue
//	wait.go       what ends a wait, and what its error says of the holder
//	call.go       a request whose caller may leave before it is answered
//	tenure.go     a tenure: one grant of Redis and the holds under it. Its begin, its loss, its renewal
//	pass.go       an entry ends: the tenure goes on, is passed on in memory, or is over
//	hold.go       an entry as its user has it; unlock.go: Unlock; forgotten.go: a Hold without Unlock
//	lock.go       what the goroutines of a session share of one lock; table.go: all locks of a session
//	release.go    giving a grant back
//	outer.go      rlock's types
//
// A tenure, and each hold in it, is held; then, once, released, lost or closed (handover.State). An
// acquisition is fresh, contested once others have the lock, and refused once Redis has said so (Progress). A
// session stands in the queue by attempts, each of which is asking, standing, or over (attemptState).
//
// Lock.Mu guards the gates, wait lists and tenure of a lock together, and its attempts: a grant begins a
// tenure and moves waiters in one step. Only Redis decides which attempt is next, and only by a grant that it
// has made; a message about a grant counts only with the nonce, which was given to Redis alone. The
// invariants are those of docs/design.md, section 2.
package mutex
