// Package broadcast is how goroutines wait for a lock that has no queue in Redis: a release is published, and one
// goroutine of every session that waits asks again. It is a mutex.Waiting, and knows no queues.
//
// Begin with crowd.Admit in crowd.go. One goroutine of a session at a time is inside the lock's root gate: it competes
// in Redis (compete.go), and stays inside while it holds. Those behind it in this process cost no request, and mostly
// get the lock passed on in memory.
//
// A goroutine that competes asks, then rests until it is notified of a release or the holder's lease is over, then asks
// again. Two invariants are kept here (docs/design.md, section 2). No wake-up is lost: a confirmed subscription counts as news,
// so crowd.sleep ends and the goroutine asks again. A grant that no goroutine wants is given back (asking.RollBack).
package broadcast
