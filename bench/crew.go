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
	checking  int32 = iota // sections are long, so that an overlap can't go unnoticed
	settling               // as measured, not counted yet
	measuring              // counted
	stopping               // who waits gets the lock once more, and its wait counts
)

const (
	checkFor  = 100 * time.Millisecond // at most; not longer than is measured
	settleFor = 100 * time.Millisecond
	linger    = 200 * time.Microsecond // of a section while checking
	drainFor  = 2 * time.Second        // who waits until then, though the others go away, is stuck
)

// These end waits.
var (
	errStuck = errors.New("the others are done with the lock, but the wait goes on")
	errOver  = errors.New("the run is over")
)

// crew are the goroutines that cycle.
type crew struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	crowd   bool
	clients []client
	workers []*worker
	phase   atomic.Int32
	mallocs uint64 // while measured, once that is over
	wg      sync.WaitGroup
}

// muster dials the clients, and has workers for each.
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

// toRead is how to lock m to read, for the same goroutine. A library that has no way for that locks it
// as always.
func toRead(m mutex) mutex {
	if s, ok := m.(interface{ reader() mutex }); ok {
		if r := s.reader(); r != nil {
			return r
		}
	}
	return m
}

// newWaits counts durations up to the longest that a run may take, in buckets that are 1 % wide. It does
// not allocate as it counts.
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
		runtime.GC() // the garbage of the runs before
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

// entries is how many critical sections there have been.
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

// finish waits until all are done, after stopping.
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

// disband ends the workers, if they have not finished, and closes the clients.
func (c *crew) disband() (err error) {
	c.cancel(nil)
	c.wg.Wait()
	for _, cl := range c.clients {
		err = errors.Join(err, cl.close())
	}
	return err
}

// worker is one goroutine that wants the lock, over and over.
type worker struct {
	crew *crew
	bout
	guard  *guard
	mutex  mutex
	toRead mutex // where some cycles only read

	// This cycle.
	began   time.Time
	reading bool
	entered bool // the lock was granted

	sections   int64 // in all phases, that excluded all others
	lost       int64
	cycles     int64 // while measuring
	waits      *hdrhistogram.Histogram
	writeWaits *hdrhistogram.Histogram // nil unless some cycles read
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
			w.wait() // as long as it was
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

// lockAndUnlock is a cycle.
func lockAndUnlock(ctx context.Context, m mutex, inside func()) error {
	if err := m.lock(ctx); err != nil {
		return err
	}
	inside()
	return m.unlock(ctx)
}

// wait counts how long this cycle has waited.
func (w *worker) wait() {
	waited := int64(time.Since(w.began))
	_ = w.waits.RecordValue(waited) // no wait is too long
	if w.writeWaits != nil && !w.reading {
		_ = w.writeWaits.RecordValue(waited)
	}
}

// inside is what a cycle does under the lock. It counts for the phase that it begins in.
func (w *worker) inside() {
	at := w.crew.phase.Load()
	w.entered = true
	if at == measuring || at == stopping { // else those who wait longest would not be counted
		w.wait()
	}
	switch {
	case w.crew.ctx.Err() != nil: // where that ends a context, some libraries give the lock up
	case at == checking:
		w.section(max(linger, w.critical))
	default:
		w.section(w.critical)
	}
	if at == measuring {
		w.cycles++
	}
}

// section spends that long inside.
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

// measure leads the crew through the phases. meter is called where the measured time begins and ends.
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
	// Until one was entered and left within the time, or nobody seems to get the lock any more.
	inside := max(1, b.permits) // at most, as the time began
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

// tally is what a crew did.
type tally struct {
	each       []int64 // cycles of each goroutine while measured
	waits      *hdrhistogram.Histogram
	writeWaits *hdrhistogram.Histogram // those of waits to write, where some read
	mallocs    uint64
	stuck      int
	lost       int64 // unlocks that failed
	violations int64
}

func (t *tally) cycles() (n int64) {
	for _, c := range t.each {
		n += c
	}
	return n
}

// served is how many goroutines had the lock.
func (t *tally) served() (n float64) {
	for _, cycles := range t.each {
		if cycles > 0 {
			n++
		}
	}
	return n
}

// figures are what every scenario of cycles measures.
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
