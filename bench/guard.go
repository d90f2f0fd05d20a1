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
	overlaps atomic.Int64 // entries that found somebody inside
}

// section is the critical section.
func (g *guard) section(linger time.Duration) {
	if g.inside.Add(1) != 1 {
		g.overlaps.Add(1)
	}
	n := g.counter.Load()
	if linger > 0 {
		time.Sleep(linger)
	}
	g.counter.Store(n + 1)
	g.inside.Add(-1)
}

// violations is how often mutual exclusion was seen broken in that many sections.
func (g *guard) violations(sections int64) int64 {
	lost := sections - g.counter.Load()
	return max(g.overlaps.Load(), lost)
}

// shared is what the processes of a run share, in mapped memory.
type shared struct {
	guard
	baton
}

// baton is how two processes take turns at handing over.
type baton struct {
	waiting  atomic.Int64 // turns that somebody has begun to wait for
	taken    atomic.Int64 // turns that somebody has got
	unlocked atomic.Int64 // when the holder of the last one called unlock, ns since 1970
	stuck    atomic.Bool  // somebody waits in vain: it ends
}
