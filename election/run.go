package election

import (
	"context"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// retryPause is the time between a campaign that failed in an outage and the next one of Run.
const retryPause = time.Second

// Run campaigns, calls fn with a context for the leader's work once this process leads, and resigns when fn
// has returned or panicked. If the leadership was lost while fn ran, Run drops the result of fn, campaigns
// again and calls fn again. So one Run never calls fn twice at a time. [Election.Leader] shows the value, of
// at most [MaxValue] bytes, to other processes.
//
// The context of fn ends with the leadership, as [Election.Campaign] says, and with ctx. fn must return then:
// until it has, this process does not campaign. Pass this context on in fn. A Run below it, of the same
// election, stores its own value and calls its fn at once, and does not resign.
//
// Run blocks until fn has returned as the leader, ctx ends, or the session is closed. It rides out outages of
// Redis, however long. After fn has returned, it waits for up to 5 s for the answer to its resignation. It
// returns
//   - the error of fn, if the leadership lasted until fn returned, or ended with ctx. The error of
//     [Leadership.Resign] is joined with it;
//   - an error that matches ctx.Err() and context.Cause(ctx), if ctx ended while this process did not lead;
//   - an error that matches [rlock.ErrClosed], if the session is closed;
//   - an error that matches [rlock.ErrLost], if ctx descends from a leadership that was lost, or as Campaign
//     does;
//   - the error of a mistake, such as a nil fn or session or a value that is too long, at once;
//   - the error with which Redis refuses to serve this user, for example because of a wrong password.
func (e *Election) Run(ctx context.Context, value string, fn func(ctx context.Context) error) error {
	if err := e.check(ctx); err != nil {
		return err
	}
	if fn == nil {
		return e.fail(errors.New("Run: the function is nil"))
	}
	if err := e.checkValue(value); err != nil {
		return err
	}
	if l := e.of(ctx); l != nil {
		if err := l.Proclaim(ctx, value); err != nil {
			return err
		}
		return fn(ctx)
	}
	for {
		leading, leadership, err := e.Campaign(ctx, value)
		if err == nil {
			var lost bool
			if lost, err = leadership.run(leading, fn); !lost {
				return err
			}
			continue
		}
		final := errors.Is(err, failure.ErrLost) || errors.Is(err, failure.ErrClosed)
		if final || ctx.Err() != nil || !wire.Judge(err).Unsettled() {
			return err
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done(): // the next campaign returns its error
		case <-e.session.Closing():
		}
	}
}

// run calls fn and resigns. It reports whether the leadership was lost before fn returned.
func (l *Leadership) run(leading context.Context, fn func(context.Context) error) (lost bool, err error) {
	defer func() {
		lost = errors.Is(context.Cause(leading), failure.ErrLost)
		if resigned := l.Resign(leading); resigned != nil && !lost {
			err = failure.Join(err, resigned)
		}
	}()
	return false, fn(leading)
}
