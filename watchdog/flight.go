package watchdog

import (
	"container/heap"
	"context"
	"time"
)

// MaxBatch is the largest number of leases in one call of [Keeper.Renew].
const MaxBatch = 500

// fly renews leases of one server. launched is the time at which these leases were due. fly sends one batch
// after another, because several batches at the same time could use up all connections of the client. If a
// batch hangs, a later flight renews the leases of the batches behind it.
func (w *Watchdog) fly(server any, waiting []*Lease, launched time.Duration) {
	for {
		batch := make([]*Lease, 0, min(len(waiting), MaxBatch))
		var until time.Duration // the latest deadline in the batch
		w.mu.Lock()
		now := time.Since(w.start)
		for len(waiting) > 0 && len(batch) < MaxBatch {
			l := waiting[0]
			waiting = waiting[1:]
			needed := l.next != never // SetInterval may have switched the renewal off
			if needed && l.place > 0 && l.deadline > now && l.since <= launched {
				batch = append(batch, l)
				until = max(until, l.deadline)
			}
		}
		w.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithDeadline(w.ctx, w.start.Add(until))
		results := w.keeper.Renew(ctx, server, batch)
		cancel()
		w.settle(batch, results, launched)
	}
}

// settle applies the results of one batch.
func (w *Watchdog) settle(batch []*Lease, results []Result, launched time.Duration) {
	var lost, failed []*Lease
	var errs []error

	w.mu.Lock()
	if w.ctx.Err() != nil { // the Watchdog is closed, so busy must not be raised
		w.mu.Unlock()
		return
	}
	now := time.Since(w.start)
	for i, l := range batch {
		switch r := results[i]; {
		case l.place < 0: // the lease is not kept any more
			continue
		case l.deadline <= now:
			continue // the result comes too late: the next tick ends the lease
		case r.Gone:
			heap.Remove(&w.leases, l.place-1)
			lost = append(lost, l)
			continue
		case r.Err == nil:
			l.deadline = max(l.deadline, r.Deadline.Sub(w.start))
			// The interval is counted from launched. But after a slow reply, the next renewal must not follow
			// at once.
			w.plan(l, max(launched, now-l.every/2), now, 2)
		case l.next == never || l.since > launched:
			continue // the renewal is not needed any more, or another flight has renewed the lease
		default:
			w.planRetry(l, now)
			failed, errs = append(failed, l), append(errs, r.Err)
		}
		heap.Fix(&w.leases, l.place-1)
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
