package engine

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// This file has the calls by which operators inspect locks, set limits, and take locks from holders by force.
// These calls do not hold locks, and do not wait for holders.

// Ask sends a request whose effect may stay if the caller leaves before the reply. It blocks for the reply,
// at most until ctx ends or the session closes. If ctx has no deadline, it blocks for at most the session's
// lease. The error names the lock. CheckUse must have returned nil before.
func (lk *Lock) Ask(ctx context.Context, r wire.Copier) (wire.Outcome, error) {
	send := func(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
		return lk.s.Link.Call(ctx, r, maxTries, abandoned)
	}
	return call.Do(ctx, lk.s, lk.keys, lk.kind.Noun, call.Func(send))
}

func (lk *Lock) ask(ctx context.Context, sc *wire.Script, argv ...any) (wire.Outcome, error) {
	return lk.Ask(ctx, &protocol.FixedRequest{Script: sc, Keys: lk.keys, Argv: argv})
}

// Inspect returns the state of the lock in Redis. It blocks for the reply, at most until ctx ends.
func (lk *Lock) Inspect(ctx context.Context) (protocol.State, error) {
	if err := lk.CheckUse(ctx); err != nil {
		return protocol.State{}, err
	}
	o, err := lk.ask(ctx, inspectScript)
	if err != nil {
		return protocol.State{}, err
	}
	st, err := protocol.DecodeLock(lk.Name(), o.Reply)
	if err != nil {
		err = failure.Named(lk.Name(), err)
	}
	return st, err
}

// Values of the parameter target of Force.
const (
	ForceExclusive = ""  // the holder of all permits, which excludes all others
	ForceShared    = "r" // all holders of fewer permits
)

// Force takes the lock from the holders that target names, and returns their number. target is
// ForceExclusive, ForceShared, or the token of one holder. A holder notices the loss at its next request, for
// example a renewal. Force blocks for the reply, at most until ctx ends. After an error, holders may have
// lost the lock all the same.
func (lk *Lock) Force(ctx context.Context, target string) (int, error) {
	if err := lk.CheckUse(ctx); err != nil {
		return 0, err
	}
	args := &lk.s.Args // Channels is a prefix, because the script may notify any session
	o, err := lk.ask(ctx, forceScript, args.Channels, args.Retention, target)
	if err != nil {
		return 0, err
	}
	n, err := protocol.Forced(o)
	if err != nil {
		err = lk.kind.Failed(lk.keys, err)
	}
	return n, err
}

// ForceToken takes the lock from the holder with this token, which Inspect has returned. It reports whether
// there was such a holder. If several goroutines share the grant with this token, all of them lose it.
func (lk *Lock) ForceToken(ctx context.Context, token int64) (bool, error) {
	if token <= 0 { // no holder has such a token
		return false, failure.Named(lk.Name(), fmt.Errorf("a token is above 0, not %d", token))
	}
	n, err := lk.Force(ctx, protocol.Number(token))
	return n > 0, err
}

// SetLimit sets the limit, which is the number of permits, and reports whether it was set. If ifUnset is
// true, SetLimit does nothing when Redis already has a limit. It blocks for the reply, at most until ctx
// ends. A request that reaches Redis too late is sent again, a few times at most.
func (lk *Lock) SetLimit(ctx context.Context, n int64, ifUnset bool) (bool, error) {
	if err := lk.CheckUse(ctx); err != nil {
		return false, err
	}
	onlyIfUnset := "0"
	if ifUnset {
		onlyIfUnset = "1"
	}
	s := lk.s
	// By this id, the script recognizes a second copy of the request, even if a copy in between was void.
	id := s.Attempt()
	for expired := 1; ; expired++ { // a late request is void, so it does not undo a newer one
		sent, until := time.Now(), int64(0)
		// While the clock is unknown, until is 0. The request is then void, and the reply sets the clock.
		if t := s.Clock.Now(sent); t != 0 {
			until = t + protocol.Patience(s.Lease).Microseconds()
		}
		o, err := lk.ask(ctx, limitScript, n, onlyIfUnset, s.Args.Channels, s.Args.Retention, id, until)
		now, late := strings.CutPrefix(o.Reply, "V ")
		switch {
		case err != nil || o.Reply == "S" || o.Reply == "N":
			return o.Reply == "S", err
		case !late:
			return false, lk.kind.Failed(lk.keys, wire.Unexpected(o.Reply))
		case expired == protocol.MaxExpired:
			return false, lk.kind.Failed(lk.keys, protocol.TooLate(s.Lease))
		}
		s.Clock.Sync(protocol.TokenOrZero(now), sent)
	}
}
