// Package session is one identity by which locks are held, and what they share: the way to Redis, the
// subscription connection, the watchdog, and an orderly end. It knows no kind of lock.
//
// Begin with Session. What a kind keeps for a session is a Part, in the session's registry; what holds a
// lease is a Lessee, which the watchdog reaches through keeper.
//
// A session is open, then closing (waits end, nothing begins, what is held is given back), then over.
// Shutdown waits for all work that has begun. If its context ends first, the locks that Redis still has end
// with their leases. So the invariant "no trace" of docs/design.md is kept here.
package session
