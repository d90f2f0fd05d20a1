package latch

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Party has the lease of one count. Safe for concurrent use.
type Party struct {
	l      *Latch
	name   string
	run    string
	id     string
	all    *parties
	lease  watchdog.Lease // guarded by the watchdog
	cancel context.CancelCauseFunc

	mu      sync.Mutex // guards what follows; a leaf
	over    bool       // it is renewed no more
	counted bool
	asking  int   // CountDowns under way: what a renewal finds may be their doing
	gone    error // what a renewal found meanwhile
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
	b, done, err := l.begin(ctx)
	if err != nil {
		return ctx, nil, err
	}
	defer done()
	if party == "" || len(party) > protocol.MaxName || !utf8.ValidString(party) {
		err := fmt.Errorf("the name of a party is 1 to %d bytes of UTF-8: %.40q", protocol.MaxName, party)
		return ctx, nil, l.fail(err)
	}
	all, err := session.PartOf(l.s, partiesKey{}, func(*session.Session) *parties {
		return &parties{live: map[*Party]struct{}{}}
	})
	if err != nil {
		return ctx, nil, l.fail(err)
	}
	s := l.s
	r := &request{l: l, ctx: ctx, script: joinScript, argv: []any{l.channel, party, s.Args.Lease}, once: true,
		undo: func(r *request) { l.leave(r.id, party, r.notAfter) }}
	a, o, err := l.exchange(b, r)
	if err != nil {
		return ctx, nil, err
	}
	switch a.status {
	case 'J':
	case 'F':
		return ctx, nil, l.fail(ErrNoCount)
	case 'T':
		return ctx, nil, l.fail(ErrPartyExists)
	case 'X': // its lease ended before this was known
		return ctx, nil, &PartyDiedError{Name: l.keys.Name, Party: party}
	default:
		return ctx, nil, l.unexpected(a)
	}
	deadline := o.Sent.Add(protocol.Valid(s.Lease))
	if !time.Now().Before(deadline) { // in a process that stood still, say
		s.Go(func() { l.leave(r.id, party, r.notAfter) })
		return ctx, nil, &PartyDiedError{Name: l.keys.Name, Party: party}
	}
	p := &Party{l: l, name: party, run: a.rest, id: r.id, all: all}
	p.lease.Owner = leased{p}
	ctx, p.cancel = context.WithCancelCause(ctx)
	if !all.add(p) {
		l.leave(p.id, party, r.notAfter)
		p.cancel(failure.ErrClosed)
		return ctx, nil, l.fail(failure.ErrClosed)
	}
	s.Watchdog.Add(&p.lease, deadline, s.Lease/3)
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over { // Shutdown was faster
		s.Watchdog.Remove(&p.lease)
	}
	return ctx, p, nil
}

// leave has Redis forget a party that is not known to have joined. It tries for as long as the lease lasts.
func (l *Latch) leave(id, party string, notAfter int64) {
	if notAfter == 0 {
		return // the request was void
	}
	s := l.s
	copies := &request{l: l, script: leaveScript, argv: []any{id, party, l.channel, notAfter}}
	until := time.Now().Add(s.Lease)
	for try := 1; ; try++ {
		o := s.Link.Call(s.Ctx, leaveScript, copies, 1, nil)
		if o.Err == nil || !wire.Judge(o.Err).Unsettled() || time.Now().After(until) ||
			wakeup.Closed(s.Closing()) ||
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
	l := p.l
	b, done, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	p.mu.Lock()
	if p.counted {
		p.mu.Unlock()
		return nil
	}
	p.asking++
	p.mu.Unlock()
	a, err := l.ask(b, arriveScript, p.id, p.name, p.run, l.channel)
	final := err == nil
	if final {
		switch a.status {
		case 'C', 'Z':
		case 'D':
			err = l.fail(ErrDeleted)
		case 'G':
			err = l.fail(ErrGone)
		case 'P':
			err = p.died()
		default:
			final, err = false, l.unexpected(a)
		}
	}
	p.mu.Lock()
	p.asking--
	p.counted = p.counted || final && err == nil
	cause := err
	switch {
	case final:
	case p.asking == 0 && p.gone != nil: // the renewal has found an end, for a reason not known here
		final, cause = true, p.gone
	}
	p.mu.Unlock()
	if final {
		p.end(cause)
	}
	return err
}

// Abandon gives up: the lease ends now, and so does each Wait, with a *[PartyDiedError]. After CountDown has
// returned nil it does nothing. If it returns an error, the lease may run until its end, and is not renewed.
// It blocks for one round trip.
func (p *Party) Abandon(ctx context.Context) error {
	p.mu.Lock()
	counted := p.counted
	p.mu.Unlock()
	if counted {
		return nil
	}
	p.end(p.died())
	b, done, err := p.l.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = p.l.ask(b, leaveScript, p.id, p.name, p.l.channel, 0)
	return err
}

func (p *Party) died() error { return &PartyDiedError{Name: p.l.keys.Name, Party: p.name} }

// end ends the renewal and the context, and reports whether this call did. nil: it has counted.
func (p *Party) end(cause error) bool {
	p.mu.Lock()
	was := p.over
	p.over = true
	p.mu.Unlock()
	if was {
		return false
	}
	p.l.s.Watchdog.Remove(&p.lease)
	p.all.remove(p)
	p.cancel(cause)
	return true
}

// leased is a party as the watchdog sees it: a session.Lessee.
type leased struct{ *Party }

// LeaseKey is the latch's key.
func (p leased) LeaseKey() string { return p.l.key }

// Renewal is the request that renews the lease.
func (p leased) Renewal() (*wire.Script, wire.Request) {
	return renewScript, wire.NewRequest(renewScript, p.l.boxed, p.id, p.name, p.l.s.Args.Lease)
}

// LeaseLost ends the party.
func (p leased) LeaseLost(deadlinePassed bool) {
	err := p.died()
	if !deadlinePassed {
		err = p.l.fail(ErrGone)
	}
	p.mu.Lock()
	if p.asking > 0 && !deadlinePassed { // it may have counted just now, which its CountDown will know
		p.gone = err
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	s := p.l.s
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
	mu     sync.Mutex // guards what follows; a leaf
	live   map[*Party]struct{}
	closed bool
}

func (ps *parties) add(p *Party) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return false
	}
	ps.live[p] = struct{}{}
	return true
}

func (ps *parties) remove(p *Party) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	delete(ps.live, p)
}

// Shutdown abandons all, so that waiters need not wait for their leases.
func (ps *parties) Shutdown(ctx context.Context) error {
	ps.mu.Lock()
	ps.closed = true
	live := make([]*Party, 0, len(ps.live))
	for p := range ps.live {
		live = append(live, p)
	}
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
			r := &request{l: p.l, script: leaveScript, argv: []any{p.id, p.name, p.l.channel, 0}}
			if o := p.l.s.Link.Call(ctx, leaveScript, r, wire.Tries, nil); o.Err != nil {
				errs[i] = p.l.fail(o.Err)
			}
		})
	}
	wg.Wait()
	return failure.Join(errs...)
}
