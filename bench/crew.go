package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// The phases of a run.
const (
	checking  int32 = iota // critical sections are long, so that guards notice overlaps
	settling               // critical sections are as in measuring, but cycles do not count yet
	measuring              // cycles count
	stopping               // no new cycle begins, but the waits that end in this phase count
)

const (
	checkFor  = 100 * time.Millisecond // greatest length of the phase checking
	settleFor = 100 * time.Millisecond // greatest length of the phase settling
	linger    = 200 * time.Microsecond // shortest length of a critical section in the phase checking
	drainFor  = 2 * time.Second        // a waiter is stuck if it waits this long in the phase stopping
)

// Causes with which the context of all waits can end.
var (
	errStuck = errors.New("the others are done with the lock, but the wait does not end")
	errOver  = errors.New("the run is over")
)

// A crew has the clients and workers of one bout that the function cycles runs.
type crew struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	crowd   bool
	clients []client
	workers []*worker
	phase   atomic.Int32
	mallocs uint64 // allocations in the phase measuring; during this phase, the number at its start
	wg      sync.WaitGroup
}

// muster makes the clients, and the workers of each client.
func (b bout) muster(ctx context.Context) (*crew, error) {
	c := &crew{crowd: b.crowd}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	name, g := newName(), new(guard)
	for range b.clients {
		cl, err := b.dial(b.setup)
		if err != nil {
			return nil, errors.Join(err, c.disband())
		}
		c.clients = append(c.clients, cl)
		for range b.goroutines {
			w := &worker{crew: c, bout: b, guard: g, waits: newWaits()}
			own := name
			if b.ownLocks {
				w.guard = new(guard)
				own = fmt.Sprint(name, ":", len(c.workers))
			}
			w.mutex = cl.mutex(own)
			if b.reads > 0 {
				w.toRead, w.writeWaits = toRead(w.mutex), newWaits()
			}
			c.workers = append(c.workers, w)
		}
	}
	return c, nil
}

// toRead returns a mutex that takes the read lock of m, for the same goroutine. If m has no read lock, toRead
// returns m.
func toRead(m mutex) mutex {
	if s, ok := m.(interface{ reader() mutex }); ok {
		if r := s.reader(); r != nil {
			return r
		}
	}
	return m
}

// newWaits returns a histogram of durations up to an hour, because no wait is longer. Its buckets are 1 %
// wide. Recording a value allocates nothing.
func newWaits() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Hour), 2) }

func (c *crew) start() {
	for _, w := range c.workers {
		c.wg.Go(func() {
			if err := w.work(c.ctx); err != nil {
				c.cancel(err)
			}
		})
	}
}

func (c *crew) enter(phase int32) {
	var m runtime.MemStats
	switch phase {
	case settling:
		runtime.GC() // otherwise garbage of earlier runs would cost time in this run
	case measuring:
		runtime.ReadMemStats(&m)
		c.mallocs = m.Mallocs
	}
	c.phase.Store(phase)
	if phase == stopping {
		runtime.ReadMemStats(&m)
		c.mallocs = m.Mallocs - c.mallocs
		if c.crowd {
			c.cancel(errOver)
		}
	}
}

// entries returns the number of critical sections that have ended so far.
func (c *crew) entries() (n int64) {
	seen := map[*guard]bool{}
	for _, w := range c.workers {
		if !seen[w.guard] {
			n += w.guard.entries()
			seen[w.guard] = true
		}
	}
	return n
}

// finish waits until all workers have ended, and adds up their figures. The caller must have called enter
// with the phase stopping.
func (c *crew) finish() (t tally, err error) {
	timer := time.AfterFunc(drainFor, func() { c.cancel(errStuck) })
	c.wg.Wait()
	timer.Stop()
	if cause := context.Cause(c.ctx); cause != nil && cause != errStuck && cause != errOver {
		return t, cause
	}
	t.mallocs, t.waits, t.writeWaits = c.mallocs, newWaits(), newWaits()
	sections := map[*guard]int64{}
	for _, w := range c.workers {
		sections[w.guard] += w.sections
		t.lost += w.lost
		t.each = append(t.each, w.cycles)
		t.waits.Merge(w.waits)
		if w.writeWaits != nil {
			t.writeWaits.Merge(w.writeWaits)
		}
		if w.stuck {
			t.stuck++
		}
	}
	for g, n := range sections {
		t.violations += g.violations(n)
	}
	return t, nil
}

// disband ends the workers that have not ended yet, and closes the clients.
func (c *crew) disband() (err error) {
	c.cancel(nil)
	c.wg.Wait()
	for _, cl := range c.clients {
		err = errors.Join(err, cl.close())
	}
	return err
}

// A worker is one goroutine that takes the lock over and over.
type worker struct {
	crew *crew
	bout
	guard  *guard
	mutex  mutex
	toRead mutex // takes the read lock of mutex; nil if all cycles write

	// These three fields describe the present cycle.
	began   time.Time
	reading bool
	entered bool // the lock was granted

	sections   int64 // number of exclusive sections in all phases
	lost       int64 // number of unlocks that failed
	cycles     int64 // number of cycles in the phase measuring
	waits      *hdrhistogram.Histogram
	writeWaits *hdrhistogram.Histogram // nil if all cycles write
	stuck      bool
}

