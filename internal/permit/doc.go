// Package permit is leases of a share: so many permits of a limited number, or all of them. Semaphores and
// read-write locks are made of it: a reader takes one permit, and a writer all.
//
// Begin with lane.go: those goroutines of a session that want the same of one name wait in a lane, first
// come, first served. Attempts ask Redis on behalf of the lane, not of a goroutine: what one of them is
// granted goes to the first that waits (attempt.go). A Grant is what Redis gave, with its lease, and Entries
// are what goroutines have of it (grant.go, entry.go). A Grant that readers share has many entries; any other
// has one at a time, or those that nest in it (nest.go). When the last entry ends, the grant goes to the next
// in the lane for as long as rlock.WithStreak says, and else back to Redis (leave.go). The protocol with
// Redis is in the folder lua.
//
// Pool.mu guards what a session knows of one name. Only Redis decides which attempt is next, in the order of
// its queue. A message about that counts only with the nonce, which only Redis was told. Invariants
// (docs/design.md, section 2): a hold is valid for its lease less the margin for drift, counted from before
// the request that brought it. An attempt's id is never used again, and what no goroutine wants is given
// back.
package permit
