// Package engine is the state machine of the locks and semaphores that a session holds or waits for. An
// exclusive lock has at most one holder at a time. A semaphore or a read-write lock has a number of permits,
// so it can have several holders. A reader takes one permit, and a writer takes all.
//
//	event                                                                  where
//	a call of Lock or TryLock begins to wait, is answered, or gives up     acquire.go
//	a call nests in a hold from which its context descends                 nest.go
//	an attempt gets the reply to its request, or a message arrives         attempt.go, inbox.go
//	a hold is unlocked, or a release has its reply                         unlock.go
//	a grant is lost, or the session closes                                 grant.go, state.go
//	an outage has lasted for so long that waits may have to end            lane.go
//	the timer of the lock fires                                            settle.go
//
// The code that handles an event locks the mutex of the lock, changes the state of the lock, and collects
// effects (effects.go). After almost every event, the function settle then decides what follows from the
// state (settle.go). It decides which waiters are served, which requests are sent, which attempts are
// withdrawn, which grants are released, and when the timer fires. Finally the code that handles the event
// unlocks the mutex, and carries out the effects. It cancels contexts, wakes waiters, and sends requests. To
// find out why a waiter is served or a request is sent, read settle. To find out what a reply or a message
// changes, read the function that handles it, for example onReply.
//
// # The path of an uncontended Lock and Unlock
//
//	Acquire, AcquireEntry, acquire     check the options, and find no hold to nest in (acquire.go)
//	wait, waitIn                   event: the waiter joins a lane
//	  settle, newAttempt           settle decides that the lane needs an attempt
//	  sendFirst                    sends acquire.lua, in the goroutine of the call (attempt.go)
//	  onReply, onAnswer, onGrant   event: the reply; newGrant makes a Grant (grant.go)
//	  settle, serve                settle decides that the Grant serves the waiter
//	hold                           event: the entry becomes a hold
//	Unlock, beginUnlock            event: the hold ends, and its context is canceled (unlock.go)
//	  settle, releaseGrant         settle decides that the Grant is released
//	  sendUnlock, onRelease        sends release.lua; event: the reply
//
// If another session holds the lock, the reply says that the attempt is queued. The goroutine of the call
// then waits. A message (inbox.go) or a later reply brings the grant, and settle serves the waiter.
//
// # Types
//
// A lockState is all that a session knows about one lock. A waiter is a call of Lock or TryLock. A lane is a
// list of waiters that want the same, for example one permit (type Want). An attempt requests a grant from
// Redis for a lane, and not for one goroutine. When the grant arrives, it serves the waiter that is first in
// the lane at that time. A Grant is a lease that Redis granted. An Entry is the share that one goroutine has
// in a grant. A grant that readers share can have many entries. Any other grant has at most one entry at a
// time, apart from nested entries.
//
//	waiter      waits --> answered                an entry of a grant, or an error
//	               '----> left                    its context or WaitAtMost has ended, or the session closes
//
//	attempt     requested --> queued --> done     a reply, a message or an error has ended it
//	               '------------'------> withdrawn, until its release has ended
//
//	Grant       held --> released                 it has no entry left, and is neither passed on nor kept
//	              |----> lost                     its lease ended, or Redis does not have it any more
//	              '----> closed                   the session closes
//
//	Entry       assigned to a waiter --> held --> released by its Unlock, or lost or closed with its grant
//	               '-----------> dropped          its waiter left, or its grant ended, before it was held
//
// # Invariants
//
// Only Redis decides which attempt is next, in the order of its queue. A message about a grant counts only if
// the message has the nonce of the attempt. Other clients do not know this nonce, unless they may read the
// keys of the queue. A hold is valid for its lease, less a margin for clock drift. By the local clock, this
// time begins not later than the moment at which Redis granted or last renewed the lease. The owner field of
// an attempt is never used again. A grant that no goroutine wants is released, unless the session keeps it
// for a while (WithLinger). If the reply to a request is lost, a copy of the request may still run. So the
// attempt and its grant record the time until which a copy may arrive (staleUntil). The release leaves a
// tombstone in Redis until that time, so that a copy which arrives after the release has no effect.
// docs/design.md lists all invariants, and package protocol describes the protocol. The tests in proof/sim
// and proof/explore check after each settle that the state of the lock is consistent (invariants.go).
package engine
