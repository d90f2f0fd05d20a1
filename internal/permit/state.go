package permit

import (
	"context"
	"fmt"
	"strconv"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/permit/reply"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Inspect asks Redis. It changes nothing, and blocks for one request, not longer than ctx.
func (ps *Permits) Inspect(ctx context.Context) (reply.State, error) {
	text, err := ps.ask(ctx, inspectScript)
	if err != nil {
		return reply.State{}, err
	}
	st, err := reply.Decode(text)
	if err != nil {
		return reply.State{}, ps.kind.Failed(ps.keys, wire.Unexpected(text))
	}
	return st, nil
}

// Which holders Force means.
const (
	Writer  = "w" // the one that has all permits
	Readers = "r" // those that have fewer
)

// Force takes permits back from holders, and returns how many there were: the Writer, the Readers, or the one with this token. They learn that
// they have lost them. It blocks for one request, not longer than ctx.
func (ps *Permits) Force(ctx context.Context, which string) (int, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return 0, err
	}
	text, err := ps.ask(ctx, forceScript, which, ps.s.Args.Channels, ps.s.Args.Keep)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, ps.kind.Failed(ps.keys, wire.Unexpected(text))
	}
	return n, nil
}

// ForceToken is Force of the one holder that has this token.
func (ps *Permits) ForceToken(ctx context.Context, token int64) (bool, error) {
	if token <= 0 {
		if err := ps.CheckUse(ctx); err != nil {
			return false, err
		}
		return false, ps.kind.Named(ps.keys.Name, fmt.Errorf("no holder has the token %d", token))
	}
	n, err := ps.Force(ctx, protocol.Number(token))
	return n > 0, err
}

// SetLimit sets how many permits there are, or only if Redis has no number. It blocks for one request, not longer than ctx.
func (ps *Permits) SetLimit(ctx context.Context, n int64, only bool) (bool, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return false, err
	}
	try := "0"
	if only {
		try = "1"
	}
	text, err := ps.ask(ctx, limitScript, n, try, ps.s.Args.Channels, ps.s.Args.Keep, ps.s.Attempt())
	if err == nil && text != "S" && text != "N" {
		err = ps.kind.Failed(ps.keys, wire.Unexpected(text))
	}
	return text == "S", err
}

// ask sends a request that is about no grant of ours, and waits for the reply, not longer than ctx.
func (ps *Permits) ask(ctx context.Context, sc *wire.Script, argv ...any) (string, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return "", err
	}
	s := ps.s
	if !s.Begin() {
		return "", ps.kind.Named(ps.keys.Name, failure.ErrClosed)
	}
	o, answered := wakeup.Call(ctx, func() wire.Outcome {
		defer s.End()
		return s.Link.Call(ctx, sc, &protocol.Same{Script: sc, Keys: ps.keys, Argv: argv}, wire.Tries, nil)
	})
	switch {
	case !answered:
		return "", ps.kind.Named(ps.keys.Name, failure.OfContext(ctx))
	case o.Err != nil:
		return "", ps.kind.Failed(ps.keys, o.Err)
	}
	return o.Reply, nil
}
