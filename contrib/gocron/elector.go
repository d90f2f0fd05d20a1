package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/rlock"
)

// pause is the time between a campaign that failed and the next campaign.
const pause = time.Second

// Elector is a gocron.Elector. All jobs run in the process that leads. So differences between the clocks of
// the machines matter only when the leader changes. At that moment, both the old and the new leader may run a
// tick, or neither of them. All methods are safe for concurrent use.
type Elector struct {
	election *election.Election
	value    string
	state    atomic.Pointer[state]
}

// state is the outcome of the last campaign that has ended. In the zero state, no campaign has ended yet.
type state struct {
	ctx        context.Context      // context of the leadership; nil without a leadership
	leadership *election.Leadership // nil without a leadership
	failure    error                // error of the campaign; nil if the campaign did not fail
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for gocron.WithDistributedElector. It does no I/O. The Elector can lead only
// while [Elector.Run] runs. While it leads, other processes can read the value, such as an address, by the
// method Leader of the election.
func NewElector(e *election.Election, value string) *Elector {
	elector := &Elector{election: e, value: value}
	elector.state.Store(&state{})
	return elector
}

// Run campaigns, leads, and campaigns again when the leadership has ended. It blocks until ctx ends or the
// session is closed. If it leads, it resigns before it returns, which takes at most 5 s. Shut down the
// scheduler before you end Run. Otherwise a job of this process may still run when another process leads.
//
// If a campaign fails, Run tries again after a second. Meanwhile, [Elector.IsLeader] returns the error of the
// failed campaign. Some errors never pass, for example the error of a wrong password. Then this process never
// leads, and gocron logs nothing. So a program should log the errors of IsLeader.
//
// Run never returns nil. It returns
//   - context.Cause(ctx), if ctx has ended;
//   - an error that matches [rlock.ErrClosed], if the session is closed;
//   - at once, the error of an election that can never succeed, for example because its session is nil or the
//     value is too long.
func (e *Elector) Run(ctx context.Context) error {
	if err := e.unusable(); err != nil {
		e.state.Store(&state{failure: err})
		return err
	}
	for {
		leading, leadership, err := e.election.Campaign(ctx, e.value)
		if err == nil {
			e.state.Store(&state{ctx: leading, leadership: leadership})
			<-leading.Done()
			_ = leadership.Resign(leading) // after an error, Resign is repeated in the background
			continue
		}
		e.state.Store(&state{failure: err})
		if errors.Is(err, rlock.ErrClosed) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unusable returns the error of a campaign that can never succeed, or nil. It sends no request, because it
// campaigns with a context that has ended. Such a campaign only checks the session, the name and the value.
func (e *Elector) unusable() error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := e.election.Campaign(ended, e.value) //lockvet:ignore it never leads
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// IsLeader returns nil while this process leads. If IsLeader returns an error, gocron skips the tick. The
// error matches [rlock.ErrNotHeld]. If the last campaign has failed, the error also matches the error of that
// campaign.
//
// IsLeader sends no request and does not block. It compares the end of the lease with the clock. So after a
// process was paused for longer than its lease, IsLeader returns an error.
func (e *Elector) IsLeader(context.Context) error {
	switch s := e.state.Load(); {
	case s.failure != nil:
		return fmt.Errorf("%w: %w", rlock.ErrNotHeld, s.failure)
	case s.leadership.Err() != nil:
		return rlock.ErrNotHeld
	}
	return nil
}

// Task returns a function for gocron.NewTask. The function calls work with a context that also ends when the
// leadership ends, with the same cause. If the leadership has ended since gocron called [Elector.IsLeader],
// the function returns an error and does not call work.
func (e *Elector) Task(work func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		s := e.state.Load()
		if err := s.leadership.Err(); err != nil {
			return err
		}
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
		return work(ctx)
	}
}
