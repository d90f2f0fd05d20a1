package main

import (
	"sync/atomic"
	"time"
)

// A guard takes the place of the data that a lock protects. It notices if the lock does not protect them.
//
// An exclusive section reads and writes the counter in two steps, so if the lock does not exclude others, an
// increment can be lost. The fields are atomics because the race detector cannot see that Redis puts the
// sections in order.
type guard struct {
	inside   atomic.Int32 // number of goroutines in shared sections, plus `alone` for each exclusive section
	counter  atomic.Int64 // number of exclusive sections
	visits   atomic.Int64 // number of shared sections
	overlaps atomic.Int64 // number of entries at which too many goroutines were inside
}

// alone is the number that an exclusive section adds to the field inside. It is larger than any number of
// goroutines in shared sections.
const alone = 1 << 16

// sharers is the value of `most` for readers, any number of which may be in shared sections at once. With
// this value, the method together counts no overlap of readers, but it still counts an overlap with an
// exclusive section.
const sharers = alone - 1

// section runs an exclusive section that takes the time linger. It counts an overlap if another goroutine is
// in a section.
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

// together runs a shared section that takes the time linger. It counts an overlap if more than `most`
// goroutines are in shared sections, or if one is in an exclusive section.
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

// entries returns the number of sections that have ended so far.
func (g *guard) entries() int64 { return g.counter.Load() + g.visits.Load() }

// violations returns the number of violations of exclusion that g has noticed. sections is the number of
// exclusive sections that workers have run.
func (g *guard) violations(sections int64) int64 {
	lost := sections - g.counter.Load()
	return max(g.overlaps.Load(), lost)
}
