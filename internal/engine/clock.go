package engine

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// LearnClock sets the session's estimate of the clock of Redis, unless the session already has an estimate.
// Without an estimate, the first request for a lock is void. The reply brings the Redis time, and the request
// is sent again (see attempt.Request). LearnClock sends such a void request, which changes nothing in Redis.
// It blocks for the reply, at most until ctx ends.
func (lk *Lock) LearnClock(ctx context.Context) error {
	s := lk.s
	if s.Clock.Now(time.Now()) != 0 {
		return nil
	}
	args := &s.Args
	r := &protocol.FixedRequest{Script: acquireScript, Keys: lk.keys, Argv: []any{
		s.Attempt(), 1, 0, args.Lease, args.HolderInfo, args.Retention, "0", args.Channels, "", "0",
	}}
	o, err := lk.Ask(ctx, r)
	if err != nil {
		return err
	}
	reply, err := protocol.Read(o)
	if err != nil {
		return lk.kind.Failed(lk.keys, err)
	}
	s.Clock.Sync(reply.Now, o.Sent)
	return nil
}
