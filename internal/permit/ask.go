package permit

import (
	"context"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Session is that of good Permits.
func (ps *Permits) Session() *session.Session { return ps.s }

// Failed is a request's error for the user.
func (ps *Permits) Failed(err error) error { return ps.kind.Failed(ps.keys, err) }

// Ask sends a request that is about no grant of this session, and waits for the reply, not longer than ctx.
func (ps *Permits) Ask(ctx context.Context, sc *wire.Script, argv ...any) (string, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return "", err
	}
	s := ps.s
	if !s.Begin() {
		return "", ps.kind.Named(ps.keys.Name, failure.ErrClosed)
	}
	o, answered := wakeup.Call(ctx, func() wire.Outcome {
		defer s.End() // with the answer, though the caller may have left before
		return s.Link.Call(ctx, sc, &protocol.Same{Script: sc, Keys: ps.keys, Argv: argv}, wire.Tries, nil)
	})
	switch {
	case !answered:
		return "", ps.kind.Named(ps.keys.Name, failure.OfContext(ctx))
	case o.Err != nil:
		return "", ps.Failed(o.Err)
	}
	return o.Reply, nil
}
