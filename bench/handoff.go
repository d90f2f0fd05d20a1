package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// handoff measures the time from the unlock of one client to the grant of another. Two clients hand one lock
// over to each other, again and again. While one client waits, the other one unlocks after a random time, so
// that no poll is in step with the unlock.
func handoff(ctx context.Context, b bout) (_ figures, err error) {
	var sides [2]mutex
	name := newName()
	for i := range sides {
		c, err2 := b.dial(b.setup)
		if err2 != nil {
			return nil, err2
		}
		defer func() { err = errors.Join(err, c.close()) }()
		sides[i] = c.mutex(name)
	}
	holder, other := sides[0], sides[1]
	if err := holder.lock(ctx); err != nil {
		return nil, err
	}
	waits, turns, f := newWaits(), int64(0), figures{"stuck": 0, "lost": 0, "violations": 0}
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	spent, meter := b.metered(ctx)
	if err := meter(); err != nil {
		return nil, err
	}
	for began := time.Now(); f["stuck"] == 0 && (turns < 3 || time.Since(began) < b.window); turns++ {
		var granted time.Time
		done := make(chan error)
		go func() {
			err := other.lock(waiting)
			granted = time.Now()
			done <- err
		}()
		time.Sleep(time.Millisecond + rand.N(4*time.Millisecond))
		unlocked := time.Now()
		if holder.unlock(ctx) != nil {
			f["lost"]++
		}
		timer := time.AfterFunc(drainFor, func() { cancel(errStuck) })
		err := <-done
		timer.Stop()
		switch {
		case err != nil && context.Cause(waiting) == errStuck:
			f["stuck"]++
			continue
		case err != nil:
			return nil, err
		case granted.Before(unlocked):
			f["violations"]++
		}
		_ = waits.RecordValue(int64(granted.Sub(unlocked)))
		holder, other = other, holder
	}
	if err := meter(); err != nil {
		return nil, err
	}
	f.efforts(*spent, turns)
	f.quantiles("handoff", waits)
	if f["stuck"] == 0 && holder.unlock(ctx) != nil {
		f["lost"]++
	}
	return f, nil
}
