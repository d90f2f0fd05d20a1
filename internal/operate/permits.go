package operate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

var limitScript = wire.Named("permit/limit")

// InspectPermits asks Redis for the holders and the waiters. It changes nothing, and blocks for one request,
// not longer than ctx.
func InspectPermits(ctx context.Context, ps *engine.Permits) (Permits, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return Permits{}, err
	}
	text, err := ask(ctx, ps, ps.Kind().Inspect)
	if err != nil {
		return Permits{}, err
	}
	st, err := DecodePermits(text)
	if err != nil {
		return Permits{}, failed(ps, wire.Unexpected(text))
	}
	return st, nil
}

// Which holders Force means.
const (
	Writer  = "w" // the one that has all permits
	Readers = "r" // those that have fewer
)

// Force takes permits back from holders, and returns how many there were: the Writer, the Readers, or the one
// with this token. They learn that they have lost them. It blocks for one request, not longer than ctx.
func Force(ctx context.Context, ps *engine.Permits, which string) (int, error) {
	if err := ps.CheckUse(ctx); err != nil {
		return 0, err
	}
	args := &ps.Session().Args // of the operator's session: waiters of any are told on channels that begin alike
	text, err := ask(ctx, ps, ps.Kind().Force, which, args.Channels, args.Keep)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, failed(ps, wire.Unexpected(text))
	}
	return n, nil
}

// ForceToken is Force of the one holder that has this token.
func ForceToken(ctx context.Context, ps *engine.Permits, token int64) (bool, error) {
	if token <= 0 { // which could mean others than one holder
		return false, failure.Named(ps.Name(), fmt.Errorf("a token is above 0, not %d", token))
	}
	n, err := Force(ctx, ps, protocol.Number(token))
	return n > 0, err
}

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
	for expired := 1; ; expired++ { // a copy that came late would undo what was set since, so each has its time
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
