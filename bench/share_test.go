package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// slots is a semaphore in the memory of this process. The capacity of the channel is the number of permits.
type slots chan struct{}

func (s slots) mutex(string) mutex { return s }
func (s slots) close() error       { return nil }

func (s slots) lock(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s slots) unlock(context.Context) error {
	<-s
	return nil
}

func TestMoreInsideThanThereArePermitsIsCaught(t *testing.T) {
	s := theScenario(t, "semaphore")
	for size, broken := range map[int]bool{1: false, permits: false, permits + 1: true} {
		f := measuredLocally(t, s, make(slots, size))
		if got := f["violations"] > 0; got != broken || f["stuck"] != 0 || f["lost"] != 0 {
			t.Errorf("with %d permits: %v", size, f)
		}
	}
}

// ways is a read-write lock in the memory of this process. If read is nil, readers use write.
type ways struct{ write, read func() (unlock func()) }

func (w ways) mutex(string) mutex { return &way{take: w.write, other: w.read} }
func (w ways) close() error       { return nil }

type way struct {
	take, other func() func()
	unlocked    func()
}

func (w *way) lock(context.Context) error {
	w.unlocked = w.take()
	return nil
}

func (w *way) unlock(context.Context) error {
	w.unlocked()
	return nil
}

func (w *way) reader() mutex {
	if w.other == nil {
		return nil
	}
	return &way{take: w.other}
}

func TestAWriterBesideAnybodyIsCaught(t *testing.T) {
	var mu sync.RWMutex
	write := func() func() { mu.Lock(); return mu.Unlock }
	read := func() func() { mu.RLock(); return mu.RUnlock }
	none := func() func() { return func() {} }
	s := theScenario(t, "read-mostly")
	for name, test := range map[string]struct {
		ways
		broken bool
	}{
		"a read-write lock":         {ways{write, read}, false},
		"an exclusive lock":         {ways{write, nil}, false},
		"writers exclude no reader": {ways{write, none}, true},
		"writers exclude no writer": {ways{read, read}, true},
		"none excludes another":     {ways{none, none}, true},
	} {
		f := measuredLocally(t, s, test.ways)
		if got := f["violations"] > 0; got != test.broken || f["write_p99_us"] <= 0 ||
			f["cycles_per_s"] <= 0 {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestReadersAreInsideTogether(t *testing.T) {
	var g guard
	g.inside.Add(1) // a reader
	g.together(0, sharers)
	if n := g.violations(0); n != 0 || g.entries() != 1 {
		t.Errorf("%d violations of a reader beside another, %d entries", n, g.entries())
	}
	g.section(0)
	if n := g.violations(1); n != 1 || g.entries() != 2 {
		t.Errorf("%d violations of a writer beside a reader, %d entries", n, g.entries())
	}
	var written guard
	written.inside.Add(alone) // a writer
	written.together(0, sharers)
	if n := written.violations(0); n != 1 {
		t.Errorf("%d violations of a reader beside a writer", n)
	}
}

// oddLatches is a client whose latches are in the memory of this process. They can open too early, or for too
// few waiters.
type oddLatches struct {
	counterClient
	enough int64 // count at which the latch opens
	never  int64 // number of waiters that never return
	waits  *atomic.Int64
	names  *sync.Map // from name to *oddLatch
}

type oddLatch struct {
	left atomic.Int64
	over chan struct{}
}

func (c oddLatches) close() error { return nil }

func (c oddLatches) latch(name string) latched {
	l, _ := c.names.LoadOrStore(name, &oddLatch{over: make(chan struct{})})
	return oddLatched{c, l.(*oddLatch)}
}

type oddLatched struct {
	oddLatches
	*oddLatch
}

func (l oddLatched) set(_ context.Context, n int) error {
	l.left.Store(int64(n))
	return nil
}

func (l oddLatched) countDown(context.Context) error {
	if l.left.Add(-1) == l.enough {
		close(l.over)
	}
	return nil
}

func (l oddLatched) wait(ctx context.Context) error {
	over := l.over
	if l.waits.Add(1) <= l.never {
		over = nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func TestALatchThatOpensEarlyOrNotForAllIsCaught(t *testing.T) {
	s := theScenario(t, "latch")
	for name, test := range map[string]struct {
		enough, never int64
		early, stuck  bool
	}{
		"a latch":                   {0, 0, false, false},
		"open one count early":      {1, 0, true, false},
		"one waiter is never woken": {0, 1, false, true},
	} {
		c := &oddLatches{enough: test.enough, never: test.never,
			waits: new(atomic.Int64), names: new(sync.Map)}
		f := measuredLocally(t, s, c)
		if got := f["violations"] > 0; got != test.early || f["stuck"] > 0 != test.stuck {
			t.Errorf("%s: %v", name, f)
		}
		if _, reported := f["last_return_p50_us"]; reported == test.stuck {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestALatchThatFailsEndsTheRun(t *testing.T) {
	broken := errors.New("broken")
	b := of(theScenario(t, "latch"), brokenLatches{err: broken}, briefly)
	if _, err := b.measured(t.Context()); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

// brokenLatches is a client with latches that can be set. Each wait returns err.
type brokenLatches struct {
	err error
}

func (c brokenLatches) mutex(string) mutex              { return nil }
func (c brokenLatches) close() error                    { return nil }
func (c brokenLatches) latch(string) latched            { return c }
func (c brokenLatches) set(context.Context, int) error  { return nil }
func (c brokenLatches) countDown(context.Context) error { return nil }
func (c brokenLatches) wait(context.Context) error      { return c.err }
