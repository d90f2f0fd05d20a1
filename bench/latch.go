package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	latchCount  = 3                      // count of a new latch
	asleepAfter = 100 * time.Millisecond // time that waiters get to connect and to read the count
)

// A latcher is a client of a contender that has latches.
type latcher interface{ latch(name string) latched }

// A latched is a latch, as one client uses it.
type latched interface {
	set(ctx context.Context, n int) error
	countDown(ctx context.Context) error
	// wait returns when the count is 0.
	wait(ctx context.Context) error
}

// latchUsers has the clients of a run, and counts their failures.
type latchUsers struct {
	clients []client     // the first client counts down, the other clients wait
	stuck   atomic.Int64 // waits that did not end
	early   atomic.Int64 // waits that ended before the last call of countDown
}

// runLatch measures latches, one after another. For each latch, one client counts down, and all other clients
// wait.
func runLatch(ctx context.Context, b bout) (_ figures, err error) {
	u := &latchUsers{}
	defer func() {
		for _, c := range u.clients {
			err = errors.Join(err, c.close())
		}
	}()
	for range b.clients + 1 {
		c, err := b.dial(b.setup)
		if err != nil {
			return nil, err
		}
		u.clients = append(u.clients, c)
	}
	if _, err := u.once(ctx); err != nil { // the clients connect during this call
		return nil, err
	}
	spent, meter := b.metered(ctx)
	if err := meter(); err != nil {
		return nil, err
	}
	waits, runs := newWaits(), int64(0)
	for began := time.Now(); u.stuck.Load() == 0 && (runs == 0 || time.Since(began) < b.window); runs++ {
		took, err := u.once(ctx)
		if err != nil {
			return nil, err
		}
		_ = waits.RecordValue(int64(took))
	}
	if err := meter(); err != nil {
		return nil, err
	}
	f := figures{"stuck": float64(u.stuck.Load()), "violations": float64(u.early.Load())}
	f.efforts(*spent, runs)
	if f["stuck"] == 0 {
		f["last_return_p50_us"], f["last_return_max_us"] = nanos(waits.ValueAtQuantile(50)),
			nanos(waits.Max())
	}
	return f, nil
}

// once makes a latch with the first client, lets all other clients wait for the latch, and counts it down to
// 0. It returns the time from the last call of countDown to the return of the last waiter.
func (u *latchUsers) once(ctx context.Context) (took time.Duration, err error) {
	name := newName()
	l := u.clients[0].(latcher).latch(name)
	if err := l.set(ctx, latchCount); err != nil {
		return 0, fmt.Errorf("set: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	var called atomic.Bool
	returns := make([]time.Time, len(u.clients)-1)
	for i, c := range u.clients[1:] {
		wg.Go(func() {
			err := c.(latcher).latch(name).wait(ctx)
			returns[i] = time.Now()
			switch {
			case err == nil && !called.Load():
				u.early.Add(1)
			case err != nil && context.Cause(ctx) == errStuck:
				u.stuck.Add(1)
			case err != nil:
				cancel(fmt.Errorf("wait: %w", err))
			}
		})
	}
	for range latchCount - 1 {
		if err := l.countDown(ctx); err != nil {
			return 0, fmt.Errorf("count down: %w", err)
		}
	}
	// The time is random, so that no poll is in step with the last call of countDown.
	if err := pause(ctx, asleepAfter+rand.N(asleepAfter/5)); err != nil {
		return 0, err
	}
	called.Store(true)
	began := time.Now()
	if err := l.countDown(ctx); err != nil {
		return 0, fmt.Errorf("count down: %w", err)
	}
	timer := time.AfterFunc(drainFor, func() { cancel(errStuck) })
	wg.Wait()
	timer.Stop()
	if cause := context.Cause(ctx); cause != nil && cause != errStuck {
		return 0, cause
	}
	return slices.MaxFunc(returns, time.Time.Compare).Sub(began), nil
}
