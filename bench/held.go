package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// held takes many locks, and measures the cost of keeping them for one lease.
func held(ctx context.Context, b bout) (_ figures, err error) {
	c, err := b.dial(b.setup)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	name := newName()
	names := func(i int) string { return fmt.Sprint(name, ":", i) }
	before := takeFootprint()

	mutexes := make([]mutex, b.locks)
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	var lost atomic.Int64
	err = inParallel(ctx, b.locks, func(i int) error {
		mutexes[i] = c.mutex(names(i))
		// This context cannot be canceled. Otherwise a library that derives another context from it would
		// pay for an entry in a table of this context.
		if err := mutexes[i].lock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if r, ok := mutexes[i].(renewer); ok {
			go b.keep(keeping, r, &lost)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	after := takeFootprint()
	spent, meter := b.metered(ctx)
	if err := meter(); err != nil {
		return nil, err
	}
	if err := pause(ctx, b.setup.lease); err != nil {
		return nil, err
	}
	if err := meter(); err != nil {
		return nil, err
	}
	n := float64(b.locks)
	f := figures{
		"requests_per_lock":   spent.requests / n,
		"cpu_us_per_lock":     micros(spent.cpu) / n,
		"bytes_per_lock":      max(0, after.bytes-before.bytes) / n, // negative if older objects were freed
		"goroutines_per_lock": max(0, after.goroutines-before.goroutines) / n,
	}
	if f["violations"], err = b.intrude(ctx, names); err != nil {
		return nil, err
	}
	stop()
	err = inParallel(ctx, b.locks, func(i int) error {
		if mutexes[i].unlock(ctx) != nil {
			lost.Add(1)
		}
		return nil
	})
	f["lost"] = float64(lost.Load())
	return f, err
}

// A renewer is a mutex of a library that leaves the renewal to its user.
type renewer interface {
	renew(ctx context.Context) error
}

// keep renews a lock after each third of its lease. Each lock has its own goroutine for keep, as the
// documentation of such libraries recommends.
func (b bout) keep(ctx context.Context, r renewer, lost *atomic.Int64) {
	tick := time.NewTicker(b.setup.lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if r.renew(ctx) != nil && ctx.Err() == nil {
				lost.Add(1)
				return
			}
		}
	}
}

// intrude makes another client, which tries for a moment to get some of the locks. Each lock that this client
// gets counts as a violation.
func (b bout) intrude(ctx context.Context, names func(int) string) (violations float64, err error) {
	c, err := b.dial(b.setup)
	if err != nil {
		return 0, err
	}
	var n atomic.Int64
	tries := min(b.locks, 16)
	err = inParallel(ctx, tries, func(i int) error {
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		m := c.mutex(names(i * (b.locks / tries)))
		if m.lock(brief) == nil {
			n.Add(1)
			return m.unlock(ctx)
		}
		return nil
	})
	return float64(n.Load()), errors.Join(err, c.close())
}

// inParallel calls f with 0 to n-1, and makes up to 16 calls at a time. If ctx ends, inParallel returns at
// once and leaves the goroutines of the calls behind, because a library may wait for a message that never
// comes.
func inParallel(ctx context.Context, n int, f func(int) error) error {
	var g errgroup.Group
	g.SetLimit(16)
	done := make(chan error, 1)
	go func() {
		for i := range n {
			g.Go(func() error { return f(i) })
		}
		done <- g.Wait()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A footprint has the memory and the goroutines of this process.
type footprint struct{ bytes, goroutines float64 }

func takeFootprint() footprint {
	runtime.GC()
	runtime.GC() // the second run frees objects with finalizers or cleanups
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}
