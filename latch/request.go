package latch

import (
	"context"
	"crypto/rand"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

var (
	setScript     = wire.Named("latch/set")
	countScript   = wire.Named("latch/count")
	deleteScript  = wire.Named("latch/delete")
	lookScript    = wire.Named("latch/look")
	joinScript    = wire.Named("latch/join")
	renewScript   = wire.Named("latch/renew")
	arriveScript  = wire.Named("latch/arrive")
	leaveScript   = wire.Named("latch/leave")
	inspectScript = wire.Named("latch/inspect")
)

// answer is a script's reply: a letter, the Redis time, and what else the script says.
type answer struct {
	status byte
	now    int64
	rest   string
}

func parse(reply string) (a answer, ok bool) {
	if len(reply) < 3 || reply[1] != ' ' {
		return answer{}, false
	}
	now, rest, _ := strings.Cut(reply[2:], " ")
	n, err := strconv.ParseInt(now, 10, 64)
	return answer{reply[0], n, rest}, err == nil
}

// request is one request, in as many copies as it takes. It belongs to the goroutine that sends it; if that
// is not the caller's, the caller looks at it only once it is answered.
type request struct {
	l      *Latch
	ctx    context.Context
	script *wire.Script
	argv   []any

	// Of a request that must take effect once: what names it, and the Redis time after which it is void. All
	// copies have the same, so the reply that it came too late speaks for all of them.
	once     bool
	id       string
	notAfter int64

	unanswered bool // a copy of this id was

	undo func(*request) // of what came of it, if its caller has left; nil: it stays
}

// Request makes a copy.
func (r *request) Request(now time.Time) wire.Request {
	if !r.once {
		return wire.NewRequest(r.script, r.l.boxed, r.argv...)
	}
	s := r.l.s
	if r.id == "" {
		r.id = s.Attempt()
		// Messages with the id of a run end waits, so it must not be guessable from the session's.
		if r.script == setScript {
			r.id += ":" + rand.Text()
		}
		if t := s.Clock.Now(now); t != 0 { // else the reply brings the time
			r.notAfter = t + protocol.Patience(s.Lease).Microseconds()
		}
	}
	return wire.NewRequest(r.script, r.l.boxed, append([]any{r.id, r.notAfter}, r.argv...)...)
}

// Send sends it until it is answered, and did not come too late.
func (r *request) Send(most int, abandoned *atomic.Bool) wire.Outcome {
	s := r.l.s
	for expired := 1; ; expired++ {
		o := s.Link.Call(r.ctx, r.script, r, most, abandoned)
		r.unanswered = r.unanswered || o.Unanswered != nil
		if o.Err != nil {
			return o
		}
		a, ok := parse(o.Reply)
		if !ok {
			o.Err = wire.Unexpected(o.Reply)
			return o
		}
		s.Clock.Heard(a.now, o.Sent)
		if a.status != 'V' && a.status != 'U' {
			return o
		}
		switch {
		case a.status == 'U' && r.unanswered:
			o.Err = errUnknown
		case expired == protocol.MaxExpired:
			o.Err = protocol.TooLate(s.Lease)
		case abandoned.Load():
			o.Err = context.Canceled // no caller sees it
		default:
			r.id, r.notAfter, r.unanswered = "", 0, false // it was void, so another one takes its place
			continue
		}
		return o
	}
}

// RollBack undoes it, if it can be.
func (r *request) RollBack(wire.Outcome) {
	if r.undo != nil {
		r.undo(r)
	}
}

// exchange sends a request and waits for the reply, as long as b lasts.
func (l *Latch) exchange(b *wakeup.Bounds, r *request) (a answer, o wire.Outcome, err error) {
	o, ok := call.Ask(b, l.s, l.s.Link.Silent(b.Until, l.key), r, 0)
	switch {
	case !ok:
		return answer{}, o, l.ended(b)
	case o.Err != nil:
		if r.undo != nil {
			l.s.Go(func() { r.undo(r) })
		}
		return answer{}, o, l.fail(o.Err)
	}
	a, _ = parse(o.Reply)
	return a, o, nil
}

// ask sends a request that can be repeated at will.
func (l *Latch) ask(b *wakeup.Bounds, sc *wire.Script, argv ...any) (answer, error) {
	a, _, err := l.exchange(b, &request{l: l, ctx: b.Until, script: sc, argv: argv})
	return a, err
}

// once sends a request that takes effect once.
func (l *Latch) once(b *wakeup.Bounds, sc *wire.Script, argv ...any) (answer, error) {
	a, _, err := l.exchange(b, &request{l: l, ctx: b.Until, script: sc, argv: argv, once: true})
	return a, err
}

// unexpected is the error of a reply that no script gives.
func (l *Latch) unexpected(a answer) error {
	return l.fail(wire.Unexpected(string(a.status) + " " + a.rest))
}
