package watchdog

import (
	"container/heap"
	"context"
	"time"
)

// MaxBatch is the largest number of leases in one call of [Keeper.Renew].
const MaxBatch = 500

// A seat is a lease's place in a flight.
type seat struct {
	*Lease
	life uint32 // Lease.gen at the launch
}

// launch sends leases that are due at launched on their way, those of each server in a flight of its own.
func (w *Watchdog) launch(due []seat, launched time.Duration) {
	flights := make(map[any][]seat)
	for _, s := range due {
		server := w.keeper.Server(s.Lease)
		flights[server] = append(flights[server], s)
	}
	for server, seats := range flights {
		go w.fly(server, seats, launched)
	}
}

// fly renews leases of one server, one batch after another: more at once could use up the connections of the
// Keeper's user. If a batch hangs, those behind it take off again with a later flight.
func (w *Watchdog) fly(server any, waiting []seat, launched time.Duration) {
	for {
		seats, rest, until := w.board(waiting, launched)
		if len(seats) == 0 {
			return
		}
		batch := make([]*Lease, len(seats))
		for i, s := range seats {
			batch[i] = s.Lease
		}
		ctx, cancel := context.WithDeadline(w.ctx, w.start.Add(until))
		results := w.keeper.Renew(ctx, server, batch)
		cancel()
		w.settle(seats, results, launched)
		waiting = rest
	}
}

// board fills a batch with those of waiting that still need it. It returns them, those that still wait, and
// the latest deadline in the batch.
func (w *Watchdog) board(waiting []seat, launched time.Duration) (seats, rest []seat, until time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Since(w.start)
	seats, rest = waiting[:0], waiting // a seat that was passed over makes room
	for len(rest) > 0 && len(seats) < MaxBatch {
		s := rest[0]
		rest = rest[1:]
		if s.gen != s.life || s.deadline <= now || s.every == 0 || s.since > launched {
			continue
		}
		seats = append(seats, s)
		until = max(until, s.deadline)
	}
	return seats, rest, until
}

// settle applies the results of one batch.
func (w *Watchdog) settle(seats []seat, results []Result, launched time.Duration) {
	var lost, failed []*Lease
	var errs []error

	w.mu.Lock()
	if w.closed { // so busy must not be raised
		w.mu.Unlock()
		return
	}
	now := time.Since(w.start)
	for i, s := range seats {
		if s.gen != s.life {
			continue // it ended, and may have been added again: not our business
		}
		switch r := results[i]; {
		case s.deadline <= now:
			continue // too late, whatever it is; the tick that ends it is on its way
		case r.Gone:
			w.drop(s.Lease)
			lost = append(lost, s.Lease)
			continue
		case r.Err == nil:
			s.deadline = max(s.deadline, r.Deadline.Sub(w.start))
			s.since, s.backoff = now, 0
			// Not always from launched: a reply that comes late must not make the next renewal follow at
			// once.
			w.plan(s.Lease, max(launched, now-s.every/2), now)
		case s.every == 0 || s.since > launched:
			continue // no matter: switched off, or renewed by another flight
		default:
			w.planRetry(s.Lease, now)
			failed, errs = append(failed, s.Lease), append(errs, r.Err)
		}
		heap.Fix(&w.leases, s.place-1)
	}
	w.arm(now)
	w.busy.Add(1)
	w.mu.Unlock()
	defer w.busy.Done()

	for _, l := range lost {
		w.keeper.Lost(l, false)
	}
	for i, l := range failed {
		w.keeper.Failed(l, errs[i])
	}
}
