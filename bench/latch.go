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
	latchCount  = 3                      // to count down from
	asleepAfter = 100 * time.Millisecond // waiters have connected and asked by then
)

// latchOf is the scenario of waiters that a last count-down wakes.
func latchOf(name string, delay time.Duration) scenario {
	s := scenario{
		name:  name,
		what:  fmt.Sprintf("100 waiters of 100 clients on 1 latch, from the call of the last of %d count-downs to the return of the last waiter, for new latches one after the other", latchCount),
		needs: []need{aLatch, oneServer}, clients: 100, goroutines: 1, delay: delay, run: runLatch,
	}
	if delay > 0 {
		s.what = "latch, 0.5 ms each way"
	}
	return s
}

// latcher is a client of a contender that has latches.
type latcher interface{ latch(name string) latched }

// latched is a latch, as one client sees it.
type latched interface {
	set(ctx context.Context, n int) error
	countDown(ctx context.Context) error
	// wait returns when the count is 0.
	wait(ctx context.Context) error
}

// latchUsers are the clients of a run, and what they saw.
type latchUsers struct {
	counter latcher
	waiters []latcher

	last  histogram // from the last count-down to the last return
	runs  int64
	stuck int64
	early atomic.Int64 // returns before the last count-down was called
}

func runLatch(ctx context.Context, b bout) (_ sample, err error) {
	near := b
	b, closeProxies, err := b.delayed(ctx)
	defer func() { err = errors.Join(err, closeProxies()) }()
	if err != nil {
		return sample{}, err
	}
	u, closeClients, err := b.latchUsers()
	defer func() { err = errors.Join(err, closeClients()) }()
	if err != nil {
		return sample{}, err
	}
	trip := 0.0
	if !b.foreign {
		if trip, err = roundTrip(ctx, b.Redis[0]); err != nil {
			return sample{}, err
		}
	}
	if _, _, err := u.once(ctx); err != nil { // connections are made
		return sample{}, err
	}
	spent, around := near.metered(ctx)
	if err := around(true); err != nil {
		return sample{}, err
	}
	cpu := cpuTime()
	for began := time.Now(); u.runs == 0 || time.Since(began) < b.window; u.runs++ {
		took, stuck, err := u.once(ctx)
		if err != nil {
			return sample{}, err
		}
		if u.stuck += stuck; stuck > 0 {
			break // its clients may be of no more use
		}
		u.last.add(took)
	}
	cpu = cpuTime() - cpu
	if err := around(false); err != nil {
		return sample{}, err
	}
	all := tally{Each: []int64{u.runs}, Stuck: int(u.stuck), Violations: u.early.Load()}
	f := figures{"stuck": float64(all.Stuck), "violations": float64(all.Violations)}
	if cpu > 0 && !b.embedded {
		f.perCycle("cpu_us_per_cycle", micros(cpu), &all)
	}
	if b.tells() {
		f.perCycle("requests_per_cycle", spent.requests, &all)
		f.perCycle("published_per_cycle", spent.published, &all)
		f.serverTime(*spent, &all)
	}
	if u.last.N == 0 {
		return sample{figures: f}, nil
	}
	if b.delay > 0 {
		if f["added_rtt_us"], err = addedTrip(ctx, near.Redis[0], b.Redis[0]); err != nil {
			return sample{}, err
		}
	}
	f["last_return_p50_us"] = micros(u.last.quantile(.5))
	f["last_return_p99_us"] = micros(u.last.quantile(.99))
	if trip > 0 {
		f["round_trip_us"], f["last_return_trips"] = trip, f["last_return_p50_us"]/trip
	}
	return sample{f, &u.last}, nil
}

// latchUsers dials one client for each waiter, and one that counts down.
func (b bout) latchUsers() (u *latchUsers, closeClients func() error, err error) {
	var clients []client
	closeClients = func() (err error) {
		for _, c := range clients {
			err = errors.Join(err, c.close())
		}
		return err
	}
	u = &latchUsers{}
	for range b.clients + 1 {
		c, err := b.dial(b.setup)
		if err != nil {
			return nil, closeClients, err
		}
		clients = append(clients, c)
		u.waiters = append(u.waiters, c.(latcher))
	}
	u.counter, u.waiters = u.waiters[0], u.waiters[1:]
	return u, closeClients, nil
}

// once has all wait for a new latch, and counts it down. It returns how long the last of them took to return after that.
func (u *latchUsers) once(ctx context.Context) (took time.Duration, stuck int64, err error) {
	name := newName()
	l := u.counter.latch(name)
	if err := l.set(ctx, latchCount); err != nil {
		return 0, 0, fmt.Errorf("set: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	var called atomic.Bool
	var inVain atomic.Int64
	returns := make([]time.Time, len(u.waiters))
	for i, w := range u.waiters {
		wg.Go(func() {
			err := w.latch(name).wait(ctx)
			returns[i] = time.Now()
			switch {
			case err == nil && !called.Load():
				u.early.Add(1)
			case err != nil && context.Cause(ctx) == errStuck:
				inVain.Add(1)
			case err != nil:
				cancel(fmt.Errorf("wait: %w", err))
			}
		})
	}
	for range latchCount - 1 {
		if err := l.countDown(ctx); err != nil {
			return 0, 0, fmt.Errorf("count down: %w", err)
		}
	}
	if err := pause(ctx, asleepAfter+rand.N(asleepAfter/5)); err != nil { // no poll is in step with it
		return 0, 0, err
	}
	called.Store(true)
	began := time.Now()
	if err := l.countDown(ctx); err != nil {
		return 0, 0, fmt.Errorf("count down: %w", err)
	}
	timer := time.AfterFunc(drainFor, func() { cancel(errStuck) })
	wg.Wait()
	timer.Stop()
	if cause := context.Cause(ctx); cause != nil && cause != errStuck {
		return 0, 0, cause
	}
	return slices.MaxFunc(returns, time.Time.Compare).Sub(began), inVain.Load(), nil
}
