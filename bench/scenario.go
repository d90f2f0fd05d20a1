package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// scenario is who wants the lock: clients with connections of their own, as
// processes have, and goroutines of each.
type scenario struct {
	name       string
	what       string
	clients    int
	goroutines int // of each client
}

var scenarios = []scenario{
	{"solo", "1 goroutine, 1 lock", 1, 1},
	{"hot1", "32 goroutines of 1 client, 1 lock", 1, 32},
	{"hot8", "8 clients x 4 goroutines, 1 lock", 8, 4},
}

func (s scenario) called() string { return s.name }

func (s scenario) contended() bool { return s.clients*s.goroutines > 1 }

// The phases of a run.
const (
	checking  int32 = iota // sections are long, so that an overlap can't go unnoticed
	settling               // as measured, not counted yet
	measuring              // counted
	stopping               // who waits gets the lock once more, and its wait counts
)

const (
	checkFor  = 100 * time.Millisecond
	settleFor = 100 * time.Millisecond
	linger    = 200 * time.Microsecond // of a section while checking
	drainFor  = 3 * time.Second        // who waits until then, though the others go away, is stuck
	patience  = 30 * time.Second       // bounds a run beyond its phases
)

// errStuck ends the waits of those that are stuck.
var errStuck = errors.New("the others are done with the lock, but the wait goes on")

// sample is what one run of one contender measured.
type sample struct {
	cycles     float64 // per second
	p50, p99   time.Duration
	max        time.Duration
	minShare   float64 // of one goroutine, relative to the mean
	maxShare   float64
	allocs     float64 // per cycle
	bytes      float64
	stuck      int // goroutines still waiting long after the others were done with the lock
	violations int64
}

// run runs the contender once, measured for that long.
func (s scenario) run(ctx context.Context, c contender, url string, window time.Duration) (_ sample, err error) {
	// Without a deadline: some libraries shorten their leases to it.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(window+patience, func() { cancel(errors.New("the run does not end")) }).Stop()

	name := "lockline-bench:" + uuid.NewString() // nothing is left of another run
	var phase atomic.Int32
	var g guard
	var workers []*worker
	for range s.clients {
		cl, err := c.dial(url)
		if err != nil {
			return sample{}, err
		}
		defer func() { err = errors.Join(err, cl.close()) }()
		for range s.goroutines {
			workers = append(workers, &worker{mutex: cl.mutex(name), phase: &phase, guard: &g})
		}
	}
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			if err := w.work(ctx); err != nil {
				cancel(err)
			}
		})
	}

	var before, after runtime.MemStats
	pause(ctx, checkFor)
	runtime.GC() // the garbage of the runs before
	phase.Store(settling)
	pause(ctx, settleFor)
	runtime.ReadMemStats(&before)
	began := time.Now()
	phase.Store(measuring)
	pause(ctx, window)
	phase.Store(stopping)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	timer := time.AfterFunc(drainFor, func() { cancel(errStuck) })
	wg.Wait()
	timer.Stop()
	if ctx.Err() != nil && context.Cause(ctx) != errStuck {
		return sample{}, context.Cause(ctx)
	}
	return summary(workers, &g, took, after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc)
}

// summary is what the workers found, all together.
func summary(workers []*worker, g *guard, took time.Duration, allocs, bytes uint64) (sample, error) {
	var waits histogram
	var sections, total int64
	var each []int64
	stuck := 0
	for _, w := range workers {
		waits.merge(&w.waits)
		sections += w.sections
		total += w.cycles
		each = append(each, w.cycles)
		if w.stuck {
			stuck++
		}
	}
	if total == 0 {
		return sample{}, fmt.Errorf("nobody got the lock within %v", took)
	}
	cycles, mean := float64(total), float64(total)/float64(len(workers))
	return sample{
		cycles:     cycles / took.Seconds(),
		p50:        waits.quantile(.5),
		p99:        waits.quantile(.99),
		max:        waits.max,
		minShare:   float64(slices.Min(each)) / mean,
		maxShare:   float64(slices.Max(each)) / mean,
		allocs:     float64(allocs) / cycles,
		bytes:      float64(bytes) / cycles,
		stuck:      stuck,
		violations: g.violations(sections),
	}, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// worker is one goroutine that wants the lock, over and over.
type worker struct {
	mutex mutex
	phase *atomic.Int32
	guard *guard

	sections int64 // in all phases
	cycles   int64 // while measuring
	waits    histogram
	stuck    bool
}

func (w *worker) work(ctx context.Context) error {
	for w.phase.Load() != stopping {
		began := time.Now()
		if err := w.mutex.lock(ctx); err != nil {
			if context.Cause(ctx) == errStuck {
				w.stuck = true
				return nil
			}
			return fmt.Errorf("lock: %w", err)
		}
		waited := time.Since(began)
		phase := w.phase.Load()
		if phase == checking {
			w.guard.section(linger)
		} else {
			w.guard.section(0)
		}
		if err := w.mutex.unlock(ctx); err != nil {
			return fmt.Errorf("unlock: %w", err)
		}
		w.sections++
		switch phase {
		case measuring:
			w.cycles++
			w.waits.add(waited)
		case stopping: // else those who wait longest would not be counted
			w.waits.add(waited)
		}
	}
	return nil
}
