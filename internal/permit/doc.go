// Package permit is the engine of all that is held under a lease and waited for in a queue: locks, which one
// goroutine holds, and permits, of which there are so many. A reader of a read-write lock takes one permit,
// and a writer all.
//
// Begin with lane.go: those goroutines of a session that want the same of one name wait in a lane, first
// come, first served. Attempts ask Redis on behalf of the lane, not of a goroutine (attempt.go): what one of
// them is granted goes to the first that waits (answer.go). A Grant is what Redis gave, with its lease, and
// Entries are what goroutines have of it (grant.go, entry.go). A Grant that readers share has many entries;
// any other has one at a time, and those that nest in it (nest.go). When the last entry ends, the grant goes
// to the next in the lane for as long as rlock.WithStreak says, and else back to Redis (leave.go). A fair
// kind has a lane for each request (fair.go). The protocol with Redis is in package script.
//
// A kind is data (Kind in pool.go). A grant and each hold of it is held; then, once, released, lost or
// closed (handle.State). An attempt is asking, standing, unwanted or over (attemptState).
//
// Pool.mu guards what a session knows of one name. Only Redis decides which attempt is next, in the order of
// its queue. A message about that counts only with the nonce, which only Redis was told. Invariants
// (docs/design.md, section 2): a hold is valid for its lease less the margin for drift, counted from before
// the request that brought it. An attempt's id is never used again, and what no goroutine wants is given
// back.
package permit
