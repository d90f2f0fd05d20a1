// Package sim runs locks in a simulated world: processes, networks and servers whose
// faults a seed decides, in the fake time of testing/synctest. While they lock and
// unlock, checkers compare what the holders believe, and what the servers did, with what
// the locks promise. Ten minutes of such a world take about a second.
//
// The checkers, for each lock:
//
//   - mutual exclusion: no two valid holds but those that are nested. The stronger half is
//     that Redis (of a RedLock, a majority) holds the lock for each holder that believes so;
//   - of permits, no more are held than there were when the last of them was granted: a semaphore's limit may
//     have been reduced since. A reader has one permit of a read-write lock, and a writer has all. Nothing
//     takes permits from a holder but its own release, the end of its lease, and force;
//   - tokens grow from grant to grant and from holder to holder, and nested holds share one. A majority
//     of a RedLock's servers grants only tokens above the holder's, which is not far above their clocks;
//   - first come, first served, as the server saw the requests. An attempt that is not known to live is
//     granted nothing, but by its own request. No attempt that is known to live
//     is dropped from the queue, and none that has left gets into it. Only an attempt that wants more
//     permits than there are at all is passed;
//   - no attempt is granted anything once it is over;
//   - progress: once the faults are over, no lock stays free for long while a call waits, and enough permits
//     for the first in the queue do not either;
//   - a renewed hold is not lost while all is well;
//   - errors: only those that the documentation names, each only with its reason; what
//     Extend, re-entry and Unlock say is so;
//   - nothing is left behind: no key, subscription or goroutine.
//
// A latch is not held. Its checker is a model of it, which goes through all requests as the server has
// executed them:
//
//   - after each of them, Redis has what the model has: the count, the run, the parties and until when they
//     have their leases;
//   - what a call returns was so at a time between its begin and its end. A call takes effect once at most,
//     and one that says so, once;
//   - once the faults are over, a live party keeps its lease, and a party whose Join has failed leaves none.
//     A Wait then returns soon after its run has ended or a party has died.
//
// An election is a fair lock, with all of the above, and what is said in it:
//
//   - a leadership has ended for its leader before the lock is released. A value is only stored and shown for
//     the leader that has the lock, and never replaced by one that was proclaimed before it;
//   - an observer is shown what Redis had after the step before: no token and no value of a leader from
//     before, and nothing twice. Once the faults are over, it is shown each change in time, and Redis gets a
//     value again that it lost.
//
// A lease has ended when Redis' clock says so, although its owner is still in the hash. With a clock that is
// set back, such a lease may continue, if nobody was granted the lock since. A server keeps the hash of a
// lock for longer than its lease, and nothing forever.
//
// An operator may delete the hash of a lock, its queue, or the hash of its waiters, each alone. The first
// makes the present hold void, and forgets the tokens. The other two leave the lock as it is: nobody else
// gets it. Waiters may lose their places to others. They are in the queue again after a heartbeat at
// most.
//
// Redis may forget what it acknowledged: it comes back empty, or with an old snapshot. Then, and after a
// ForceUnlock, holders from before may believe in their holds for the rest of their lease. These holds are
// void: they no longer count for exclusion. But tokens still order all holders, and progress must resume.
package sim

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Kind is what the processes of a world lock.
type Kind struct {
	Name    string
	Seeds   int // how many are run with all tests, in about 4 s of processor time
	servers int
	locks   []place
	most    int           // locks that one acquisition takes at most
	latency time.Duration // of a message without faults
	actors  int           // of each process
	crowd   int           // the same, in the seeds where they ask together
	gap     time.Duration // how long nobody has the lock while somebody waits, at most, when all is well
	// The same where messages are lost, so that it takes the end of a lease or a heartbeat; 0: never lose
	// them.
	deafGap time.Duration
	elects  bool     // its fair lock is that of an election
	vital   []string // what must happen in many seeds, or they prove nothing
}

// place is a lock's name and where it is.
type place struct {
	kind   byte // as in its keys
	name   string
	server int
}

// permits reports whether it is given away by permits.
func (p place) permits() bool { return p.kind == 'w' || p.kind == 'p' }

// Kinds are all there are.
var Kinds = []Kind{
	{Name: "rlock", Seeds: 24, servers: 1, locks: []place{{'r', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, deafGap: 1500 * time.Millisecond, vital: []string{"forced by token",
			"handed in memory", "handed over", "dropped", "stays taken", "restarts, empty", "restarts, old"}},
	{Name: "fairlock", Seeds: 16, servers: 1, locks: []place{{'f', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, deafGap: 1500 * time.Millisecond, vital: []string{"forced by token",
			"handed in memory", "handed over", "dropped", "stays taken", "restarts, empty", "restarts, old"}},
	{Name: "redisson", Seeds: 8, servers: 1, locks: []place{{'j', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, deafGap: 5 * time.Second,
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
		gap: 500 * time.Millisecond, deafGap: 2 * time.Second, vital: []string{"forced by token",
			"handed in memory", "handed over", "dropped", "restarts, empty", "restarts, old",
			"shared in memory", "side by side", "went on", "reduced", "upgrades refused"}},
	{Name: "semaphore", Seeds: 8, servers: 1, locks: []place{{'p', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, deafGap: 2 * time.Second,
		vital: []string{"forced by token", "handed over", "dropped", "restarts, empty", "restarts, old",
			"shared in memory", "side by side", "all permits held", "let pass", "limit raised",
			"limit reduced"}},
	{Name: "latch", Seeds: 4, servers: 1, locks: []place{{'l', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6,
		gap: 500 * time.Millisecond, deafGap: 7500 * time.Millisecond,
		vital: []string{"waits", "not waited", "runs at 0", "runs deleted", "races", "parties",
			"parties counted", "parties died", "parties replaced",
			"waits ended by a dead party", "waits ended by Delete", "waits for what is gone", "repeated",
			"too late", "restarts, empty", "restarts, old", "forged messages"}},
	{Name: "election", Seeds: 10, servers: 1, locks: []place{{'f', "x", 0}}, most: 1,
		latency: 20 * time.Millisecond, actors: 3, crowd: 6, elects: true,
		gap: 700 * time.Millisecond, deafGap: 2 * time.Second,
		vital: []string{"lost", "not waited", "too late", "forced", "forced by token", "handed over",
			"dropped", "restarts, empty", "restarts, old",
			"proclaimed", "proclaims that were not stored", "stored again", "resigned", "seen",
			"seen that there is none"}},
}

// Vital is what must happen in many seeds.
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

// Run lives through one seed's world, and adds what happened to counts. The failure is nil, or
// the first broken promise.
func Run(t *testing.T, k Kind, seed int64, counts *Counts) (failure *Failure) {
	var w *world
	defer func() { // what is left in a bubble panics
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

// wrecks are worlds in which something was left running. They are kept, because Holds that look forgotten
// would be unlocked from outside of the bubble, which ends the program.
var wrecks sync.Map
