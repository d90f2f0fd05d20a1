package main

import (
	"context"
	"slices"
	"time"
)

// A scenario is an experiment in which some clients take one or several locks. Each client has its own
// connections and some goroutines.
type scenario struct {
	name string   // crowds of all sizes have the same name
	what string   // description of the scenario on the page
	who  []string // names of the contenders
	run  func(context.Context, bout) (figures, error)

	clients    int
	goroutines int           // goroutines of each client
	ownLocks   bool          // each goroutine has a lock of its own; false: all goroutines want one lock
	reads      int           // percentage of the cycles that only read; the other cycles write
	permits    int           // permits of the semaphore; 0: the lock is not a semaphore
	critical   time.Duration // time spent under the lock
	servers    int           // number of independent servers for locks on a majority; 0: one server
	crowd      bool          // the end of the run ends all waits, because a turn for all could take minutes
	locks      int           // number of locks in the scenario held
	lease      time.Duration // lease of the locks; 0: the default of the contender

	stretch int  // factor by which the run is longer than --duration; 0: 1
	once    bool // the scenario has one round, even if other scenarios have more
}

// Names of the contenders of several scenarios. In scenarios without waiters, each library takes part with
// only one strategy for waits.
var (
	lone     = []string{"raw", "rlock", "fairlock", "rueidislock", "redislock", "redsync"}
	rivals   = append(slices.Clone(crowding), "redislock", "redsync")
	reading  = []string{"rlock", "rwlock", "redislock", "redislock-exp"}
	crowding = []string{"rlock", "fairlock", "rueidislock", "redislock-exp", "redsync-default"}
)

var scenarios = slices.Concat([]scenario{
	{name: "solo", what: "1 goroutine, 1 lock",
		who:     slices.Concat(idiomNames(), lone, []string{"multilock", "rlock-linger"}),
		clients: 1, goroutines: 1, run: cycles},
	{name: "distinct", what: "128 goroutines of 1 client, each with its own lock", who: lone,
		clients: 1, goroutines: 128, ownLocks: true, run: cycles},
	{name: "hot1", what: "32 goroutines of 1 client, 1 lock", who: rivals,
		clients: 1, goroutines: 32, run: cycles},
	{name: "hot8", what: "8 clients x 4 goroutines, 1 lock",
		who:     append([]string{"multilock", "rlock-linger"}, rivals...),
		clients: 8, goroutines: 4, run: cycles},
	{name: "hold1ms", what: "8 clients x 4 goroutines, 1 lock, 1 ms of work", who: rivals,
		clients: 8, goroutines: 4, critical: time.Millisecond, run: cycles},
}, crowds(8, 50, 300, 1000), []scenario{
	{name: "handoff", what: "The time from the call of Unlock in one client to the return of Lock in another",
		who: append([]string{"rlock-linger"}, rivals...), run: handoff},
	{name: "quorum-solo", what: "5 servers, 1 goroutine, 1 lock", who: []string{"redlock", "redsync"},
		clients: 1, goroutines: 1, servers: 5, run: cycles},
	{name: "quorum-8", what: "5 servers, 8 clients x 1 goroutine, 1 lock",
		who:     []string{"redlock", "redsync", "redsync-default"},
		clients: 8, goroutines: 1, servers: 5, run: cycles},
	{name: "quorum-crowd",
		what: "3 servers, 50 clients x 1 goroutine, 1 lock, 5 ms of work, for 3 times --duration",
		who:  []string{"redlock", "redsync-default"}, clients: 50, goroutines: 1, servers: 3,
		critical: 5 * time.Millisecond, crowd: true, stretch: 3, once: true, run: cycles},
	{name: "read-mostly", what: "8 clients x 4 goroutines, 1 lock, 95 % of the cycles read and 5 % write",
		who: reading, clients: 8, goroutines: 4, reads: 95, run: cycles},
	{name: "read-mostly-1ms", what: "as read-mostly, with 1 ms of work",
		who: reading, clients: 8, goroutines: 4, reads: 95, critical: time.Millisecond, run: cycles},
	{name: "semaphore", what: "8 clients x 4 goroutines, 1 semaphore of 4 permits, 1 ms of work",
		who:     []string{"semaphore", "redislock-keys", "zset-poll"},
		clients: 8, goroutines: 4, permits: permits, critical: time.Millisecond, run: cycles},
	{name: "held", what: "50,000 held locks for one lease, which is 15 s here",
		who:   []string{"rlock", "fairlock", "rueidislock", "redislock", "redsync"},
		locks: 50_000, lease: 15 * time.Second, once: true, run: held},
	{name: "latch", what: "100 waiters of 100 clients. The time is from the last of 3 calls of CountDown " +
		"to the return of the last waiter",
		who: []string{"latch", "counter-poll", "counter-pubsub"}, clients: 100, goroutines: 1, run: runLatch},
})

// crowds returns scenarios in which clients with one goroutine each want one lock. sizes has the number of
// clients of each scenario.
func crowds(sizes ...int) (all []scenario) {
	for _, n := range sizes {
		all = append(all, scenario{
			name: "crowd", who: crowding,
			what: "clients x 1 goroutine, 1 lock, 5 ms of work, for 3 times --duration. " +
				"At most 200 cycles/s are possible",
			clients: n, goroutines: 1, critical: 5 * time.Millisecond,
			crowd: true, stretch: 3, once: true, run: cycles,
		})
	}
	return all
}

// beside returns the approximate time that a run takes in addition to the measured time. The progress bar
// needs this time.
func (s scenario) beside() time.Duration {
	clients := time.Duration(s.clients * max(1, s.servers))
	locks := time.Duration(s.locks)
	return 250*time.Millisecond + clients*2*time.Millisecond + s.lease + locks*80*time.Microsecond
}
