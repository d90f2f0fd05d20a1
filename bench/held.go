package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// held takes many locks, and looks at what it costs to keep them for two renewal intervals.
func held(ctx context.Context, b bout) (_ sample, err error) {
	near := b.setup.Redis
	count := func() (float64, error) { return 0, nil }
	if !b.foreign {
		var proxies []*helper
		b, count, proxies, err = b.counting(ctx)
		defer func() { err = errors.Join(err, closeAll(proxies)) }()
		if err != nil {
			return sample{}, err
		}
	}
	c, err := b.dial(b.setup)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	name := newName()
	names := func(i int) string { return fmt.Sprint(name, ":", i) }
	before := takeFootprint()

	locks := make([]keptLock, b.count)
	err = inParallel(ctx, b.goroutines, b.count, func(i int) error {
		m := c.mutex(names(i))
		// No child of a cancelable context: a library that derives one would pay for its parent's table.
		if _, err := m.lock(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		locks[i] = keptLock{m, b.keep(m)}
		return nil
	})
	defer func() {
		if errors.Is(err, errNoReturn) {
			return // they may still get a lock
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		lost := inParallel(ctx, b.goroutines, b.count, func(i int) error { return locks[i].giveUp() })
		err = errors.Join(err, lost)
	}()
	if err != nil {
		return sample{}, err
	}
	after := takeFootprint()

	meter := func() (requests, server float64, cpu time.Duration, err error) {
		if requests, err = count(); err == nil && b.tells() {
			server, err = serverCPU(ctx, near)
		}
		return requests, server, cpuTime(), err
	}
	r1, s1, c1, err := meter()
	if err != nil {
		return sample{}, err
	}
	if err := pause(ctx, 2*b.interval()); err != nil {
		return sample{}, err
	}
	r2, s2, c2, err := meter()
	if err != nil {
		return sample{}, err
	}
	n := float64(b.count)
	f := figures{
		"bytes_per_lock":      max(0, after.bytes-before.bytes) / n,
		"goroutines_per_lock": max(0, after.goroutines-before.goroutines) / n, // idle ones may have ended
	}
	if c2 > 0 {
		f["cpu_us_per_lock"] = micros(c2-c1) / n
	}
	if !b.foreign {
		f["requests_per_lock"] = (r2 - r1) / n
		if !b.embedded {
			f["server_cpu_us_per_lock"] = (s2 - s1) * 1e6 / n
		}
	}
	violations, err := b.intrude(ctx, names)
	if err != nil {
		return sample{}, err
	}
	f["violations"] = violations
	var lost atomic.Int64
	err = inParallel(ctx, b.goroutines, b.count, func(i int) error {
		if locks[i].giveUp() != nil {
			lost.Add(1)
		}
		return nil
	})
	f["lost"] = float64(lost.Load())
	return sample{figures: f}, err
}

// keptLock is held, and renewed if that is left to users.
type keptLock struct {
	mutex
	stop func() error
}

// giveUp ends the renewals and unlocks; a second call does nothing.
func (k *keptLock) giveUp() error {
	if k.mutex == nil {
		return nil
	}
	m := k.mutex
	k.mutex = nil
	return errors.Join(k.stop(), m.unlock(context.Background()))
}

// intrude has another client ask for some of the locks for a moment. What it gets is a violation.
func (b bout) intrude(ctx context.Context, names func(int) string) (violations float64, err error) {
	c, err := b.dial(b.setup)
	if err != nil {
		return 0, err
	}
	var n atomic.Int64
	asked := min(b.count, 16)
	err = inParallel(ctx, asked, asked, func(i int) error {
		brief, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		m := c.mutex(names(i * (b.count / asked)))
		if _, err := m.lock(brief); err == nil {
			n.Add(1)
			return m.unlock(context.Background())
		}
		return nil
	})
	return float64(n.Load()), errors.Join(err, c.close())
}

// errNoReturn: calls of a library did not return. Their goroutines are left behind.
var errNoReturn = errors.New("it did not return")

// grace is how long a call that cannot succeed may take to return.
const grace = 10 * time.Second

// inParallel does f for 0 to n-1, in that many goroutines, until one fails, or ctx ends.
func inParallel(ctx context.Context, goroutines, n int, f func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := f(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		wg.Wait()
	}()
	select {
	case <-all:
		return context.Cause(ctx)
	case <-ctx.Done():
	}
	select {
	case <-all:
		return context.Cause(ctx)
	case <-time.After(grace):
		return errors.Join(context.Cause(ctx), errNoReturn)
	}
}
