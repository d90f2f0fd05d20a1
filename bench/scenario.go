package main

import (
	"context"
	"fmt"
	"time"
)

// scenario is which clients want what lock: clients with connections of their own, as
// processes have, and goroutines of each.
type scenario struct {
	name   string
	what   string
	needs  []need
	family family // those that differ in the number of clients only

	clients    int
	goroutines int           // of each client
	ownLocks   bool          // a lock for each goroutine, else one for all
	depth      int           // how often each locks before it unlocks as often; 0: once
	reads      int           // of 100 cycles, those that only read; the others write
	permits    int           // that may be inside together; 0: one
	critical   time.Duration // spent inside
	delay      time.Duration // added to every message, each way
	processes  bool          // each client in a process
	count      int           // of waiters, locks or names
	lease      time.Duration // 0: as the contender has it
	fine       bool          // market: a lock for each item
	servers    int           // of a majority; 0: all that there are
	stretch    int           // it runs for so many times --duration; 0: once
	once       bool          // one round, however many the others have

	// run measures it once.
	run func(context.Context, bout) (sample, error)
	// counted says that a round of its own counts requests; ordered, that it also looks at the order of grants.
	counted, ordered bool
}

// family is some scenarios that a plot is of.
type family struct{ name, what string }

// bout is one contender in one scenario.
type bout struct {
	scenario
	contender
	setup
	embedded bool
	window   time.Duration
}

// sample is what one run measured.
type sample struct {
	figures
	waits *histogram // nil if the scenario does not look at them
}

// book is what Redis in Action, section 6.2, publishes: purchases in 60 s and the mean wait in ms.
var book = map[string]string{
	"market-1x1": "WATCH 27,000 at 14 ms, coarse lock 50,000, fine-grained 110,000",
	"market-5x1": "WATCH <200 at 150 ms, coarse lock 13,000, fine-grained 36,000",
	"market-5x5": "WATCH <600 at 498 ms, coarse lock 20,500, fine-grained 111,000",
}

var scenarios = allScenarios()

func allScenarios() []scenario {
	alone := []need{aLock, noWaiting, oneServer}
	rivals := []need{aLock, waiting, oneServer}
	all := []scenario{
		{name: "solo", what: "1 goroutine, 1 lock", needs: alone, clients: 1, goroutines: 1},
		{name: "distinct", what: "128 goroutines of 1 client, each its own lock", needs: alone, clients: 1, goroutines: 128, ownLocks: true},
		{name: "hot1", what: "32 goroutines of 1 client, 1 lock", needs: rivals, clients: 1, goroutines: 32},
		{name: "hot8", what: "8 clients x 4 goroutines, 1 lock", needs: rivals, clients: 8, goroutines: 4, ordered: true},
		{name: "procs", what: "8 processes x 4 goroutines, 1 lock", needs: rivals, clients: 8, goroutines: 4, processes: true},
		{name: "hold1ms", what: "8 clients x 4 goroutines, 1 lock, 1 ms inside", needs: rivals, clients: 8, goroutines: 4, critical: time.Millisecond, ordered: true},
		{name: "nested", what: "1 goroutine, 1 lock, locked 5 times over", needs: append([]need{reentrancy}, alone...), clients: 1, goroutines: 1, depth: 5},
		{name: "rtt-solo", what: "solo, 0.5 ms each way", needs: alone, clients: 1, goroutines: 1, delay: eachWay},
		{name: "distinct-rtt", what: "distinct, 0.5 ms each way", needs: alone, clients: 1, goroutines: 128, ownLocks: true, delay: eachWay},
		{name: "rtt-hot1", what: "hot1, 0.5 ms each way", needs: rivals, clients: 1, goroutines: 32, delay: eachWay},
		{name: "rtt-hot8", what: "hot8, 0.5 ms each way", needs: rivals, clients: 8, goroutines: 4, delay: eachWay, ordered: true},
	}
	for i := range all {
		all[i].run, all[i].counted = cycles, true
	}
	all = append(all,
		scenario{name: "starve", what: "1 client with 8 goroutines against 1 with 1, 1 lock", needs: rivals, clients: 2, goroutines: 8, run: starve},
		scenario{name: "waiters", what: "1,000 waiters of 8 clients on 1 held lock, for 5 times --duration", needs: rivals, clients: 8, goroutines: 125, count: 1000, run: waiters},
		scenario{name: "held", what: "50,000 held locks, lease 30 s, for two renewal intervals: figures are for both together, and of one round", needs: alone, clients: 1,
			goroutines: 128, ownLocks: true, count: 50_000, lease: defaultLease, once: true, run: held},
		scenario{name: "names", what: "50,000 names, each locked and unlocked once by one of 8 goroutines of 1 client", needs: append([]need{inRedis}, alone...), clients: 1,
			goroutines: 8, ownLocks: true, count: 50_000, run: runNames},
		scenario{name: "handoff", what: "from the call of Unlock in one process to the return of Lock in another", needs: []need{aTurn, oneServer}, clients: 2, goroutines: 1, processes: true, run: handoff},
	)
	reading := scenario{name: "read-mostly", what: "8 clients x 4 goroutines, 1 lock, 95 % of the cycles read and 5 % write", needs: []need{readOrWrite, oneServer}, clients: 8, goroutines: 4,
		reads: 95, run: cycles, counted: true}
	all = append(all, reading)
	reading.name, reading.what, reading.critical = "read-mostly-1ms", "read-mostly, 1 ms inside", time.Millisecond
	all = append(all, reading)
	for _, size := range []struct {
		name, what          string
		clients, goroutines int
	}{{"semaphore-1", "32 goroutines of 1 client", 1, 32}, {"semaphore-8", "8 clients x 4 goroutines", 8, 4}} {
		all = append(all, scenario{name: size.name, what: fmt.Sprintf("%s, 1 semaphore of %d permits, 1 ms inside", size.what, permits), needs: []need{somePermits, oneServer},
			clients: size.clients, goroutines: size.goroutines, permits: permits, critical: time.Millisecond, run: cycles, counted: true})
	}
	all = append(all, latchOf("latch", 0), latchOf("latch-rtt", eachWay))
	quorum := scenario{name: "quorum-solo", what: "5 servers, 1 goroutine, 1 lock", needs: []need{aLock, noWaiting, majority}, clients: 1, goroutines: 1, run: cycles, counted: true}
	all = append(all, quorum)
	quorum.name, quorum.what, quorum.needs = "quorum-hot", "5 servers, 8 clients x 4 goroutines, 1 lock", []need{aLock, waiting, majority}
	quorum.clients, quorum.goroutines = 8, 4
	all = append(all, quorum)
	quorum.name, quorum.what = "quorum-8", "5 servers, 8 clients x 1 goroutine, 1 lock"
	quorum.clients, quorum.goroutines = 8, 1
	all = append(all, quorum)
	for _, size := range []struct{ sellers, buyers int }{{1, 1}, {5, 1}, {5, 5}} {
		all = append(all, marketOf(size.sellers, size.buyers, false), marketOf(size.sellers, size.buyers, true))
	}
	for _, n := range []int{8, 50, 300, 1000} {
		all = append(all, crowdOf(n))
	}
	for _, n := range []int{8, 50, 200} {
		all = append(all, quorumCrowdOf(n))
	}
	return all
}

const eachWay = 500 * time.Microsecond

func (s scenario) called() string { return s.name }
