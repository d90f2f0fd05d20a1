package main

import "slices"

// need is something that a scenario asks of a contender.
type need int

const (
	aLock       need = iota // mutual exclusion between a call and another
	waiting                 // Lock waits for its turn
	aTurn                   // Lock waits for one other
	crowding                // Lock waits for its turn among a thousand clients
	noWaiting               // nobody is in the way, so that how to wait makes no difference
	reentrancy              // the holder can lock again
	oneServer               // works with one server
	inRedis                 // what it keeps is in Redis
	majority                // works with a majority of independent servers
	readOrWrite             // excludes writers, and may let readers in together
	somePermits             // lets in so many at a time
	aLatch                  // waiting until others have counted down
)

// lacks are the needs that a contender does not serve, and why.
type lacks map[need]string

// with adds to a copy.
func (l lacks) with(n need, reason string) lacks {
	all := lacks{n: reason}
	for k, v := range l {
		all[k] = v
	}
	return all
}

// absence says why c takes no part in s; "" if it does.
func (c contender) absence(s scenario) string {
	if s.processes && !sharesMemory {
		return "its processes share memory, which takes Linux or FreeBSD"
	}
	for _, n := range slices.Sorted(slices.Values(s.needs)) {
		if reason := c.lacks[n]; reason != "" {
			return reason
		}
	}
	return ""
}

const (
	notReentrant = "it is not reentrant"
	noMajority   = "it has no mode for a majority of independent servers"
)
