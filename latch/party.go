package latch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Party has the lease of one count. Safe for concurrent use. The methods of a nil Party return an error.
type Party struct {
	l       *Latch
	name    string
	run     string
	id      string
	lease   watchdog.Lease // guarded by the watchdog
	cancel  context.CancelCauseFunc
	over    atomic.Bool
	why     chan error // says that it is over: why it was lost, or nil
	counted atomic.Bool
	asking  atomic.Int32 // CountDowns under way: what a renewal finds may be their doing
	gone    atomic.Bool  // a renewal has found no lease
}

// Join leases one count of the run that is under way to a party. The lease is the session's, 30 s by default,
// and is renewed until the party counts or gives up. So call [Party.CountDown] or [Party.Abandon] in any
// case:
//
//	work, party, err := l.Join(ctx, "worker 7")
//	if err != nil {
//		return err
//	}
//	defer party.Abandon(context.WithoutCancel(ctx)) // nothing happens after CountDown
//
// The context that Join returns is canceled at the end of the lease, with a *[PartyDiedError] as its cause,
// or with [ErrGone] if the run is over, or [rlock.ErrClosed]. It also ends after CountDown, and with ctx. The
// end of ctx does not end the lease.
//
// The name of a party is of 1 to 512 bytes of UTF-8. Join returns [ErrPartyExists] while another party of
// this name has its lease, and takes over the count of one that died. It returns [ErrNoCount] where no run is
// under way, or as many parties have joined as there are counts left. It blocks for one round trip. If it
// returns an error, the party has not joined, or leaves again in the background.
func (l *Latch) Join(ctx context.Context, party string) (context.Context, *Party, error) {
	if err := l.check(ctx); err != nil {
		return ctx, nil, err
	}
	if party == "" || len(party) > protocol.MaxName || !utf8.ValidString(party) {
		err := fmt.Errorf("the name of a party is 1 to %d bytes of UTF-8: %.40q", protocol.MaxName, party)
		return ctx, nil, l.fail(err)
	}
	s := l.s
	if !s.Begin() {
		return ctx, nil, l.fail(failure.ErrClosed)
	}
	defer s.End()
	r := &request{l: l, ctx: ctx, script: joinScript, id: s.Attempt(), argv: []any{party, s.Args.Lease}}
	a, err := r.do()
	switch {
	case err != nil:
		return ctx, nil, err
	case a.letter == 'F':
		return ctx, nil, l.fail(ErrNoCount)
	case a.letter == 'T':
		return ctx, nil, l.fail(ErrPartyExists)
	case a.letter == 'X': // its lease ended before this was known
		return ctx, nil, l.died(party)
	case a.letter != 'J':
		return ctx, nil, l.unexpected(a)
	}
	p := &Party{l: l, name: party, run: a.rest, id: r.id, why: make(chan error, 1)}
	p.lease.Owner = leased{p}
	ctx, p.cancel = context.WithCancelCause(ctx)
	s.Watchdog.Add(&p.lease, a.sent.Add(protocol.Valid(s.Lease)), s.Lease/3)
	s.Go(p.attend)
	return ctx, p, nil
}

// attend waits until the party is over, and abandons it when the session ends, so that whatever waits for it
// need not wait for its lease.
func (p *Party) attend() {
	s := p.l.s
	select {
	case err := <-p.why:
		if err != nil {
			s.Warn("a party of a latch has lost its lease before it counted",
				"latch", p.l.keys.Name, "party", p.name, "reason", err)
		}
	case <-s.Closing():
		if p.end(p.l.fail(failure.ErrClosed), nil) {
			if err := p.l.leave(p.id, p.name, 0); err != nil {
				s.Failed(p.l.keys.Failed(noun, err))
			}
		}
	}
}

// leave ends the lease of a party, as leave.lua has it. It tries for as long as the lease lasts.
func (l *Latch) leave(id, party any, notAfter int64) error {
	s := l.s
	r := &protocol.Same{Script: leaveScript, Keys: l.keys, Argv: []any{id, party, notAfter}}
	until := time.Now().Add(s.Lease)
	for try := 1; ; try++ {
		err := s.Link.Call(s.Ctx, r, 1, nil).Err
		if err == nil || !wire.Judge(err).Again(s.Closing()) || time.Now().After(until) ||
			!wire.Pause(s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return err
		}
	}
}

var errNoParty = errors.New("lockline: a nil Party; Join returns one, or an error")

// none reports whether p is not a Party that Join has returned.
func (p *Party) none() bool { return p == nil || p.l == nil }

// Name is the party's; "" for a nil Party.
func (p *Party) Name() string {
	if p.none() {
		return ""
	}
	return p.name
}

// CountDown counts down by the count that was leased, and ends the lease. It counts once, however often it is
// called: after an error it can be called again. It returns nil if the party has counted, or if the run has
// ended at 0 without it. If the lease has ended, it returns a *[PartyDiedError] and has not counted. Other
// errors are [ErrDeleted] and [ErrGone]. After any other error it may have counted, and the lease is renewed
// on. It blocks for one round trip.
func (p *Party) CountDown(ctx context.Context) error {
	if p.none() {
		return errNoParty
	}
	if p.counted.Load() {
		return nil
	}
	p.asking.Add(1)
	a, err := p.l.ask(ctx, arriveScript, p.id, p.name, p.run)
	if err == nil {
		if err = p.l.ending(a.letter, p.name); err == nil {
			p.counted.Store(true)
		}
		p.end(err, nil)
	}
	if p.asking.Add(-1) == 0 && p.gone.Load() { // for a reason not known here, if it has not ended above
		p.end(p.l.fail(ErrGone), nil)
	}
	return err
}

// Abandon gives up: the lease ends now, and so does each Wait, with a *[PartyDiedError]. After CountDown has
// returned nil it does nothing. If it returns an error, the lease may run until its end, and is not renewed.
// It blocks for one round trip.
func (p *Party) Abandon(ctx context.Context) error {
	if p.none() {
		return errNoParty
	}
	if p.counted.Load() {
		return nil
	}
	p.end(p.l.died(p.name), nil)
	_, err := p.l.ask(ctx, leaveScript, p.id, p.name, 0)
	return err
}

// end ends the renewal and the context, and reports whether this call did. cause nil: it has counted. lost is
// for the log.
func (p *Party) end(cause, lost error) bool {
	if !p.over.CompareAndSwap(false, true) {
		return false
	}
	p.l.s.Watchdog.Remove(&p.lease)
	p.cancel(cause)
	p.why <- lost
	return true
}

// leased is a party as the watchdog sees it: a session.Lessee.
type leased struct{ *Party }

// LeaseKey is the latch's key.
func (p leased) LeaseKey() string { return p.l.keys.LockKey() }

func (p leased) Renewal() (r *wire.Request, prolongs bool) {
	return p.l.keys.Request(renewScript, p.id, p.name, p.l.s.Args.Lease), true
}

// LeaseLost ends the party.
func (p leased) LeaseLost(deadlinePassed bool) {
	err := p.l.died(p.name)
	if !deadlinePassed {
		err = p.l.fail(ErrGone)
		if p.gone.Store(true); p.asking.Load() > 0 { // it may have counted, as its CountDown will know
			return
		}
	}
	p.end(err, err)
}

// RenewalFailed does nothing: the renewal will be tried again.
func (p leased) RenewalFailed(error) {}
