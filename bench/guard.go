package main

import (
	"sync/atomic"
	"time"
)

// guard is what a lock protects. It notices if the lock does not.
//
// The counter is read and written in two steps, so that nothing but the lock keeps
// an increment from being lost. Atomics, because the race detector does not see an
// order that is made by way of Redis.
type guard struct {
	inside   atomic.Int32
	counter  atomic.Int64
	visits   atomic.Int64 // sections of those that share
	overlaps atomic.Int64 // entries that found more inside than there may be
}

// alone is what one that excludes all others adds to inside. It is more than there are goroutines.
const alone = 1 << 16

// sharers is how many may be inside together where only those that are alone are kept out.
const sharers = alone - 1

// section is the critical section of one that excludes all others.
func (g *guard) section(linger time.Duration) {
	if g.inside.Add(alone) != alone {
		g.overlaps.Add(1)
	}
	n := g.counter.Load()
	if linger > 0 {
		spend(linger)
	}
	g.counter.Store(n + 1)
	g.inside.Add(-alone)
}

// together is the section of one that shares: so many may be inside, and none that excludes all others.
func (g *guard) together(linger time.Duration, most int) {
	if int(g.inside.Add(1)) > most {
		g.overlaps.Add(1)
	}
	if linger > 0 {
		spend(linger)
	}
	g.visits.Add(1)
	g.inside.Add(-1)
}

// entries is how many sections there have been.
func (g *guard) entries() int64 { return g.counter.Load() + g.visits.Load() }

// violations is how often exclusion was seen broken, where so many sections excluded all others.
func (g *guard) violations(sections int64) int64 {
	lost := sections - g.counter.Load()
	return max(g.overlaps.Load(), lost)
}