func (w *worker) work(ctx context.Context) error {
	cycle, inside := w.contender.cycle, w.inside
	if cycle == nil {
		cycle = lockAndUnlock
	}
	for w.crew.phase.Load() != stopping {
		m := w.mutex
		if w.reading = w.reads > rand.IntN(100); w.reading {
			m = w.toRead
		}
		w.entered, w.began = false, time.Now()
		err := cycle(ctx, m, inside)
		cause := context.Cause(ctx)
		switch {
		case cause == errOver && !w.entered:
			w.wait()
		case cause == errStuck && !w.entered:
			w.stuck = true
		case err != nil && !w.entered:
			return fmt.Errorf("lock: %w", err)
		case err != nil && ctx.Err() == nil:
			w.lost++
		}
		if cause != nil {
			return nil
		}
	}
	return nil
}

// lockAndUnlock runs a cycle of a contender whose field cycle is nil.
func lockAndUnlock(ctx context.Context, m mutex, inside func()) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	inside()
	return m.unlock(ctx)
}

// wait records the time since the present cycle began, as the wait of this cycle.
func (w *worker) wait() {
	waited := int64(time.Since(w.began))
	_ = w.waits.RecordValue(waited) // fails only for more than an hour, and no wait is longer
	if w.writeWaits != nil && !w.reading {
		_ = w.writeWaits.RecordValue(waited)
	}
}

// inside runs the critical section of a cycle, and must be called under the lock. The cycle counts for the
// phase in which inside is called.
func (w *worker) inside() {
	at := w.crew.phase.Load()
	w.entered = true
	if at == measuring || at == stopping { // the longest waits end in the phase stopping, and must count
		w.wait()
	}
	switch {
	case w.crew.ctx.Err() != nil: // some libraries have released the lock, because the context has ended
	case at == checking:
		w.section(max(linger, w.critical))
	default:
		w.section(w.critical)
	}
	if at == measuring {
		w.cycles++
	}
}

// section runs a critical section that takes the time linger.
func (w *worker) section(linger time.Duration) {
	switch {
	case w.reading:
		w.guard.together(linger, sharers)
	case w.permits > 0:
		w.guard.together(linger, w.permits)
	default:
		w.sections++
		w.guard.section(linger)
	}
}

// measure takes the crew through the phases. It calls meter at the start and at the end of the measured time,
// and returns the length of this time as took.
func (b bout) measure(
	ctx context.Context, c *crew, meter func() error,
) (t tally, took time.Duration, err error) {
	if err := pause(ctx, min(checkFor, b.window)); err != nil {
		return t, 0, err
	}
	c.enter(settling)
	if err := pause(ctx, min(settleFor, b.window)); err != nil {
		return t, 0, err
	}
	c.enter(measuring)
	began := time.Now()
	if err := meter(); err != nil {
		return t, 0, err
	}
	entries := c.entries()
	if err := pause(ctx, b.window); err != nil {
		return t, 0, err
	}
	// Extend the measured time until at least one section has both begun and ended in it. Give up after
	// drainFor, because then it seems that no worker gets the lock any more.
	inside := max(1, b.permits) // largest possible number of sections in progress at the start
	if b.ownLocks || b.reads > 0 {
		inside = len(c.workers)
	}
	for wait := time.Now(); c.entries() <= entries+int64(inside) && time.Since(wait) < drainFor; {
		if err := pause(ctx, time.Millisecond); err != nil {
			return t, 0, err
		}
	}
	if err := meter(); err != nil {
		return t, 0, err
	}
	took = time.Since(began)
	c.enter(stopping)
	t, err = c.finish()
	return t, took, err
}

// A tally has the results of all workers of a crew.
type tally struct {
	each       []int64 // number of cycles of each worker in the measured time
	waits      *hdrhistogram.Histogram
	writeWaits *hdrhistogram.Histogram // waits of cycles that write; empty if all cycles write
	mallocs    uint64
	stuck      int
	lost       int64 // number of unlocks that failed
	violations int64
}

func (t *tally) cycles() (n int64) {
	for _, c := range t.each {
		n += c
	}
	return n
}

// served returns the number of workers that had the lock in the measured time.
func (t *tally) served() (n float64) {
	for _, cycles := range t.each {
		if cycles > 0 {
			n++
		}
	}
	return n
}

// figures returns the figures of t. took is the length of the measured time.
func (t *tally) figures(took time.Duration) figures {
	n := t.cycles()
	f := figures{"stuck": float64(t.stuck), "lost": float64(t.lost), "violations": float64(t.violations)}
	f["cycles_per_s"] = float64(n) / took.Seconds()
	f.quantiles("wait", t.waits)
	if t.writeWaits.TotalCount() > 0 {
		f["write_p99_us"] = nanos(t.writeWaits.ValueAtQuantile(99))
	}
	if len(t.each) > 1 && n > 0 {
		f["least_share"] = float64(slices.Min(t.each)) * float64(len(t.each)) / float64(n)
	}
	return f
}
