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

// A Party has leased one count of a run, see [Latch.Join]. It is safe for concurrent use. On a nil Party,
// every method that can return an error returns one.
type Party struct {
	l       *Latch
	name    string
	run     string
	id      string
	lease   watchdog.Lease // guarded by the watchdog
	cancel  context.CancelCauseFunc
	over    atomic.Bool
	why     chan error // gets the error to log, or nil, when the party ends
	counted atomic.Bool
	gone    atomic.Bool // a renewal found that Redis has no lease of the party

	// While a CountDown is running, a renewal may find no lease because that CountDown has counted.
	numCountDowns atomic.Int32 // number of CountDown calls that are running
}

// Join leases one count of the current run to a party. The lease lasts for the session's watchdog timeout (15
// s by default). The session renews the lease until [Party.CountDown] has counted, or [Party.Abandon] is
// called. So make sure that one of them is called, for example by a deferred Abandon:
//
//	work, party, err := l.Join(ctx, "worker 7")
//	if err != nil {
//		return err
//	}
//	defer party.Abandon(context.WithoutCancel(ctx)) // does nothing after CountDown
//
// The context that Join returns ends with ctx, and also when the party ends. The end of ctx does not end the
// lease. If the party ends before it has counted, the cause of the context matches
//   - [ErrPartyDied], if the lease has ended, or after Abandon;
//   - [ErrGone], if Redis does not have the lease any more. Usually the run has ended. But the run continues
//     if the lease has ended in Redis earlier than here, because the clock of Redis was set forward, or this
//     machine was suspended. Then CountDown returns a *[PartyDiedError];
//   - [ErrDeleted], if CountDown finds that the run was deleted;
//   - [rlock.ErrClosed], if the session is closed.
//
// The name of a party has 1 to 512 bytes of UTF-8. If another party of this name has a lease, Join returns
// [ErrPartyExists]. If a party of this name has died, Join takes over the count of that party. Join returns
// [ErrNoCount] if there is no run, or if each remaining count belongs to another party, which may have died.
// The lease can end before the reply arrives. Join then returns a *[PartyDiedError] if Redis has reported the
// end, and otherwise a context that ends at once. After any other error, the party has not joined, or leaves
// again in the background. If it had taken over the count of a dead party, calls of Wait then return a
// *[PartyDiedError] again. They also return this error if the lease ends before the session can reach Redis.
// Join usually blocks for one round trip.
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

// attend waits until the party has ended, or the session closes. It logs the loss of a lease. When the
// session closes, attend ends the party in this process and in Redis, so that waiters need not wait until the
// lease expires.
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

// leave ends the lease of a party in Redis, by latch/leave.lua, whose header describes the arguments. In an
// outage, leave tries again for the time of one lease.
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

// none reports whether p is nil or a zero Party.
func (p *Party) none() bool { return p == nil || p.l == nil }

// Name returns the party's name. It returns "" for a nil Party.
func (p *Party) Name() string {
	if p.none() {
		return ""
	}
	return p.name
}

// CountDown lowers the count of the run by one, and ends the lease. The party counts only once, so CountDown
// can be called again after an error. CountDown returns
//   - nil, if the party has counted by this call or an earlier one. It also returns nil if the run has ended
//     at 0 although the party has not counted;
//   - a *[PartyDiedError], if the lease had ended before the party counted;
//   - [ErrDeleted], if the run was deleted;
//   - [ErrGone], if Redis does not know the run any more;
//   - otherwise another error, after which the party may have counted. If the party has not counted, the
//     session continues to renew the lease, unless the session is closed.
//
// CountDown usually blocks for one round trip.
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

// Abandon ends the lease, although the party has not counted. Each call of Wait then returns a
// *[PartyDiedError]. After CountDown has returned nil, Abandon does nothing. After an error, the session does
// not renew the lease any more, but the lease may stay valid until it expires. Abandon usually blocks for one
// round trip.
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

// end ends the party in this process. It stops the renewal of the lease, and cancels the context. It sends no
// request. It returns false if an earlier call has already ended the party. cause becomes the cause of the
// context, and is nil if the party has counted. lost is the error that attend logs. If lost is nil, attend
// logs nothing.
func (p *Party) end(cause, lost error) bool {
	if !p.over.CompareAndSwap(false, true) {
		return false
	}
	p.l.s.Watchdog.Remove(&p.lease)
	p.cancel(cause)
	p.why <- lost
	return true
}

// leased is the Party as a session.Lessee. It has the methods that the watchdog calls, which users of a Party
// do not see.
type leased struct{ *Party }

// LeaseKey returns the latch's key.
func (p leased) LeaseKey() string { return p.l.keys.LockKey() }

func (p leased) Renewal() (r *wire.Request, prolongs bool) {
	return p.l.keys.Request(renewScript, p.id, p.name, p.l.s.Args.Lease), true
}

// LeaseLost ends the party. But if the deadline has not passed and a CountDown is running, that CountDown
// ends the party when it returns.
func (p leased) LeaseLost(deadlinePassed bool) {
	err := p.l.died(p.name)
	if !deadlinePassed {
		err = p.l.fail(ErrGone)
		// Redis may have no lease because a CountDown that is running has counted.
		if p.gone.Store(true); p.numCountDowns.Load() > 0 {
			return
		}
	}
	p.end(err, err)
}

// RenewalFailed does nothing, because the watchdog tries the renewal again.
func (p leased) RenewalFailed(error) {}
