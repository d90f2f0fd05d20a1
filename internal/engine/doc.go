// Package engine is the state machine of all that a session holds under a lease and waits for. That is locks,
// which one goroutine has at a time, and permits, of which there are several. A reader of a read-write lock
// takes one permit, and a writer takes all.
//
//	event                                                                  where
//	a call of Lock or TryLock waits, is answered, or leaves                acquire.go
//	a call nests in a hold from which its context descends                 nest.go
//	a request of an attempt has its reply, or a message has arrived        attempt.go, inbox.go
//	a hold is unlocked, or a release has its reply                         unlock.go
//	a grant is lost, or the session closes                                 grant.go, state.go
//	the time has come for which settle has set the timer                   settle.go
//
// Every event locks the mutex of the lock, changes the state, and collects effects (effects.go). Then
// settle decides what follows from the state: who is served, what is requested, withdrawn and released, and
// when to look again (settle.go). At last the mutex is free, and the effects are carried out: contexts are
// canceled, waiters woken, and requests sent. So a reader who wants to know why something happens looks at
// settle, and a reader who wants to know what a reply or message changes looks at the event.
//
// # The path of an uncontended Lock and Unlock
//
//	Acquire, AcquireEntry, acquire     options and bounds; no hold to nest in (acquire.go)
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
// If the lock is held, the reply says that the attempt is queued. The goroutine then waits for news, until a
// message (inbox.go) or another reply brings the grant, and settle serves the waiter.
//
// # Types
//
// A lockState has all that a session knows of one name. A waiter is a call of Lock. Waiters that want the
// same are grouped in a lane. An attempt requests a grant from Redis for a lane, and
// not for a goroutine, because the grant serves the first waiter of the lane. A Grant is a lease that Redis
// granted. An Entry is the share that one goroutine has in a grant. A grant that readers share has many
// entries. Any other grant has one entry at a time, and the entries that are nested in that one.
//
//	waiter      waits --> answered                an entry of a grant, or an error
//	               '----> left                    its context has ended, or the session closes
//
//	attempt     requested --> queued --> done     granted or refused
//	               '------------'------> withdrawn, until Redis has nothing of it
//
//	Grant       held --> released                 its last entry has ended, and it serves nobody else
//	              |----> lost                     its lease ended, or Redis does not have it any more
//	              '----> closed                   the session has ended
//
//	Entry       serves a waiter --> held --> released, lost or closed, as its grant
//	               '-----------> dropped          its waiter has left, or the grant has ended before
//
// # Invariants
//
// Only Redis decides which attempt is next, in the order of its queue. A message about that counts only with
// the nonce of the attempt, which only Redis has. A hold is valid for its lease less a margin for drift,
// counted from before the request was sent that granted or last renewed the lease. The id of an attempt is
// never used again, and a grant that no goroutine wants is released. A request whose reply was lost may
// still run. So its attempt knows until when a copy may arrive (staleUntil), as does its grant, and the
// release leaves a tombstone in Redis until then. docs/design.md has all invariants, and package protocol
// has the protocol. Simulation and exploration check after each event that the memory of a session is
// consistent (invariants.go).
package engine
