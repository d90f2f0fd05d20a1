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
	patience  = 60 * time.Second       // bounds a run beyond its phases
)

var (
	// errStuck ends the waits of those that are stuck.
	errStuck   = errors.New("the others are done with the lock, but the wait goes on")
	errPatient = errors.New("the run does not end")
)

// users are the goroutines that cycle: in this process, or in others.
type users interface {
	enter(phase int32) error
	// entries is how many critical sections there have been.
	entries() int64
	// finish waits until all are done, after stopping.
	finish() (tally, error)
}

// tally is what users did. Its fields travel between processes.
type tally struct {
	Each       []int64 // cycles of each goroutine while measured
	Sections   int64   // in all phases, of those that exclude all others
	Waits      histogram
	WriteWaits histogram       // those of Waits to write, where some read
	MaxWaits   []time.Duration // of each goroutine
	Inside     time.Duration   // in sections, while measured, if they take time
	Stuck      int
	Lost       int64 // unlocks that failed
	Violations int64 // those that this process can tell
	Mallocs    uint64
	Bytes      uint64
	CPU        time.Duration // of the processes of users, while measured; 0 where none can tell
}

// crew are users in this process.
type crew struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	clients []client
	workers []*worker
	phase   atomic.Int32
	before  runtime.MemStats
	took    runtime.MemStats
	cpu     time.Duration // while measured, once that is over
	wg      sync.WaitGroup
}

