package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// elector is a gocron.Elector. All jobs run on the one machine that leads, so clocks that
// differ matter only where the leader changes. A tick of that moment may be run by both, or
// by neither. gocron uses no Locker where it has an Elector.
type elector struct {
	term atomic.Pointer[term] // nil while another machine leads
}

type term struct {
	ctx        context.Context
	leadership *election.Leadership
}

// IsLeader sends no request. It looks at the clock, so a process that stood still for longer than
// its lease does not think that it still leads.
func (e *elector) IsLeader(context.Context) error {
	if t := e.term.Load(); t != nil {
		return t.leadership.Err()
	}
	return rlock.ErrNotHeld
}

// campaign leads whenever it can, and blocks until ctx ends or the session is closed. Shut the
// scheduler down first: then no job is under way when another machine leads.
func (e *elector) campaign(ctx context.Context, of *election.Election, machine string) {
	for {
		leading, leadership, err := of.Campaign(ctx, machine)
		switch {
		case ctx.Err() != nil && err != nil, errors.Is(err, rlock.ErrClosed):
			return
		case err != nil: // Redis is down, say
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			continue
		}
		e.term.Store(&term{leading, leadership})
		<-leading.Done()
		e.term.Store(nil)
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		_ = leadership.Resign(bounded) // if Redis was not told, it is told again until the lease is over
		cancel()
	}
}

// task makes a function for gocron.NewTask whose context also ends with the leadership.
func (e *elector) task(work func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		t := e.term.Load()
		if t == nil {
			return rlock.ErrLost // after gocron's call of IsLeader
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
		return work(ctx)
	}
}
