package main

import (
	"sync/atomic"
	"time"
)

// A guard stands for the data that a lock protects. It notices if the lock does not protect them.
//
// The counter is read and written in two steps, so only the lock keeps an increment from being lost. The
// fields are atomics because the race detector cannot see that Redis puts the sections in order.
type guard struct {
	inside   atomic.Int32 // number of goroutines in shared sections, plus `alone` for each exclusive section
	counter  atomic.Int64 // number of exclusive sections
	visits   atomic.Int64 // number of shared sections
	overlaps atomic.Int64 // number of entries at which too many goroutines were inside
}

// alone is added to inside by an exclusive section. It is larger than the number of goroutines.
const alone = 1 << 16

// sharers is the limit for together if any number of goroutines may share a section. It still excludes
// exclusive sections.
const sharers = alone - 1

// section runs an exclusive section, which takes the time linger.
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

// together runs a shared section, which takes the time linger. At most `most` goroutines may be in shared
// sections at once, and none in an exclusive section.
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

// entries returns the number of sections so far.
func (g *guard) entries() int64 { return g.counter.Load() + g.visits.Load() }

// violations returns the number of violations of exclusion that were noticed. sections is the number of
// exclusive sections that were run.
func (g *guard) violations(sections int64) int64 {
	lost := sections - g.counter.Load()
	return max(g.overlaps.Load(), lost)
}
