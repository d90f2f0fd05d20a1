package latch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Party has the lease of one count. Safe for concurrent use.
type Party struct {
	l       *Latch
	name    string
	run     string
	id      string
	all     *parties       // which has it until it has ended
	lease   watchdog.Lease // guarded by the watchdog
	cancel  context.CancelCauseFunc
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
	all, err := session.PartOf(s, partiesKey{}, func(*session.Session) *parties {
		return &parties{live: map[*Party]struct{}{}}
	})
	if err == nil && !s.Begin() {
		err = failure.ErrClosed
	}
	if err != nil {
		return ctx, nil, l.fail(err)
	}
	defer s.End()
	r := &request{l: l, ctx: ctx, script: joinScript, id: s.Attempt(), argv: []any{party, s.Args.Lease}}
	r.undo = func() { l.leave(r.id, party, r.notAfter) }
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
	}
	p := &Party{l: l, name: party, run: a.rest, id: r.id, all: all}
	p.lease.Owner = leased{p}
	below, cancel := context.WithCancelCause(ctx)
	p.cancel = cancel
	if !all.add(p, a.sent.Add(protocol.Valid(s.Lease))) {
		r.undo()
		cancel(failure.ErrClosed)
		return ctx, nil, l.fail(failure.ErrClosed)
	}
	return below, p, nil
}

// leave has Redis forget a party that is not known to have joined. It tries for as long as the lease lasts.
func (l *Latch) leave(id, party string, notAfter int64) {
	if notAfter == 0 {
		return // the request was void
	}
	s := l.s
	copies := &request{l: l, argv: []any{id, party, notAfter}, script: leaveScript}
	until := time.Now().Add(s.Lease)
	for try := 1; ; try++ {
		o := s.Link.Call(s.Ctx, copies, 1, nil)
		if o.Err == nil || !wire.Judge(o.Err).Unsettled() || time.Now().After(until) ||
			wire.Closed(s.Closing()) ||
			!wire.Pause(s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// Name is the party's.
func (p *Party) Name() string { return p.name }

// CountDown counts down by the count that was leased, and ends the lease. It counts once, however often it is
// called: after an error it can be called again. It returns nil if the party has counted, or if the run has
// ended at 0 without it. If the lease has ended, it returns a *[PartyDiedError] and has not counted. Other
// errors are [ErrDeleted] and [ErrGone]. After any other error it may have counted, and the lease is renewed
// on. It blocks for one round trip.
func (p *Party) CountDown(ctx context.Context) error {
	if p.counted.Load() {
		return nil
	}
	p.asking.Add(1)
	a, err := p.l.ask(ctx, arriveScript, p.id, p.name, p.run)
	if err == nil {
		if err = p.l.ending(a.letter, p.name); err == nil {
			p.counted.Store(true)
		}
		p.end(err)
	}
	if p.asking.Add(-1) == 0 && p.gone.Load() { // for a reason not known here, if it has not ended above
		p.end(p.l.fail(ErrGone))
	}
	return err
}

// Abandon gives up: the lease ends now, and so does each Wait, with a *[PartyDiedError]. After CountDown has
// returned nil it does nothing. If it returns an error, the lease may run until its end, and is not renewed.
// It blocks for one round trip.
func (p *Party) Abandon(ctx context.Context) error {
	if p.counted.Load() {
		return nil
	}
	p.end(p.l.died(p.name))
	_, err := p.l.ask(ctx, leaveScript, p.id, p.name, 0)
	return err
}

// end ends the renewal and the context, and reports whether this call did. nil: it has counted.
func (p *Party) end(cause error) bool {
	p.all.mu.Lock()
	_, live := p.all.live[p]
	delete(p.all.live, p)
	p.l.s.Watchdog.Remove(&p.lease)
	p.all.mu.Unlock()
	if live {
		p.cancel(cause)
	}
	return live
}

// leased is a party as the watchdog sees it: a session.Lessee.
type leased struct{ *Party }

// LeaseKey is the latch's key.
func (p leased) LeaseKey() string { return p.l.keys.LockKey() }

// Renewal is the request that renews the lease.
func (p leased) Renewal() *wire.Request {
	return p.l.keys.Request(renewScript, p.id, p.name, p.l.s.Args.Lease)
}

// LeaseLost ends the party.
func (p leased) LeaseLost(deadlinePassed bool) {
	err, s := p.l.died(p.name), p.l.s
	if !deadlinePassed {
		err = p.l.fail(ErrGone)
		if p.gone.Store(true); p.asking.Load() > 0 { // it may have counted, as its CountDown will know
			return
		}
	}
	if p.end(err) && s.Begin() {
		go func() { // many may be lost at one instant
			defer s.End()
			s.Warn("a party of a latch has lost its lease before it counted",
				"latch", p.l.keys.Name, "party", p.name, "reason", err)
		}()
	}
}

// RenewalFailed does nothing: the renewal will be tried again.
func (p leased) RenewalFailed(error) {}

type partiesKey struct{}

// parties are those of a session. They are a session.Part.
type parties struct {
	mu   sync.Mutex // guards live; only the watchdog's is taken below it
	live map[*Party]struct{}
}

// add has a party renewed until it ends. It reports false if the session closes.
func (ps *parties) add(p *Party, deadline time.Time) bool {
	s := p.l.s
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if wire.Closed(s.Closing()) { // which it is before Shutdown
		return false
	}
	ps.live[p] = struct{}{}
	return s.Watchdog.Add(&p.lease, deadline, s.Lease/3)
}

// Shutdown abandons all, so that waiters need not wait for their leases.
func (ps *parties) Shutdown(ctx context.Context) error {
	ps.mu.Lock()
	live := slices.Collect(maps.Keys(ps.live))
	ps.mu.Unlock()
	errs := make([]error, len(live))
	var wg sync.WaitGroup
	limit := make(chan struct{}, 16) // requests at once
	for i, p := range live {
		p.end(p.l.fail(failure.ErrClosed))
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			if ctx.Err() != nil {
				return // Shutdown says so
			}
			r := &request{l: p.l, argv: []any{p.id, p.name, 0}, script: leaveScript}
			if o := p.l.s.Link.Call(ctx, r, wire.Tries, nil); o.Err != nil {
				errs[i] = p.l.keys.Failed(noun, o.Err)
			}
		})
	}
	wg.Wait()
	return failure.Join(errs...)
}
