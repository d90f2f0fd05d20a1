package main

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// order is what a worker process is to do. Its phases follow.
type order struct {
	Contender string
	Embedded  bool
	Version   string
	Setup     setup
	Name      string // of the lock
	Shared    string // file
	Turns     int    // of handing over; 0: cycles
	Rank      int    // of this process
	Size      int    // goroutines
	Critical  time.Duration
	Window    time.Duration
}

// answer is what it says once it is ready, when it has entered a phase, and in the end.
type answer struct {
	Err   string
	Tally tally
}

// gang are users in processes.
type gang struct {
	shared  *shared
	workers []*helper
	send    []*gob.Encoder
	receive []*gob.Decoder
}

// fork starts a process for each client, and returns when all are at work.
func (b bout) fork(ctx context.Context) (users, func() error, error) {
	g, dismiss, err := b.forkWith(ctx, 0)
	return g, dismiss, err
}

func (b bout) forkWith(ctx context.Context, turns int) (_ *gang, dismiss func() error, err error) {
	dir, err := os.MkdirTemp("", "lockline-bench-")
	if err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, "shared")
	mem, unmap, err := mapShared(file)
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	g := &gang{shared: mem}
	dismiss = func() error {
		err := closeAll(g.workers)
		unmap()
		return errors.Join(err, os.RemoveAll(dir))
	}
	o := order{b.contender.name, b.embedded, "", b.setup, newName(), file, turns, 0, b.goroutines, b.critical, b.window}
	if err := g.hire(ctx, b.clients, o); err != nil {
		return nil, nil, errors.Join(err, dismiss())
	}
	return g, dismiss, nil
}

func (g *gang) hire(ctx context.Context, n int, o order) error {
	for i := range n {
		h, err := startRole(ctx, roleWorker)
		if err != nil {
			return err
		}
		g.workers = append(g.workers, h)
		g.send = append(g.send, gob.NewEncoder(h.in))
		g.receive = append(g.receive, gob.NewDecoder(h.out))
		o.Rank = i
		if err := g.send[i].Encode(o); err != nil {
			return err
		}
	}
	_, err := g.answers()
	return err
}

func (g *gang) answers() (all []tally, err error) {
	for i, r := range g.receive {
		var a answer
		if err := r.Decode(&a); err != nil {
			return nil, fmt.Errorf("process %d: %w", i, err)
		}
		if a.Err != "" {
			return nil, fmt.Errorf("process %d: %s", i, a.Err)
		}
		all = append(all, a.Tally)
	}
	return all, nil
}

func (g *gang) enter(phase int32) (err error) {
	for _, s := range g.send {
		err = errors.Join(err, s.Encode(phase))
	}
	if err == nil {
		_, err = g.answers() // all have entered it
	}
	return err
}

func (g *gang) entries() int64 { return g.shared.guard.entries() }

func (g *gang) finish() (tally, error) {
	all, err := g.answers()
	var t tally
	for _, a := range all {
		t.Each = append(t.Each, a.Each...)
		t.MaxWaits = append(t.MaxWaits, a.MaxWaits...)
		t.Waits.merge(&a.Waits)
		t.Sections += a.Sections
		t.Stuck += a.Stuck
		t.Lost += a.Lost
		t.Mallocs += a.Mallocs
		t.Bytes += a.Bytes
		t.CPU += a.CPU
	}
	t.Violations = g.shared.violations(t.Sections)
	return t, err
}

// beWorker is the role of a process of users.
func beWorker(in io.Reader, out io.Writer) error {
	from, to := gob.NewDecoder(in), gob.NewEncoder(out)
	var o order
	if err := from.Decode(&o); err != nil {
		return err
	}
	t, err := o.obey(from, to)
	a := answer{Tally: t}
	if err != nil {
		a.Err = err.Error()
	}
	if err := to.Encode(a); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in) // until it is told to end
	return err
}

func (o order) obey(from *gob.Decoder, to *gob.Encoder) (t tally, err error) {
	c, err := pick("contender", contenders(site{embedded: o.Embedded, version: o.Version}), o.Contender)
	if err != nil {
		return t, err
	}
	mem, unmap, err := mapShared(o.Shared)
	if err != nil {
		return t, err
	}
	defer unmap()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	b := bout{contender: c[0], setup: o.Setup, scenario: scenario{critical: o.Critical}}
	crew, err := b.muster(ctx, o.Name, &mem.guard, []int{o.Size})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, crew.disband()) }()
	if err := to.Encode(answer{}); err != nil {
		return t, err
	}
	if o.Turns > 0 {
		return o.handOver(ctx, crew.workers[0].mutex, mem)
	}
	crew.start()
	for phase := checking; phase != stopping; {
		if err := from.Decode(&phase); err != nil {
			return t, err
		}
		if err := errors.Join(crew.enter(phase), to.Encode(answer{})); err != nil {
			return t, err
		}
	}
	return crew.finish()
}
