package operate

import (
	"context"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

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
