package engine

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// LearnClock sets the session's estimate of the clock of Redis. It does nothing if the session has one
// already. Until then, its requests for a lock are void, and are sent again when the reply has brought the
// time (see attempt.Request). LearnClock sends such a void request, as a try has it, which changes nothing.
// It blocks for the reply, not longer than ctx.
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
