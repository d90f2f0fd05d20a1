// Package operate is what operators do with locks and permits that are not theirs: look at them, change how
// many permits there are, and take them from holders by force. It holds nothing, and waits for nothing but
// the answer of Redis.
//
// Begin with ask.
package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// ask sends a request, and waits for the reply, not longer than ctx. Its caller has checked the use.
func ask(ctx context.Context, ps *engine.Permits, sc *wire.Script, argv ...any) (string, error) {
	s, keys := ps.Session(), ps.Keys()
	r := &protocol.Same{Script: sc, Keys: keys, Argv: argv}
	send := func(most int, _ *atomic.Bool) wire.Outcome { return s.Link.Call(ctx, sc, r, most, nil) }
	o, err := call.Do(ctx, s, keys, ps.Kind().Noun, call.Func(send))
	return o.Reply, err
}

// failed is a request's error for the user.
func failed(ps *engine.Permits, err error) error { return ps.Kind().Failed(ps.Keys(), err) }

// Inspect is what Redis knows of the lock. It blocks for the answer, not longer than ctx.
func Inspect(ctx context.Context, ps *engine.Permits) (protocol.State, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return protocol.State{}, err
	}
	reply, err := ask(ctx, ps, ps.Kind().Inspect)
	if err != nil {
		return protocol.State{}, err
	}
	st, err := protocol.DecodeState(ps.Name(), reply)
	if err != nil {
		err = failure.Named(ps.Name(), err)
	}
	return st, err
}

// Which holders Force means.
const (
	Alone  = ""  // the one that excludes all others
	Shared = "r" // those that do not
)

// Force takes the lock from holders, and returns how many there were: the one that has it Alone, those that
// have it Shared, or the one with this token. They learn that they have lost it. It blocks for one request,
// not longer than ctx.
func Force(ctx context.Context, ps *engine.Permits, which string) (int, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return 0, err
	}
	args := &ps.Session().Args // waiters of any session are told on channels that begin alike
	text, err := ask(ctx, ps, ps.Kind().Force, args.Channels, args.Keep, which)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, failed(ps, wire.Unexpected(text))
	}
	return n, nil
}

// ForceToken is Force of the one holder whose token Inspect has shown, which one server never gives to two.
func ForceToken(ctx context.Context, ps *engine.Permits, token int64) (bool, error) {
	if token <= 0 { // which could mean others than one holder
		return false, failure.Named(ps.Name(), fmt.Errorf("a token is above 0, not %d", token))
	}
	n, err := Force(ctx, ps, protocol.Number(token))
	return n > 0, err
}

var limitScript = wire.Named("permit/limit")

// SetLimit sets how many permits there are, or only if Redis has no number, and reports whether it did. It
// blocks for one request, not longer than ctx.
func SetLimit(ctx context.Context, ps *engine.Permits, n int64, only bool) (bool, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return false, err
	}
	try := "0"
	if only {
		try = "1"
	}
	s := ps.Session()
	for expired := 1; ; expired++ { // each copy has its time: a late one would undo what was set since
		sent, until := time.Now(), int64(0)
		if t := s.Clock.Now(sent); t != 0 { // else the reply brings the time
			until = t + protocol.Patience(s.Lease).Microseconds()
		}
		// The request has an id, so that a copy of it knows that an earlier one has set the number.
		text, err := ask(ctx, ps, limitScript, n, try, s.Args.Channels, s.Args.Keep, s.Attempt(), until)
		now, late := strings.CutPrefix(text, "V ")
		switch {
		case err != nil || text == "S" || text == "N":
			return text == "S", err
		case !late:
			return false, failed(ps, wire.Unexpected(text))
		case expired == protocol.MaxExpired:
			return false, failed(ps, protocol.TooLate(s.Lease))
		}
		s.Clock.Heard(protocol.TokenOrZero(now), sent)
	}
}
