// Package handover is the local side of a lock: which goroutines of a session are inside, which wait, and
// what is passed from one to the next in memory. It sends nothing, starts nothing and blocks nowhere, and
// knows neither time nor contexts. Its caller holds one mutex, the lock's, around every call. Without it only
// the channel of a Waiter is read, and what never changes of it; an Owner has a mutex of its own.
//
// Begin with Gate in gate.go. A gate lets one owner in at a time, first come, first served. Each goroutine
// inside is an entry. The root gate of a lock admits a goroutine that competes for the lock or holds it. Each
// hold has a gate for those that nest under it.
//
//	gate.go    Gate
//	waiter.go  Waiter, List and Handoff: a goroutine that waits, and the one answer that it gets
//	tenure.go  Tenure: the entries under one grant, and its block of tokens, one for each holder in turn
//
// A waiter is in one list at a time until it is answered or withdrawn for good. Before that, it may be moved
// to another. A tenure is held; then, once, released, lost or closed. Invariants kept here (docs/design.md,
// section 2): no wake-up is lost (the last entry to leave admits the next waiter, or says that there is
// none), and tokens only grow (PassOn).
package handover
