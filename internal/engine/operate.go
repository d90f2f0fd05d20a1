package engine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// What operators do with locks and permits that are not theirs: look at them, change how many permits there
// are, and take them from holders by force. It holds nothing, and waits for the answer of Redis alone.

// Ask sends a request that needs no rollback, and waits for its reply, not longer than ctx and the session
// last. The error is for users. The caller has checked the use.
func (ps *Permits) Ask(ctx context.Context, r wire.Copier) (wire.Outcome, error) {
	send := func(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
		return ps.s.Link.Call(ctx, r, maxTries, abandoned)
	}
	return call.Do(ctx, ps.s, ps.keys, ps.kind.Noun, call.Func(send))
}

func (ps *Permits) ask(ctx context.Context, sc *wire.Script, argv ...any) (string, error) {
	o, err := ps.Ask(ctx, &protocol.Same{Script: sc, Keys: ps.keys, Argv: argv})
	return o.Reply, err
}

// Inspect is what Redis knows of the lock. It blocks for the answer, not longer than ctx.
func (ps *Permits) Inspect(ctx context.Context) (protocol.State, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return protocol.State{}, err
	}
	reply, err := ps.ask(ctx, inspectScript)
	if err != nil {
		return protocol.State{}, err
	}
	st, err := protocol.DecodeLock(ps.Name(), reply)
	if err != nil {
		err = failure.Named(ps.Name(), err)
	}
	return st, err
}

// Which holders Force means.
const (
	ForceExclusive = ""  // the one that excludes all others
	ForceShared    = "r" // those that do not
)

// Force takes the lock from holders, and returns how many there were: ForceExclusive, ForceShared, or the
// one with this token. They learn that they have lost it. It blocks for one request, not longer than ctx.
func (ps *Permits) Force(ctx context.Context, which string) (int, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return 0, err
	}
	args := &ps.s.Args // waiters of any session are told on channels that begin alike
	text, err := ps.ask(ctx, forceScript, args.Channels, args.Keep, which)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, ps.kind.Failed(ps.keys, wire.Unexpected(text))
	}
	return n, nil
}

// ForceToken is Force of the one holder whose token Inspect has shown, which one server never gives to two.
func (ps *Permits) ForceToken(ctx context.Context, token int64) (bool, error) {
	if token <= 0 { // which could mean others than one holder
		return false, failure.Named(ps.Name(), fmt.Errorf("a token is above 0, not %d", token))
	}
	n, err := ps.Force(ctx, protocol.Number(token))
	return n > 0, err
}

// SetLimit sets how many permits there are, or only if Redis has no number, and reports whether it did. It
// blocks for one request, not longer than ctx.
func (ps *Permits) SetLimit(ctx context.Context, n int64, only bool) (bool, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return false, err
	}
	try := "0"
	if only {
		try = "1"
	}
	s := ps.s
	for expired := 1; ; expired++ { // each copy has its time: a late one would undo what was set since
		sent, until := time.Now(), int64(0)
		if t := s.Clock.Now(sent); t != 0 { // else the reply brings the time
			until = t + protocol.Patience(s.Lease).Microseconds()
		}
		// The request has an id, so that a copy of it knows that an earlier one has set the number.
		text, err := ps.ask(ctx, limitScript, n, try, s.Args.Channels, s.Args.Keep, s.Attempt(), until)
		now, late := strings.CutPrefix(text, "V ")
		switch {
		case err != nil || text == "S" || text == "N":
			return text == "S", err
		case !late:
			return false, ps.kind.Failed(ps.keys, wire.Unexpected(text))
		case expired == protocol.MaxExpired:
			return false, ps.kind.Failed(ps.keys, protocol.TooLate(s.Lease))
		}
		s.Clock.Heard(protocol.TokenOrZero(now), sent)
	}
}
