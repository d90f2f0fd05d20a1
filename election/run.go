package election

import (
	"context"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
)

// retryPause is the time for which Run waits after a campaign has failed in an outage, before it campaigns
// again.
const retryPause = time.Second

// Run campaigns. When this process leads, Run calls fn with a context for the leader's work. When fn has
// returned or panicked, Run resigns. If the leadership was lost while fn ran, Run drops the result of fn and
// campaigns again. When this process leads again, Run calls fn again. One Run never has two calls of fn at
// the same time. The value may have at most [MaxValue] bytes. Other processes read it by [Election.Leader].
//
// The context of fn ends when the leadership ends (see [Election.Campaign]), and when ctx ends. When its
// context has ended, fn must return, because Run waits for fn. fn must pass this context to everything that
// it calls. If fn calls Run of the same election with this context, the inner Run does not campaign. It
// stores its own value, calls its own function, and does not resign. If the inner Run cannot store the value,
// it returns the error and does not call its function.
//
// If fn returns before the leadership is lost, Run returns, too. While fn does not run, Run also returns when
// ctx or the session ends. An outage of Redis does not end Run, however long the outage lasts. After fn has
// returned, Run waits for the replies to the requests of its resignation, for up to 5 s. It returns
//   - the error of fn, if the leadership was not lost before fn returned. The error of [Leadership.Resign] is
//     joined with it;
//   - an error that matches ctx.Err() and context.Cause(ctx), if ctx ended while this process did not lead;
//   - an error that matches [rlock.ErrClosed], if the session is closed;
//   - an error that matches [rlock.ErrLost], if ctx descends from a leadership that was lost, or if Campaign
//     returns such an error;
//   - the error of a mistake, such as a nil fn, a nil session or a value that is too long. Run returns this
//     error at once;
//   - an error of go-redis that does not go away by waiting, for example because of a wrong password.
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
		case <-ctx.Done(): // the next campaign returns the error of ctx
		case <-e.session.Closing():
		}
	}
}

// run calls fn and resigns. lost reports whether the leadership was lost before fn returned.
func (l *Leadership) run(leading context.Context, fn func(context.Context) error) (lost bool, err error) {
	defer func() {
		// The cause of the context could be the loss of an outer lock.
		lost = errors.Is(l.Err(), failure.ErrLost)
		if resigned := l.Resign(leading); resigned != nil && !lost {
			err = failure.Join(err, resigned)
		}
	}()
	return false, fn(leading)
}
