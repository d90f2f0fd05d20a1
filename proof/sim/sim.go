// Package sim runs locks in simulated worlds. A world has processes, networks and servers, and runs in the
// fake time of testing/synctest. A seed decides which faults happen in the world. While the processes lock
// and unlock, checkers compare the holds and the data on the servers with the promises of the locks. Ten
// minutes of fake time take about a second.
//
// For each lock, the checkers verify:
//
//   - Mutual exclusion. No two holds of a lock with one holder are valid at the same time, except for nested
//     holds. A stronger check is that Redis, or a majority of the servers of a RedLock, has the lock for each
//     hold that its holder considers valid.
//   - Permits. No more permits are held than the limit at the last grant. (The limit of a semaphore may have
//     been reduced since.) A reader of a read-write lock has one permit, and a writer has all. A holder loses
//     its permits only if it releases them, its lease ends, or an operator frees them by force.
//   - Tokens. Tokens grow from grant to grant and from holder to holder, and nested holds share a token. A
//     majority of a RedLock's servers grants only tokens above the token of the holder. The token of the
//     holder is at most a minute above the latest clock of the servers.
//   - Order. Waiters are served in the order in which the server saw their requests. A waiter is passed over
//     only for one of three reasons. It does not count as alive, its session has lost the subscription, or it
//     wants more permits than the limit. An attempt that does not count as alive is only granted the lock by
//     its own request. An attempt that counts as alive stays in the queue, unless it wants more permits than
//     the limit. An attempt that has left does not come into the queue again.
//   - Ends. An attempt that has ended is granted nothing.
//   - Progress. Once the faults have ended, a lock does not stay free for long while a call waits. Permits do
//     not stay free for long if they are enough for the first waiter in the queue.
//   - Renewal. A renewed hold is not lost without a fault.
//   - Errors. Each error of a call is documented, and its documented reason is true. The results of Extend,
//     Unlock and nested calls are true.
//   - Rest. No key, subscription or goroutine is left.
//
// A latch has no holders. Its checker has a model, which executes the same requests as the server:
//
//   - After each request, Redis has the same count, run, parties and leases as the model.
//   - The result of a call was true at some time during the call. A call takes effect at most once, and
//     exactly once if it reports success.
//   - Once the faults have ended, a live party keeps its lease, and a party whose Join has failed has no
//     lease. A Wait returns soon after its run has ended or a party has died.
//
// An election is a fair lock, and has all promises of locks. There are further promises about its values:
//
//   - A leadership ends for its leader before the lock is released. A value is only stored and shown for the
//     leader that has the lock. A value is never replaced by a value that the same leader proclaimed earlier.
//   - At each step, an observer sees a value that Redis has had since the step before. It never sees an older
//     token or value than before, and never sees the same value twice in a row. Once the faults have ended,
//     the observer sees each change in time, and a value that Redis has lost is stored again.
//
// A lease ends by Redis' clock, even if its owner is still in the hash. If the clock is set back, a lease
// that has ended may continue, unless another attempt was granted the lock since. A server keeps the hash of
// a lock for longer than the lease, but keeps no key forever.
//
// An operator may delete the hash of a lock, its queue, or the hash of its waiters, each alone. Without the
// hash, the present hold is void, and the tokens are forgotten. The deletion of the queue or of the waiters
// changes no hold. Waiters may lose their places to others, but they are in the queue again after a heartbeat
// at most.
//
// Redis may forget acknowledged writes, because it comes back empty or with an old snapshot. After that, and
// after a ForceUnlock, former holders may consider their holds valid for the rest of their leases. These
// holds are void, so they do not count for exclusion any more. But tokens still order all holders, and
// progress must resume.
package sim

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A Kind is a kind of world.
type Kind struct {
	Name    string
	Seeds   int // number of seeds that run with all tests, in about 4 s of processor time
	servers int
	locks   []place       // locks that the processes use
	most    int           // number of locks that one call takes at most
	latency time.Duration // time that a message takes without faults
	actors  int           // number of goroutines of each process
	crowd   int           // the same number, for seeds in which these goroutines lock at the same time

	// gap is the longest time for which a lock may be free while somebody waits, without faults.
	gap time.Duration

	// lossGap takes the place of gap if messages are lost. Then waiters may be served only at the end of a
	// lease, or by a heartbeat. A lossGap of 0 means that the world loses no messages.
	lossGap time.Duration

	elects bool     // the fair lock belongs to an election
	vital  []string // counts that must not be 0 after many seeds, otherwise the seeds prove nothing
}

// A place is a lock with its server.
type place struct {
	kind   byte // letter of the kind in the keys of the lock
	name   string
	server int
}

// permits reports whether the lock has permits.
func (p place) permits() bool { return p.kind == 'w' || p.kind == 'p' }

