package latch

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// The reply of renewScript is a letter. The reply of any other script is a letter, the Redis time, and a rest
// that depends on the script.
var (
	setScript     = wire.Named("latch/set")
	countScript   = wire.Named("latch/count")
	deleteScript  = wire.Named("latch/delete")
	lookScript    = wire.Named("latch/look")
	joinScript    = wire.Named("latch/join")
	arriveScript  = wire.Named("latch/arrive")
	leaveScript   = wire.Named("latch/leave")
	inspectScript = wire.Named("latch/inspect")
	renewScript   = wire.Named("latch/renew")
)

// An answer is the reply of a script, in its parts.
type answer struct {
	letter byte
	now    int64 // Redis time in µs
	rest   string
	sent   time.Time // time just before the request was sent
}

// A request is one call of a script. If a copy of the request gets no reply, another copy is sent. While the
// request is in flight, only the goroutine that sends it may use the fields. After the reply, the caller may
// use them again.
type request struct {
	l      *Latch
	ctx    context.Context
	script *wire.Script
	argv   []any

	// A request that must take effect only once has an id. It also has notAfter, which is the Redis time in
	// µs after which the request is void. All copies have the same id. They also have the same notAfter, so
	// if one copy came too late, later copies come too late as well. Send changes notAfter only if no copy
	// with the old time ran or will run.
	id       string // "" means that the request may take effect several times
	notAfter int64  // 0 means that Request has not set it

	unanswered bool // a copy with this notAfter had no reply
	answer     answer
}

// Request returns a copy of the request that is to be sent now. If the request has an id but no notAfter yet,
// Request sets notAfter as soon as the Redis time is known.
func (r *request) Request(now time.Time) *wire.Request {
	argv := r.argv
	if r.id != "" {
		// While the clock is not known, notAfter is 0, and the reply sets the clock.
		if t := r.l.s.Clock.Now(now); r.notAfter == 0 && t != 0 {
			r.notAfter = t + protocol.Patience(r.l.s.Lease).Microseconds()
		}
		argv = append([]any{r.id, r.notAfter}, argv...)
	}
	return r.l.keys.Request(r.script, argv...)
}

// Send sends at most maxTries copies of the request, until one of them has a reply. If the reply says that
// the copy came too late, Send starts again with a new notAfter, unless
//   - an earlier copy may have taken effect;
//   - protocol.MaxExpired copies in a row came too late;
//   - the caller has left (abandoned).
func (r *request) Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
	s := r.l.s
	for expired := 1; ; expired++ {
		o := s.Link.Call(ctx, r, maxTries, abandoned)
		r.unanswered = r.unanswered || o.Unanswered != nil
		if o.Err != nil {
			return o
		}
		letter, rest, _ := strings.Cut(o.Reply, " ")
		stamped, rest, _ := strings.Cut(rest, " ")
		now, ok := protocol.Token(stamped)
		if !ok || len(letter) != 1 || letter == "?" { // '?': the reply that the hash remembers is damaged
			o.Err = wire.Unexpected(o.Reply)
			return o
		}
		s.Clock.Sync(now, o.Sent)
		r.answer = answer{letter[0], now, rest, o.Sent}
		switch {
		case letter != "V" && letter != "U":
		case letter == "U" && r.unanswered:
			o.Err = errUnknown
		case expired == protocol.MaxExpired:
			o.Err = protocol.TooLate(s.Lease)
		case abandoned.Load():
			o.Err = context.Canceled // the caller has left and does not get this error
		default:
			r.notAfter, r.unanswered = 0, false // no copy with the old notAfter ran, or will run
			continue
		}
		return o
	}
}

// RollBack ends the lease that the request of a Join may have taken. The effects of other requests stay.
func (r *request) RollBack(wire.Outcome) {
	if r.script == joinScript {
		_ = r.l.leave(r.id, r.argv[0], r.notAfter)
	}
}

// do sends the request and waits for the reply, until r.ctx or the session ends (see call.Do).
func (r *request) do() (answer, error) {
	if err := r.l.check(r.ctx); err != nil {
		return answer{}, err
	}
	if _, err := call.Do(r.ctx, r.l.s, r.l.keys, noun, r); err != nil {
		return answer{}, err
	}
	return r.answer, nil
}

// ask sends a request that may take effect several times.
func (l *Latch) ask(ctx context.Context, sc *wire.Script, argv ...any) (answer, error) {
	return (&request{l: l, ctx: ctx, script: sc, argv: argv}).do()
}

// unexpected returns the error for a reply that the script should never give.
func (l *Latch) unexpected(a answer) error {
	return l.keys.Failed(noun, wire.Unexpected(string(a.letter)+" "+a.rest))
}
