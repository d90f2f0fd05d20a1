package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// contactPause is the time between two attempts to reach Redis.
const contactPause = 250 * time.Millisecond

// contact connects to Redis for exec. If Redis does not answer, but may answer in a moment, contact tries
// again. With --wait, it tries for this time. Without --wait, it tries for one lease, like a Lock. With
// --wait 0, it tries once. If contact still fails after a second, it writes the error once, unless --quiet is
// set.
func (o execOptions) contact(ctx context.Context, errOut io.Writer) (redis.UniversalClient, error) {
	begun, once := time.Now(), o.bounded && o.atMost == 0
	bound := cmp.Or(o.atMost, o.lease)
	if once {
		bound = time.Hour // much longer than an attempt takes
	}
	opening, cancel := context.WithTimeoutCause(ctx, bound, o.redis.unanswered(o.atMost))
	defer cancel()
	var failed error // error of the last attempt to which Redis did not reply
	for said := o.quiet; ; {
		rdb, err := o.redis.open(opening)
		down, ok := errors.AsType[*unreachable](err)
		switch timedOut := opening.Err() != nil && ctx.Err() == nil; {
		case err == nil:
			return rdb, nil
		case timedOut && failed != nil:
			return nil, fmt.Errorf("%w (tried for %v)", failed, bound)
		case once, !ok, !down.passing:
			return nil, err
		}
		failed = err
		if !said && time.Since(begun) > silence {
			said = true
			complain(errOut, fmt.Errorf("lock %q: waiting; %w", o.name, err))
		}
		select {
		case <-time.After(contactPause):
		case <-opening.Done(): // the next attempt returns at once
		}
	}
}

// mayPass reports whether Redis may answer in a moment. err is the error of a request. If the server did not
// answer a TLS handshake (Unknown without Resend), mayPass returns false. In this case, go-redis has already
// tried for a long time, and most such servers have no TLS.
func mayPass(err error) bool {
	v := wire.Judge(err)
	return v.Transient && (v.Resend || !v.Unknown)
}

// left returns the rest of the time of --wait, but at least the shortest time for which a Lock can wait. If
// --wait is 0 or was not given, left returns 0.
func (c *contender) left() time.Duration {
	if c.atMost == 0 {
		return 0
	}
	return max(protocol.MinTime, c.atMost-time.Since(c.begun))
}
