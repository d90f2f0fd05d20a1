package election

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// record is the value of a leadership in Redis. It must not refer to a Leadership, which its user may forget.
type record struct {
	e            *Election
	owner, token string

	mu     sync.Mutex // guards what follows; a leaf
	number int64      // of the value, which counts on from 1
	value  string
}

// set makes value the newest one.
func (r *record) set(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	r.value = value
}

// store sends the newest value and blocks for the answer, not longer than ctx.
func (r *record) store(ctx context.Context) error {
	r.mu.Lock()
	number, value := r.number, r.value
	r.mu.Unlock()
	o, err := r.e.do(ctx, proclaimScript, r.owner, r.token, number, value, r.e.session.Args.Keep)
	switch {
	case err != nil:
		return err
	case o.Reply != "K":
		return r.e.fail(failure.ErrLost)
	}
	return nil
}

// persist stores the first value, also through an outage, while the lock is held. It returns nil only if the
// lock is held still.
func (r *record) persist(held context.Context, hold *rlock.Hold) error {
	for try := 1; ; try++ {
		err := r.store(held)
		over := hold.Err() // also if that succeeded: its reply may have come when the lease was over
		switch {
		case over != nil:
			return r.e.fail(over)
		case err == nil:
			return nil
		case errors.Is(err, failure.ErrLost), !wire.Judge(err).Unsettled(),
			!wire.Pause(held, wire.Backoff(try, 20*time.Millisecond, 500*time.Millisecond)):
			return err
		}
	}
}

// keep stores the newest value again as often as the lock is renewed, in case Redis loses it, until the
// leadership has ended.
func (r *record) keep(ended <-chan struct{}) {
	s := r.e.session
	b := call.Bounds{Until: s.Ctx, Closing: s.Closing()}
	for {
		if lost, closing := b.Sleep(s.Lease/3, ended); lost || closing {
			return
		}
		_ = r.store(s.Ctx) // the lock's own renewal reports what is wrong
	}
}

// retract deletes the value in Redis once the lock is released. If that fails, observers look when the lease
// is over.
func (r *record) retract(ctx context.Context) {
	_, _ = r.e.do(ctx, retractScript, r.owner, r.token)
}
