// Package engine is the machine of all that is held under a lease and waited for: locks, which one goroutine
// has, and permits, of which there are so many. A reader of a read-write lock takes one permit, and a writer
// all.
//
//	Lock(ctx)
//	  |
//	  |  does ctx descend from a live hold of this name?          entry.go
//	  |--yes--> another entry of its grant; a lock tells Redis the count
//	  |
//	  |  the lane: goroutines of this session that want the same  lane.go
//	  |--a grant passes to it in memory, or is shared------------------------.
//	  |                                                                      |
//	  |  an attempt asks Redis for the lane                       attempt.go |
//	  |--granted by the reply------------------------------------------------|
//	  |  it stands in the queue, and asks again now and then      attempt.go |
//	  |--granted by a message (inbox.go), or by a reply to another request---|
//	  |                                                                      v
//	  |                                                     grant and entry: grant.go, entry.go
//	  '--ctx has ended: the attempt is withdrawn                             |
//	                                                                 Unlock: leave.go
//	                                                                         |
//	          to the next of the lane, in memory  <--while its session may---|
//	          to the goroutine that comes next    <--if no session wants it--|  linger.go
//	          to Redis: the release serves the queue, and  <-----------------'
//	          its reply and messages tell the attempts that were served
//
// An attempt asks on behalf of its lane, not of a goroutine: a grant goes to the first that waits. A grant is
// what Redis gave, with its lease, and entries are what goroutines have of it. A grant that readers share has
// many entries; any other has one at a time, and those that nest in it. One session passes a grant on for as
// long as rlock.WithHandover says, or, if its kind is Fair, to the goroutines that had come when the request
// left (lane.go).
//
// A request whose reply was lost may yet be carried out. So its attempt knows until when a copy may come
// (late), and so does its grant; what ends them tells Redis, which leaves a tombstone until then.
//
// A kind is data (kind.go). A grant and each hold of it is held; then, once, released, lost or
// closed (handle.State). An attempt is asking, standing, unwanted or over (attemptState). The protocol with
// Redis is in package protocol.
//
// pool.mu guards what a session knows of one name. Only Redis decides which attempt is next, in the order of
// its queue. A message about that counts only with the nonce, which only Redis was told. Invariants
// (docs/design.md): a hold is valid for its lease less the margin for drift, counted from before
// the request that brought it. An attempt's id is never used again, and what no goroutine wants is given
// back.
package engine
