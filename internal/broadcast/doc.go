// Package broadcast is how goroutines wait for a lock that has no queue in Redis: a release is published, and one
// goroutine of every session that waits asks again. It is a mutex.Waiting, and knows neither queues nor quorums.
//
// Where a kind has a Turnstile, sessions stand in line, and the first of them asks alone (turn.go).
//
// Begin with crowd.Admit in crowd.go. One goroutine of a session at a time is inside the lock's root gate: it competes
// in Redis (compete.go), and stays inside while it holds. Those behind it in this process cost no request, and mostly
// get the lock passed on in memory.
//
// A goroutine that competes asks, then rests until it is told of a release or the holder's lease is over, then asks
// again. Invariants kept here (docs/design.md, section 2): no lost wake-up (a subscription that is confirmed counts as news, so
// crowd.sleep ends and it asks again), and a grant that nobody wants is given back (asking.RollBack).
package broadcast