func newCrew(ctx context.Context) *crew {
	c := &crew{}
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

// hire dials one client, with that many workers.
func (c *crew) hire(b bout, name string, g *guard, size int) error {
	cl, err := b.dial(b.setup)
	if err != nil {
		return err
	}
	c.clients = append(c.clients, cl)
	for range size {
		w := &worker{crew: c, guard: g, depth: max(1, b.depth), critical: b.critical, reads: b.reads, permits: b.permits}
		own := name
		if b.ownLocks {
			w.guard = new(guard)
			own = fmt.Sprintf("%s:%d", name, len(c.workers))
		}
		w.mutex = cl.mutex(own)
		if b.reads > 0 {
			w.toRead, w.writeWaits = toRead(w.mutex), new(histogram)
		}
		c.workers = append(c.workers, w)
	}
	return nil
}

// muster hires a client of each size.
func (b bout) muster(ctx context.Context, name string, g *guard, sizes []int) (*crew, error) {
	c := newCrew(ctx)
	for _, size := range sizes {
		if err := c.hire(b, name, g, size); err != nil {
			return nil, errors.Join(err, c.disband())
		}
	}
	return c, nil
}

func (c *crew) start() {
	for _, w := range c.workers {
		c.wg.Go(func() {
			if err := w.work(c.ctx); err != nil {
				c.cancel(err)
			}
		})
	}
}

func (c *crew) enter(phase int32) error {
	switch phase {
	case settling:
		runtime.GC() // the garbage of the runs before
	case measuring:
		runtime.ReadMemStats(&c.before)
		c.cpu = -cpuTime()
	}
	c.phase.Store(phase)
	if phase == stopping {
		c.cpu += cpuTime()
		runtime.ReadMemStats(&c.took)
	}
	return nil
}

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

func (c *crew) finish() (tally, error) {
	timer := time.AfterFunc(drainFor, func() { c.cancel(errStuck) })
	c.wg.Wait()
	timer.Stop()
	if c.ctx.Err() != nil && context.Cause(c.ctx) != errStuck {
		return tally{}, context.Cause(c.ctx)
	}
	t := tally{Mallocs: c.took.Mallocs - c.before.Mallocs, Bytes: c.took.TotalAlloc - c.before.TotalAlloc, CPU: c.cpu}
	sections := map[*guard]int64{}
	for _, w := range c.workers {
		sections[w.guard] += w.sections
		t.Sections += w.sections
		t.Lost += w.lost
		t.Inside += w.inside
		t.Each = append(t.Each, w.cycles)
		t.MaxWaits = append(t.MaxWaits, w.waits.Max)
		t.Waits.merge(&w.waits)
		if w.writeWaits != nil {
			t.WriteWaits.merge(w.writeWaits)
		}
		if w.stuck {
			t.Stuck++
		}
	}
	for g, n := range sections {
		t.Violations += g.violations(n)
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
	crew     *crew
	guard    *guard
	mutex    mutex
	toRead   mutex // where some cycles only read
	reads    int   // of 100 cycles
	permits  int   // that may be inside together; 0: one alone
	depth    int
	critical time.Duration
	ticket   *ticket // nil unless the order of grants is looked at

	reading    bool  // in this cycle
	sections   int64 // in all phases, that excluded all others
	lost       int64
	cycles     int64 // while measuring
	waits      histogram
	writeWaits *histogram    // nil unless some cycles read
	inside     time.Duration // while measuring
	stuck      bool
}

func (w *worker) work(ctx context.Context) error {
	phase := &w.crew.phase
	for phase.Load() != stopping {
		if w.ticket != nil {
			w.ticket.begin()
		}
		w.reading = w.reads > 0 && w.reads > rand.IntN(100)
		began := time.Now()
		inner := ctx
		for range w.depth {
			var err error
			if inner, err = w.wanted().lock(inner); err != nil {
				if context.Cause(ctx) == errStuck {
					w.stuck = true
					return nil
				}
				return fmt.Errorf("lock: %w", err)
			}
		}
		waited := time.Since(began)
		if w.ticket != nil {
			w.ticket.granted()
		}
		at := w.visit()
		if err := w.leave(ctx); err != nil {
			return err
		}
		w.count(at, waited)
	}
	return nil
}

// wanted is the lock of this cycle.
func (w *worker) wanted() mutex {
	if w.reading {
		return w.toRead
	}
	return w.mutex
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

// visit is the critical section, and tells the phase that it began in.
func (w *worker) visit() (at int32) {
	at = w.crew.phase.Load()
	if at == checking {
		w.section(max(linger, w.critical))
	} else if w.critical == 0 {
		w.section(0)
	} else {
		entered := time.Now()
		w.section(w.critical)
		if at == measuring {
			w.inside += time.Since(entered)
		}
	}
	return at
}

// leave unlocks.
func (w *worker) leave(ctx context.Context) error {
	for range w.depth {
		if err := w.wanted().unlock(ctx); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("unlock: %w", err)
			}
			w.lost++
		}
	}
	return nil
}

// count counts a cycle whose critical section began in that phase.
func (w *worker) count(at int32, waited time.Duration) {
	if at == measuring {
		w.cycles++
	}
	if at == measuring || at == stopping { // else those who wait longest would not be counted
		w.waits.add(waited)
		if w.writeWaits != nil && !w.reading {
			w.writeWaits.add(waited)
		}
	}
}

// measure leads users through the phases. around is called where the measured time begins and ends.
func (b bout) measure(ctx context.Context, u users, around func(begin bool) error) (t tally, took time.Duration, err error) {
	if err := pause(ctx, min(checkFor, b.window)); err != nil {
		return t, 0, err
	}
	if err := u.enter(settling); err != nil {
		return t, 0, err
	}
	if err := pause(ctx, min(settleFor, b.window)); err != nil {
		return t, 0, err
	}
	if err := u.enter(measuring); err != nil {
		return t, 0, err
	}
	began := time.Now()
	if err := around(true); err != nil {
		return t, 0, err
	}
	entries := u.entries()
	if err := pause(ctx, b.window); err != nil {
		return t, 0, err
	}
	// Until one was entered and left within the time, or nobody seems to get the lock any more.
	inside := 1 // at most, as the time began
	switch {
	case b.ownLocks || b.reads > 0:
		inside = b.clients * b.goroutines
	case b.permits > 0:
		inside = b.permits
	}
	for wait := time.Now(); u.entries() <= entries+int64(inside) && time.Since(wait) < drainFor; {
		if err := pause(ctx, time.Millisecond); err != nil {
			return t, 0, err
		}
	}
	if err := around(false); err != nil {
		return t, 0, err
	}
	took = time.Since(began)
	if err := u.enter(stopping); err != nil {
		return t, 0, err
	}
	t, err = u.finish()
	if b.embedded {
		t.CPU = 0 // the server's is in it
	}
	return t, took, err
}

func (t *tally) cycles() (n int64) {
	for _, c := range t.Each {
		n += c
	}
	return n
}

// faults are what must be 0.
func (t *tally) faults() figures {
	return figures{"stuck": float64(t.Stuck), "lost": float64(t.Lost), "violations": float64(t.Violations)}
}

// figures are what every scenario of cycles measures.
func (t *tally) figures(took time.Duration) figures {
	cycles := float64(t.cycles())
	f := t.faults()
	f["cycles_per_s"] = cycles / took.Seconds()
	f.perCycle("allocs_per_cycle", float64(t.Mallocs), t)
	f.perCycle("bytes_per_cycle", float64(t.Bytes), t)
	if t.CPU > 0 {
		f.perCycle("cpu_us_per_cycle", micros(t.CPU), t)
	}
	f.waits(&t.Waits)
	if t.WriteWaits.N > 0 {
		f["write_wait_p99_us"] = micros(t.WriteWaits.quantile(.99))
	}
	if n := len(t.Each); n > 1 && cycles > 0 {
		mean := cycles / float64(n)
		f["min_share"] = float64(slices.Min(t.Each)) / mean
		f["max_share"] = float64(slices.Max(t.Each)) / mean
	}
	return f
}

// perCycle sets the figure, if there was a cycle.
func (f figures) perCycle(name string, total float64, t *tally) {
	if n := t.cycles(); n > 0 {
		f[name] = total / float64(n)
	}
}

func (f figures) waits(h *histogram) {
	if h.N == 0 {
		return
	}
	f["wait_p50_us"] = micros(h.quantile(.5))
	f["wait_p99_us"] = micros(h.quantile(.99))
	f["wait_max_us"] = micros(h.Max)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
