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
	spent, around := b.metered(ctx)
	if err := around(true); err != nil {
		return sample{}, err
	}
	g, dismiss, err := b.forkWith(ctx, turns)
	if err != nil {
		return sample{}, err
	}
	defer func() { err = errors.Join(err, dismiss()) }()
	t, err := g.finish()
	if err != nil {
		return sample{}, err
	}
	if err := around(false); err != nil {
		return sample{}, err
	}
	f := t.faults()
	if b.tells() {
		f.serverTime(*spent, &t)
	}
	if t.Waits.N > 0 {
		f["handoff_p50_us"] = micros(t.Waits.quantile(.5))
		f["handoff_p99_us"] = micros(t.Waits.quantile(.99))
	}
	return sample{f, &t.Waits}, nil
}

// handOver takes every other turn, which the other process takes between them.
// The processes read one clock, that of the machine.
func (o order) handOver(ctx context.Context, m mutex, mem *shared) (t tally, err error) {
	t.Each = []int64{0}
	for turn := int64(o.Rank); turn < int64(o.Turns); turn += 2 {
		if err := mem.reached(ctx, &mem.taken, turn); err != nil { // the other one has got the turn before
			return t, ended(err)
		}
		mem.waiting.Store(turn)
		waiting, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(drainFor, func() { cancel(errStuck) })
		_, err := m.lock(waiting)
		now := time.Now().UnixNano()
		timer.Stop()
		if cause := context.Cause(waiting); err != nil && cause == errStuck {
			mem.stuck.Store(true)
			t.Stuck++
			return t, nil
		}
		if err != nil {
			return t, err
		}
		if turn > 0 {
			t.Waits.add(time.Duration(now - mem.unlocked.Load()))
		}
		mem.section(0)
		t.Sections++
		t.Each[0]++
		mem.taken.Store(turn + 1)
		if turn+1 < int64(o.Turns) {
			err = mem.reached(ctx, &mem.waiting, turn+1)
		}
		err = errors.Join(err, pause(ctx, time.Millisecond+rand.N(4*time.Millisecond)))
		mem.unlocked.Store(time.Now().UnixNano())
		if m.unlock(ctx) != nil {
			t.Lost++
		}
		if err != nil {
			return t, ended(err)
		}
	}
	return t, nil
}

// reached waits until the other process has counted that far.
func (b *baton) reached(ctx context.Context, counter *atomic.Int64, n int64) error {
	for counter.Load() < n {
		if b.stuck.Load() {
			return errStuck
		}
		if err := pause(ctx, 100*time.Microsecond); err != nil {
			return err
		}
	}
	return nil
}

// ended is nil if err only says that the other process is stuck.
func ended(err error) error {
	if errors.Is(err, errStuck) {
		return nil
	}
	return err
}
