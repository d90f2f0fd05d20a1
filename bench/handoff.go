package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// handoff has two processes hand one lock to each other: each waits for it before
// the other, after a random moment that no poll is in step with, unlocks.
func handoff(ctx context.Context, b bout) (_ sample, err error) {
	turns := max(10, int(b.window/(5*time.Millisecond)))
	g, dismiss, err := b.forkWith(ctx, turns)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, dismiss()) }()
	t, err := g.finish()
	if err != nil {
		return sample{}, err
	}
	f := figures{
		"handoff_p50_us": micros(t.Waits.quantile(.5)),
		"handoff_p99_us": micros(t.Waits.quantile(.99)),
		"violations":     float64(t.Violations),
	}
	return sample{f, &t.Waits}, nil
}

// handOver takes every other turn, which the other process takes between them.
// The processes read one clock, that of the machine.
func (o order) handOver(ctx context.Context, m mutex, mem *shared) (t tally, err error) {
	for turn := int64(o.Rank); turn < int64(o.Turns); turn += 2 {
		if err := reached(ctx, &mem.taken, turn); err != nil { // the other one has got the turn before
			return t, err
		}
		mem.waiting.Store(turn)
		if _, err := m.lock(ctx); err != nil {
			return t, err
		}
		now := time.Now().UnixNano()
		if turn > 0 {
			t.Waits.add(time.Duration(now - mem.unlocked.Load()))
		}
		mem.section(0)
		t.Sections++
		mem.taken.Store(turn + 1)
		if turn+1 < int64(o.Turns) {
			if err := reached(ctx, &mem.waiting, turn+1); err != nil {
				return t, err
			}
		}
		if err := pause(ctx, time.Millisecond+rand.N(4*time.Millisecond)); err != nil {
			return t, err
		}
		mem.unlocked.Store(time.Now().UnixNano())
		if err := m.unlock(ctx); err != nil {
			return t, err
		}
	}
	return t, nil
}

// reached waits until the other process has counted that far.
func reached(ctx context.Context, counter *atomic.Int64, n int64) error {
	for counter.Load() < n {
		if err := pause(ctx, 100*time.Microsecond); err != nil {
			return err
		}
	}
	return nil
}
