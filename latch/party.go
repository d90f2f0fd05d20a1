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

// Party has the lease of one count. It is safe for concurrent use. On a nil Party, every method that can
// return an error returns one.
type Party struct {
	l       *Latch
	name    string
	run     string
	id      string
	lease   watchdog.Lease // guarded by the watchdog
	cancel  context.CancelCauseFunc
	over    atomic.Bool
	why     chan error // receives the reason of a loss, or nil, when the party ends
	counted atomic.Bool
	gone    atomic.Bool // a renewal has found no lease

	// While a CountDown is running, a renewal may find no lease because that CountDown has counted.
	numCountDowns atomic.Int32 // number of running calls
}

// Join leases one count of the current run to a party. The lease is the session's, 15 s by default,
// and is renewed until the party counts or gives up. So call [Party.CountDown] or [Party.Abandon] in any
// case:
//
//	work, party, err := l.Join(ctx, "worker 7")
//	if err != nil {
//		return err
//	}
//	defer party.Abandon(context.WithoutCancel(ctx)) // does nothing after CountDown
//
// The context that Join returns is canceled at the end of the lease. Its cause is a *[PartyDiedError],
// [ErrGone] if the run has ended, or [rlock.ErrClosed]. The context also ends after CountDown, and when ctx
// ends. The lease does not end when ctx ends.
//
// The name of a party has 1 to 512 bytes of UTF-8. If another party of this name has a lease, Join returns
// [ErrPartyExists]. If a party of this name has died, Join takes over its count. Join returns [ErrNoCount] if
// there is no run, or if each remaining count is leased to a party. It blocks for one round trip. If the
// lease ends before the reply arrives, Join returns a *[PartyDiedError]. After any other error, the party has
// not joined, or leaves again in the background.
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
	case a.letter == 'X': // the party joined, but its lease ended before the reply arrived
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

// attend waits until the party has ended. It logs the loss of a lease. If the session ends, attend abandons
// the party, so that waiters do not wait for the end of its lease.
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

// leave ends the lease of a party in Redis, by latch/leave.lua. In an outage, it tries again for as long as
// the lease lasts.
func (l *Latch) leave(id, party any, notAfter int64) error {
	s := l.s
	r := &protocol.FixedRequest{Script: leaveScript, Keys: l.keys, Argv: []any{id, party, notAfter}}
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

// Name returns the party's name. It returns "" for a nil Party.
func (p *Party) Name() string {
	if p.none() {
		return ""
	}
	return p.name
}

// CountDown counts down by one, which is the count that Join leased, and ends the lease. The party counts
// only once, so CountDown can be called again after an error. It returns nil if the party has counted, or if
// the run has ended at 0 although the party has not counted. If the lease has ended, CountDown returns a
// *[PartyDiedError], and the party has not counted. Other final errors are [ErrDeleted] and [ErrGone]. After
// any other error, the party may have counted. Its lease is still renewed, unless the session is closed.
// CountDown blocks for one round trip.
func (p *Party) CountDown(ctx context.Context) error {
	if p.none() {
		return errNoParty
	}
	if p.counted.Load() {
		return nil
	}
	p.numCountDowns.Add(1)
	a, err := p.l.ask(ctx, arriveScript, p.id, p.name, p.run)
	if err == nil {
		if err = p.l.ending(a.letter, p.name); err == nil {
			p.counted.Store(true)
		}
		p.end(err, nil)
	}
	if p.numCountDowns.Add(-1) == 0 && p.gone.Load() { // end does nothing if the party has ended above
		p.end(p.l.fail(ErrGone), nil)
	}
	return err
}

// Abandon ends the lease without counting. Each Wait then ends with a *[PartyDiedError]. After CountDown has
// returned nil, Abandon does nothing. If Abandon returns an error, the lease is no longer renewed, but may
// stay valid until it expires. Abandon blocks for one round trip.
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

// end ends the renewal and the context of the party. It returns false if an earlier call has done so. cause
// is the cause of the context; nil means that the party has counted. lost is the loss to log; nil means that
// nothing is logged.
func (p *Party) end(cause, lost error) bool {
	if !p.over.CompareAndSwap(false, true) {
		return false
	}
	p.l.s.Watchdog.Remove(&p.lease)
	p.cancel(cause)
	p.why <- lost
	return true
}

// leased has the methods of a party that the watchdog calls. It is a session.Lessee.
type leased struct{ *Party }

// LeaseKey returns the latch's key.
func (p leased) LeaseKey() string { return p.l.keys.LockKey() }

func (p leased) Renewal() (r *wire.Request, prolongs bool) {
	return p.l.keys.Request(renewScript, p.id, p.name, p.l.s.Args.Lease), true
}

// LeaseLost ends the party. If the deadline has not passed and a CountDown is in flight, that CountDown ends
// the party instead.
func (p leased) LeaseLost(deadlinePassed bool) {
	err := p.l.died(p.name)
	if !deadlinePassed {
		err = p.l.fail(ErrGone)
		// If a CountDown is in flight, it may have counted, and ends the party when it has returned.
		if p.gone.Store(true); p.numCountDowns.Load() > 0 {
			return
		}
	}
	p.end(err, err)
}

// RenewalFailed does nothing, because the renewal will be tried again.
func (p leased) RenewalFailed(error) {}
