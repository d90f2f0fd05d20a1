// Package engine is the state machine of the locks and semaphores that a session holds or waits for. An
// exclusive lock has one holder at a time. A semaphore or a read-write lock consists of permits, which can
// have several holders. A reader takes one permit, and a writer takes all.
//
//	event                                                                  where
//	a call of Lock or TryLock begins to wait, is answered, or gives up     acquire.go
//	a call nests in a hold from which its context descends                 nest.go
//	an attempt gets the reply to its request, or a message arrives         attempt.go, inbox.go
//	a hold is unlocked, or a release has its reply                         unlock.go
//	a grant is lost, or the session closes                                 grant.go, state.go
//	the timer that settle has set fires                                    settle.go
//
// Every event locks the mutex of the lock, changes the state, and collects effects (effects.go). In almost
// all events, settle then decides what follows from the state: which waiters are served, what is requested,
// withdrawn or released, and when the timer fires (settle.go). Finally the mutex is unlocked, and the effects
// are carried out: contexts are canceled, waiters are woken, and requests are sent. To find out why something
// happens, read settle. To find out what a reply or a message changes, read the function that handles this
// event.
//
// # The path of an uncontended Lock and Unlock
//
//	Acquire, AcquireEntry, acquire     check the options, and find no hold to nest in (acquire.go)
//	wait, waitIn                   event: the waiter joins a lane
//	  settle, newAttempt           decides that the lane needs an attempt
//	  sendFirst                    sends acquire.lua, in the goroutine of the call (attempt.go)
//	  onReply, onAnswer, onGrant   event: the reply; newGrant makes a Grant (grant.go)
//	  settle, serve                decides that the Grant serves the waiter
//	hold                           event: the entry becomes a hold
//	Unlock, beginUnlock            event: the hold ends, and its context is canceled (unlock.go)
//	  settle, releaseGrant         decides that the Grant is released
//	  sendUnlock, onRelease        sends release.lua; event: the reply
//
// If the lock is held, the reply to a Lock says that its attempt is queued. The goroutine then waits until a
// message (inbox.go) or another reply brings the grant, and settle serves the waiter.
//
// # Types
//
// A lockState is all that a session knows about one lock. A waiter is a call of Lock or TryLock. A lane has
// one or more waiters with equal Wants. An attempt requests a grant from Redis for a whole lane, and not for
// one goroutine, because the grant serves whichever waiter is then the first of the lane. A Grant is a lease
// that Redis granted. An Entry is the share that one goroutine has in a grant. A grant that readers share has
// many entries. Any other grant has one entry at a time, and further entries that are nested in that entry.
//
//	waiter      waits --> answered                an entry of a grant, or an error
//	               '----> left                    its context or WaitAtMost has ended, or the session closes
//
//	attempt     requested --> queued --> done     granted, refused or failed
//	               '------------'------> withdrawn, until Redis has released it
//
//	Grant       held --> released                 it has no entry left, and is neither passed on nor kept
//	              |----> lost                     its lease ended, or Redis does not have it any more
//	              '----> closed                   the session has ended
//
//	Entry       serves a waiter --> held --> released by its Unlock, or lost or closed with its grant
//	               '-----------> dropped          its waiter has left, or the grant ended before
//
// # Invariants
//
// Only Redis decides which attempt is next, in the order of its queue. A message about a grant counts only if
// it has the nonce of the attempt. Only clients that can read the keys of the queue know this nonce. A hold
// is valid for its lease, less a margin for clock drift. The session counts this time from a local time that
// is not later than the moment at which Redis granted or last renewed the lease. The id of an attempt is
// never used again. A grant that no goroutine wants is released, unless WithLinger keeps it. If the reply to
// a request is lost, a copy of the request may still run. So the attempt and its grant record until when a
// copy may arrive (staleUntil), and the release leaves a tombstone in Redis until then. docs/design.md lists
// all invariants, and package protocol describes the protocol. The tests in proof/sim and proof/explore check
// after each settle that the state of the lock is consistent (invariants.go).
package engine
