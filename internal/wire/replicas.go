package wire

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/failure"
)

// waitRound is for how long one WAIT blocks its connection. It is below any sensible ReadTimeout, after which
// go-redis would close the connection.
const waitRound = 100 * time.Millisecond

// WAIT speaks of the writes of its own connection, and a grant may have been written by another one. So a
// write goes before it in its pipeline. The replication stream is one sequence: a replica that has this write
// has all that came before. It sets the expiry that there is, and so changes nothing.
const touch = `local left = redis.call('PTTL', KEYS[1])
return left > 0 and redis.call('PEXPIRE', KEYS[1], left) or 0`

// Hold is what WaitReplicas must know of a hold.
type Hold interface {
	Name() string
	Err() error
	Extend(ctx context.Context, d time.Duration) error
}

// WaitReplicas blocks until n replicas of the server that has key have all that was written there before.
// Then it asks whether the server has the hold: a failover meanwhile may have forgotten it. It goes on trying
// until ctx or the hold ends, or until an error that time does not mend.
func (l *Link) WaitReplicas(ctx context.Context, hold Hold, key string, n int) error {
	fail := func(err error) error { return failure.Named(hold.Name(), fmt.Errorf("WaitReplicas: %w", err)) }
	if n < 1 {
		return fail(fmt.Errorf("%d replicas", n))
	}
	for {
		got, err := l.acknowledged(ctx, key, n)
		if err != nil && (errors.Is(err, errNoMaster) || !Judge(err).Transient) {
			return fail(err)
		}
		extended := hold.Extend(ctx, 0)
		switch over := hold.Err(); {
		case over != nil:
			return failure.Named(hold.Name(), over)
		case extended == nil && got >= n:
			return nil
		case ctx.Err() != nil:
			return fail(fmt.Errorf("%d of %d replicas have it: %w", got, n, failure.OfContext(ctx)))
		case extended != nil:
			return extended
		}
		if err != nil && !Pause(ctx, waitRound) {
			return fail(fmt.Errorf("%w: %w", failure.OfContext(ctx), err))
		}
	}
}

// acknowledged is how many replicas have what was written before, as far as is known within a round.
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
	if err == nil && written.Val() == int64(0) { // so WAIT says nothing
		return 0, errors.New("it is not there")
	}
	return int(wait.Val()), err
}
