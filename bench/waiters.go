package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// footprint is what this process occupies.
type footprint struct {
	bytes, goroutines float64
}

func takeFootprint() footprint {
	runtime.GC()
	runtime.GC() // what has finalizers or cleanups goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{float64(m.HeapAlloc + m.StackInuse), float64(runtime.NumGoroutine())}
}

// waiters have one client hold the lock, and goroutines of others wait for it.
// None gets it, so an acquisition is a violation.
func waiters(ctx context.Context, b bout) (_ sample, err error) {
	count := func() (float64, error) { return 0, nil }
	counts := !b.foreign
	if counts {
		var proxies []*helper
		b, count, proxies, err = b.counting(ctx)
		defer func() { err = errors.Join(err, closeAll(proxies)) }()
		if err != nil {
			return sample{}, err
		}
	}
	name := newName()
	release, err := b.holdOne(ctx, name)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, release()) }()

	var clients []client
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.close())
		}
	}()
	for range b.clients {
		c, err := b.dial(b.setup)
		if err != nil {
			return sample{}, err
		}
		clients = append(clients, c)
	}
	before := takeFootprint()
	waiting, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var violations, failed atomic.Int64
	var asking sync.WaitGroup
	for i := range b.count {
		m := clients[i%len(clients)].mutex(name)
		asking.Add(1)
		wg.Go(func() {
			asking.Done()
			_, err := m.lock(waiting)
			switch {
			case err == nil:
				violations.Add(1)
				_ = m.unlock(context.Background())
			case waiting.Err() == nil:
				failed.Add(1)
			}
		})
	}
	asking.Wait()
	if err := pause(ctx, min(b.window, 2*time.Second)); err != nil { // until all have asked
		return sample{}, err
	}
	n := float64(b.count)
	after := takeFootprint()
	first, err := count()
	if err != nil {
		return sample{}, err
	}
	took, err := timed(func() error { return pause(ctx, min(5*b.window, longestWait)) })
	if err != nil {
		return sample{}, err
	}
	last, err := count()
	if err != nil {
		return sample{}, err
	}
	if k := failed.Load(); k > 0 {
		return sample{}, fmt.Errorf("%d of %d waiters gave up", k, b.count)
	}
	f := figures{
		"bytes_per_waiter":      max(0, after.bytes-before.bytes) / n, // what was there before may have gone
		"goroutines_per_waiter": (after.goroutines - before.goroutines) / n,
		"violations":            float64(violations.Load()),
	}
	if counts {
		f["requests_per_s"] = (last - first) / took.Seconds()
	}
	return sample{figures: f}, nil
}

// longestWait is less than redislock's Obtain waits at most, which is its TTL.
const longestWait = 20 * time.Second

// holdOne has a client of its own hold the lock until it is released, and renews it if its library does not.
func (b bout) holdOne(ctx context.Context, name string) (release func() error, err error) {
	b.Rivals = false
	c, err := b.dial(b.setup)
	if err != nil {
		return nil, err
	}
	m := c.mutex(name)
	if _, err := m.lock(ctx); err != nil {
		return nil, errors.Join(err, c.close())
	}
	stop := b.keep(m)
	return func() error { return errors.Join(stop(), m.unlock(context.Background()), c.close()) }, nil
}

// keep renews m as its library's documentation has users do, if it leaves that to
// them: in a goroutine for each lock. The function returned ends that, and says what went wrong.
func (b bout) keep(m mutex) (stop func() error) {
	r, ok := m.(renewer)
	if !ok {
		return func() error { return nil }
	}
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(b.interval())
		defer tick.Stop()
		for {
			select {
			case <-done:
				result <- nil
				return
			case <-tick.C:
				if err := r.renew(context.Background()); err != nil {
					result <- fmt.Errorf("renew: %w", err)
					return
				}
			}
		}
	}()
	return func() error {
		close(done)
		return <-result
	}
}

// shortestLease is that of the contenders that have one of their own: redsync's.
const shortestLease = 8 * time.Second

// interval is that between renewals.
func (b bout) interval() time.Duration {
	lease := b.Lease
	if lease == 0 {
		lease = shortestLease
	}
	return lease / time.Duration(b.renewals)
}
