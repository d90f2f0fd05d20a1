package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/failure"
)

// waitRound is the time for which one WAIT blocks its connection. It is below any sensible ReadTimeout, after
// which go-redis would close the connection.
const waitRound = 100 * time.Millisecond

// touch is a script that sets the expiry of a key to the value that the expiry already has.
//
// WAIT counts the replicas that have the writes of its own connection, but another connection may have
// written the grant. So touch, which is a write, runs before WAIT in the same pipeline. Replicas apply writes
// in order, so a replica that has the write of touch has all earlier writes.
const touch = `local left = redis.call('PTTL', KEYS[1])
return left > 0 and redis.call('PEXPIRE', KEYS[1], left) or 0`

// A Hold has the methods of a hold that WaitReplicas uses.
type Hold interface {
	Name() string
	Err() error
	Extend(ctx context.Context, d time.Duration) error
}

// waitLook is the interval at which awaitRound checks whether the hold has ended.
const waitLook = 20 * time.Millisecond

// round is the result of one WAIT, and of the confirmation that follows.
type round struct {
	acknowledged int
	err          error // error of WAIT
	extended     error // error of the request that confirms the hold
}

// WaitReplicas blocks until n replicas have all earlier writes to the server of key. Then it confirms that
// the server still has the hold, because a failover may have lost the hold meanwhile. If too few replicas
// have the writes, or an error may go away, it does both again. It returns any other error at once.
//
// When ctx, the hold or the session ends, WaitReplicas returns, even if a request is stuck. start runs a
// function in a goroutine that is counted in the session's work.
func (l *Link) WaitReplicas(
	ctx context.Context, hold Hold, key string, n int, start func(func()),
) error {
	fail := func(err error) error { return failure.Named(hold.Name(), fmt.Errorf("WaitReplicas: %w", err)) }
	if n < 1 {
		return fail(fmt.Errorf("the number of replicas must be at least 1, not %d", n))
	}
	var last round
	known := 0 // number of replicas that had the hold according to the last reply to WAIT
	for {
		done := make(chan round, 1) // with room, so that the goroutine ends even if nobody receives
		start(func() {
			var r round
			r.acknowledged, r.err = l.acknowledged(ctx, key, n)
			r.extended = hold.Extend(ctx, 0)
			done <- r
		})
		r, answered := awaitRound(ctx, l.options.Closing, hold, done, nil)
		if answered {
			last = r
		}
		if answered && r.err == nil {
			known = r.acknowledged
		}
		transient := func(err error) bool { return !errors.Is(err, errNoMaster) && Judge(err).Transient }
		trouble := cmp.Or(last.err, last.extended)
		switch over := hold.Err(); {
		case last.err != nil && !transient(last.err):
			return fail(last.err)
		case over != nil:
			return failure.Named(hold.Name(), over)
		case answered && r.extended == nil && r.err == nil && r.acknowledged >= n:
			return nil
		case ctx.Err() != nil:
			return fail(tooFewReplicas(ctx, known, n, trouble))
		case Closed(l.options.Closing):
			return fail(failure.ErrClosed)
		case last.extended != nil && !transient(last.extended):
			return last.extended
		}
		if trouble != nil {
			pause := time.NewTimer(waitRound)
			awaitRound(ctx, l.options.Closing, hold, nil, pause.C)
			pause.Stop()
		}
	}
}

// tooFewReplicas returns the error of a wait that ctx has ended. trouble is the last error, if any.
func tooFewReplicas(ctx context.Context, known, n int, trouble error) error {
	err := fmt.Errorf("%d of %d replicas have it: %w", known, n, failure.OfContext(ctx))
	if trouble == nil || errors.Is(trouble, ctx.Err()) { // the text of err already contains the error of ctx
		return err
	}
	return failure.Worded(err.Error()+": "+failure.Unnamed(trouble), err, trouble)
}

// awaitRound waits for a round from done. answered is false if until has a value first, or if ctx, the
// session or the hold ends first.
func awaitRound(
	ctx context.Context, closing <-chan struct{}, hold Hold, done <-chan round, until <-chan time.Time,
) (r round, answered bool) {
	look := time.NewTicker(waitLook)
	defer look.Stop()
	for hold.Err() == nil {
		select {
		case r = <-done:
			return r, true
		case <-until:
			return r, false
		case <-ctx.Done():
			return r, false
		case <-closing:
			return r, false
		case <-look.C:
		}
	}
	return r, false
}

// acknowledged returns the number of replicas that have all earlier writes to the server of key. While fewer
// than n replicas have the writes, WAIT blocks, for at most waitRound.
func (l *Link) acknowledged(ctx context.Context, key string, n int) (got int, err error) {
	defer l.survive(&err)
	to, err := l.master(ctx, key)
	if err != nil {
		return 0, err
	}
	pipe := to.Pipeline()
	written := pipe.Eval(ctx, touch, []string{key})
	wait := redis.NewIntCmd(ctx, "wait", n, waitRound.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, err = pipe.Exec(ctx)
	if err == nil && written.Val() == int64(0) { // touch wrote nothing, so WAIT did not wait for the key
		return 0, errors.New("its key does not exist in Redis")
	}
	return int(wait.Val()), err
}
