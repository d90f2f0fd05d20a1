// Package engine acquires, waits for, renews, hands on and releases locks of every kind. rlock, fairlock and
// multilock give it their scripts, as a [Protocol], and show its types to users.
//
// Begin with Mutex.acquire in acquire.go: it is Lock from its call to its end. docs/design.md, section 3, draws the same
// way as states. Then, by what you look for:
//
//	mutex.go            a Mutex and its options
//	acquire.go          one Lock: its turn, its wait, and how it ends
//	compete.go          the one goroutine of a session that asks Redis for a lock; attempt.go: its requests, and
//	                    taking back what nobody wants; answer.go: what a script's answer means
//	slot.go             who is inside a lock, or inside a hold of it, and the turns of those behind
//	streak.go           a streak is one grant of Redis, which goes on in memory from hold to hold. Here a lock is
//	                    passed on in memory, renewed, lost and released
//	hold.go             a hold is one Lock that has succeeded; its Unlock
//	owner.go            WithOwner: one owner for all below a context, and what it has lost
//	queue.go            the fair lock's line: heartbeats and messages; group.go: goroutines that wait in Redis' queue
//	                    with one entry
//	quorum.go           RedLock: a session of many servers. quorum_vote.go: votes for a grant; quorum_keep.go:
//	                    renewal by a majority; quorum_request.go: requests about a grant
//	several.go          MultiLock: locks of one server that are taken by one request, a company; heir.go: how they
//	                    are passed on in memory together
//	lock.go             what the goroutines of a session share of one lock, and giving a grant back
//	session.go          what the locks of a session share, and Shutdown
//	keeper.go           the session as its watchdog sees it
//	listener.go         a subscription of a lock
//	keys.go             the names of keys; script.go: calls of scripts
//	replicas.go         WithReplicas: a grant counts when enough replicas have it
//
// A streak and a hold are held, then once and for all released, lost or closed (state in streak.go). The invariants are
// those of docs/design.md, section 2. One mutex for each lock, lock.mu, guards its slots, turns, streak and groups
// together: a grant makes a streak and moves those who wait in one step. What is sent is in internal/wire, how a
// message wakes somebody in pubsub, and when a lease is renewed in watchdog.
package engine
