// Package mutex is a lock's name and kind in a session (mutex.go, kind.go), and the engine of locks that are
// shared with a JVM. Those have no queue in Redis: a release is published, and all that wait ask again
// (listen.go). All other kinds are on lanes, in package permit.
//
// Begin with Mutex.Acquire in acquire.go, which is Lock from its call to its end.
//
//	acquire.go    one acquisition: a newcomer is admitted, others nest
//	nest.go       how an acquisition becomes an entry of a tenure
//	enter.go      one goroutine of a session asks for all; try.go: its request; listen.go: what wakes it
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
// acquisition is fresh, contested once others have the lock, and refused once Redis has said so (Progress).
//
// Lock.Mu guards the gates, wait lists and tenure of a lock together: a grant begins a tenure and moves
// waiters in one step.
package mutex
