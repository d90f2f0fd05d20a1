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

// pause is between a campaign that failed and the next one.
const pause = time.Second

// Elector is a gocron.Elector. All jobs run in the one process that leads, so clocks that differ matter only
// where the leader changes. A tick of that moment may be run by both, or by neither. All methods are safe for
// concurrent use.
type Elector struct {
	election *election.Election
	value    string
	state    atomic.Pointer[state]
}

// state is what the last campaign has brought. The zero state is that there was none yet.
type state struct {
	ctx        context.Context // of the leadership
	leadership *election.Leadership
	failure    error // of the campaign
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector makes an Elector for gocron.WithDistributedElector. It does no I/O, and does not lead before
// [Elector.Run] is called. The value is what others see of the leader, by election.Leader: an address, say.
func NewElector(e *election.Election, value string) *Elector {
	elector := &Elector{election: e, value: value}
	elector.state.Store(&state{})
	return elector
}

// Run campaigns, leads, and campaigns again when the leadership has ended. It blocks until ctx ends or the
// session is closed. Then it has resigned, for which it takes 5 s at most. Shut the scheduler down before:
// then no job is under way when another process leads.
//
// A campaign that fails is tried again after a second, and meanwhile [Elector.IsLeader] returns its error.
// That is also so if the error lasts, for example with a wrong password: then no job ever runs, and gocron
// logs nothing. So a program should log what IsLeader returns while no process leads.
//
// Run never returns nil. It returns
//   - context.Cause(ctx), if ctx has ended;
//   - an error that matches [rlock.ErrClosed], if the session is closed;
//   - at once, the error of an election that cannot work, for example one with a nil session, or with a value
//     that is too long.
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
			_ = leadership.Resign(leading) // if Redis was not told, it is told again until the lease is over
			continue
		}
		e.state.Store(&state{failure: err})
		if errors.Is(err, rlock.ErrClosed) {
			return err
		}
		select { // Redis is down, say
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// unusable returns the error of a campaign that could never succeed. It sends no request: a campaign whose
// context has ended checks its session, its name and its value, and then returns.
func (e *Elector) unusable() error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := e.election.Campaign(ended, e.value) //lockvet:ignore it never leads
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// IsLeader returns nil while this process leads. gocron skips the ticks for which it returns an error. That
// matches [rlock.ErrNotHeld], and also the error of the last campaign, if that failed.
//
// It sends no request and does not block. It looks at the clock, so a process that stood still for longer
// than its lease does not think that it still leads.
func (e *Elector) IsLeader(context.Context) error {
	switch s := e.state.Load(); {
	case s.failure != nil:
		return fmt.Errorf("%w: %w", rlock.ErrNotHeld, s.failure)
	case s.leadership.Err() != nil:
		return rlock.ErrNotHeld
	}
	return nil
}

// Task makes a function for gocron.NewTask, whose context also ends with the leadership, with the same cause.
// It calls work, unless the leadership has ended since gocron called [Elector.IsLeader]: then it returns an
// error.
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
