// Package engine acquires, waits for, renews, hands on and releases locks of every kind. rlock, fairlock and
// multilock give it their scripts, as a [Protocol], and show its types to users.
//
// Begin with Mutex.acquire in acquire.go: it is Lock from its call to its end. docs/design.md, section 3, draws the same
// way as states. Then, by what you look for:
//
//	acquire.go     one Lock: the turn, the request, what the answer means, the wait, taking back what nobody wants
//	slot.go        who is inside a lock, or inside a hold of it, and the turns of those behind
//	hold.go        a hold is one Lock that has succeeded. A streak is one grant of Redis, which goes on in memory
//	               from hold to hold. Here a lock is passed on in memory, and lost
//	owner.go       WithOwner: one owner for all below a context, and what it has lost
//	queue.go       the fair lock: goroutines that wait in Redis' queue with one entry, a group
//	quorum.go      RedLock: a session of many servers, and renewal by a majority of them; votes are in quorum_vote.go
//	several.go     MultiLock: locks of one server that are taken by one request, a company
//	lock.go        what the goroutines of a session share of one lock, and giving a grant back
//	session.go     what the locks of a session share, and Shutdown
//	keeper.go      the session as its watchdog sees it
//	keys.go        the names of keys; script.go and *.lua: what the kinds' scripts have in common
//	replicas.go    WithReplicas: a grant counts when enough replicas have it
//
// A streak and a hold are held, then once and for all released, lost or closed (state in hold.go). The invariants are
// those of docs/design.md, section 2. One mutex for each lock, lock.mu, guards its slots, turns, streak and groups
// together: a grant makes a streak and moves those who wait in one step. What is sent is in internal/wire, how a
// message wakes somebody in pubsub, and when a lease is renewed in watchdog.
package engine