// Kinds has all kinds of worlds.
var Kinds = []Kind{
	{Name: "rlock", Seeds: 24, servers: 1, locks: []place{{'r', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, lossGap: 1500 * time.Millisecond, vital: []string{"forced by token",
			"handed in memory", "handed over", "dropped", "stays taken", "restarts, empty", "restarts, old"}},
	{Name: "fairlock", Seeds: 16, servers: 1, locks: []place{{'f', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, lossGap: 1500 * time.Millisecond, vital: []string{"forced by token",
			"handed in memory", "handed over", "dropped", "stays taken", "restarts, empty", "restarts, old"}},
	{Name: "redisson", Seeds: 8, servers: 1, locks: []place{{'j', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, lossGap: 5 * time.Second,
		vital: []string{"forced by token", "restarts, empty", "restarts, old"}},
	{Name: "multilock", Seeds: 5, servers: 2,
		locks: []place{{'r', "a", 0}, {'r', "b", 0}, {'f', "c", 0}, {'r', "d", 1}, {'f', "e", 1}}, most: 4,
		latency: 10 * time.Millisecond, actors: 3, crowd: 4, gap: 4 * time.Second,
		vital: []string{"restarts, empty", "restarts, old"}},
	{Name: "redlock3", Seeds: 6, servers: 3, locks: []place{{'q', "x", 0}}, most: 1,
		latency: 5 * time.Millisecond, actors: 2, crowd: 3,
		gap: 2 * time.Second, vital: []string{"restarts, empty", "restarts, old", "tokens raised",
			"servers joined", "handed over", "forced by token", "stood in line"}},
	{Name: "redlock5", Seeds: 4, servers: 5, locks: []place{{'q', "x", 0}}, most: 1,
		latency: 5 * time.Millisecond, actors: 2, crowd: 3,
		gap: 2 * time.Second, vital: []string{"restarts, empty", "restarts, old", "tokens raised",
			"servers joined", "handed over", "forced by token", "stood in line"}},
	{Name: "rwlock", Seeds: 8, servers: 1, locks: []place{{'w', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, lossGap: 2 * time.Second, vital: []string{"forced by token",
			"handed in memory", "handed over", "dropped", "restarts, empty", "restarts, old",
			"shared in memory", "side by side", "went on", "reduced", "upgrades refused"}},
	{Name: "semaphore", Seeds: 8, servers: 1, locks: []place{{'p', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, lossGap: 2 * time.Second,
		vital: []string{"forced by token", "handed over", "dropped", "restarts, empty", "restarts, old",
			"shared in memory", "side by side", "all permits held", "let pass", "limit raised",
			"limit reduced"}},
	{Name: "latch", Seeds: 4, servers: 1, locks: []place{{'l', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, lossGap: 7500 * time.Millisecond,
		vital: []string{"waits", "not waited", "runs at 0", "runs deleted", "races", "parties",
			"parties counted", "parties died", "parties replaced",
			"waits ended by a dead party", "waits ended by Delete", "waits for what is gone", "repeated",
			"too late", "restarts, empty", "restarts, old", "forged messages"}},
	{Name: "election", Seeds: 10, servers: 1, locks: []place{{'f', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6, elects: true,
		gap: 700 * time.Millisecond, lossGap: 2 * time.Second,
		vital: []string{"lost", "not waited", "too late", "forced", "forced by token", "handed over",
			"dropped", "restarts, empty", "restarts, old",
			"proclaimed", "proclaims that were not stored", "stored again", "resigned", "seen",
			"seen that there is none"}},
}

// Vital returns the counts that must not be 0 after many seeds.
func (k Kind) Vital() []string {
	all := []string{"entries", "failed", "crashes", "closes"}
	if !k.elects && k.locks[0].kind != 'l' {
		all = append(all, "nested", "lost", "not waited", "too late", "forced", "extended",
			"locks in a pipeline")
	}
	if strings.ContainsRune("rf", rune(k.locks[0].kind)) && !k.elects || k.locks[0].permits() {
		all = append(all, "sent by its caller: acquire", "sent by its caller: release")
	}
	return append(all, k.vital...)
}

// Run runs the world of one seed, and adds its events to counts. It returns the first broken promise or a
// panic, or nil if there was no failure.
func Run(t *testing.T, k Kind, seed int64, counts *Counts) (failure *Failure) {
	var w *world
	defer func() { // synctest panics if goroutines are left in the bubble
		if p := recover(); p != nil {
			wrecks.Store(w, true)
			failure = &Failure{What: fmt.Sprint("panic: ", p), events: w.events}
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(k, seed, counts)
		w.run()
		failure = w.failure
	})
	counts.Add("seeds")
	return failure
}

// wrecks has the worlds in which a goroutine was left. They are never freed. Otherwise, the library would
// unlock their forgotten Holds from outside of the bubble, which would end the program.
var wrecks sync.Map
