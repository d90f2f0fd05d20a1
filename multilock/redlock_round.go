package multilock

import (
	"context"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
)

// settleTime is the shortest time for which a round that has a majority waits for the other servers, unless
// they are known to fail. Usually all servers answer at about the same time, and waiting for them saves
// requests. If all of an odd number of servers grant, the token is safe without a further request. In
// contrast, a part that is granted later needs requests that confirm the hold.
const settleTime = 2 * time.Millisecond

// A round sends a request for the lock to all servers at once. If a majority of the servers grants, the round
// makes the hold from these grants (see type majority). It has no mutex, because only the goroutine of its
// call changes its votes.
type round struct {
	*poll[*engine.Entry] // poll.values has the parts
	c                    *lockCall
	m                    *majority
}

// round makes one round. If try is true, servers on which others have the lock refuse. Otherwise, the round
// waits in the queues of these servers.
//
// A round is decided when a majority has granted the lock, or when the votes explain why there will be no
// majority (tally.explained). After that, the round waits a little for the servers that have not answered.
// But it ends as soon as its time limit has passed, or the wait of the call has ended. Once a majority has
// granted, or no majority is possible any more, it also ends as soon as all servers that have not answered
// are known to fail. Grants that arrive later join the hold if there is one, and are released if there is
// none.
//
// The time limit of a round is
//   - for a try, the server timeout, counted from the beginning of the round;
//   - for any other round, the server timeout, counted from the first grant, because a minority of grants
//     keeps other holders out. Before the first grant, there is no limit;
//   - for any other round in which no majority is possible any more, but the votes do not explain this yet,
//     the server timeout, counted from then on;
//   - for a decided round, as long again as the round has waited, but at least settleTime, and at most the
//     server timeout. A round that is not a try counts this wait from the first grant, if there is one.
//
// A round without a majority also ends when an outage has lasted for too long (endures).
func (c *lockCall) round(try bool) (*entry, error) {
	q, cfg := c.q, c.partConfig()
	m := &majority{l: c.l, q: q, local: c.local, note: cfg.Note, announced: make(chan struct{})}
	m.ctx, m.stop = context.WithCancel(c.values)
	r := &round{c: c, m: m}
	r.poll = startPoll(q, q.tally(pending), func(i int) (*engine.Entry, error) {
		return m.acquirePart(i, cfg, try)
	})
	start, decided, explaining := time.Now(), false, false
	limit := time.NewTimer(q.timeout)
	defer limit.Stop()
	if !try {
		limit.Stop() // the first grant starts the timer, so that a minority does not keep others out for long
	}
	outageCheck := c.newOutageCheck()
	defer outageCheck.Stop()
	for {
		select {
		case a := <-r.answers:
			r.take(a)
			if r.isFirstGrant(a.i) && !try {
				start = time.Now() // now the wait for the other servers begins
				limit.Reset(q.timeout)
			}
		case <-limit.C:
			if !r.votes.won() && !try {
				return r.fail(errMinority)
			}
			return r.finish()
		case <-outageCheck.C:
			if !r.votes.won() && c.checkOutage() != nil {
				return r.fail(nil)
			}
		case <-c.bounds.Until.Done():
			return r.fail(nil)
		}
		switch {
		case r.votes.open(): // wait for more votes
		case r.pendingFail():
			return r.finish()
		case !r.votes.won() && !r.votes.explained():
			if !explaining && !try {
				limit.Reset(q.timeout) // the limit of a try runs from its beginning
			}
			explaining = true
		case !decided:
			decided = true
			limit.Reset(min(q.timeout, max(settleTime, time.Since(start))))
		}
	}
}

// partConfig returns the options with which the parts are acquired. If the call has a deadline, the option
// WaitAtMost bounds the waits for the parts. The context of the parts cannot bound these waits, because parts
// outlive the call. The waits for the parts end a little later than the wait of the call, because otherwise
// the call could end with errors of the parts instead of its own error.
func (c *lockCall) partConfig() engine.Config {
	cfg := c.cfg
	if end, bounded := c.bounds.Until.Deadline(); bounded {
		cfg.Bounded, cfg.Wait = true, max(time.Until(end), 0)+settleTime
	}
	return cfg
}

// isFirstGrant reports whether the i-th server, whose vote was just counted, is the first that has granted
// its part.
func (r *round) isFirstGrant(i int) bool {
	return r.votes[i].kind == granted && r.votes.count(granted) == 1
}

// pendingFail reports whether every server that has not answered is known to be failing.
func (r *round) pendingFail() bool {
	answers := func(i int) bool { return r.q.servers[i].trouble() == nil }
	return !slices.ContainsFunc(r.votes.servers(pending), answers)
}

// finish ends the round. If a majority has granted, finish makes a majority store the token (makeSafe), and
// returns the entry of the new hold. If there is no majority, if the token could not be stored, or if the
// majority is lost meanwhile, finish fails the round.
func (r *round) finish() (*entry, error) {
	if !r.votes.won() {
		return r.fail(nil)
	}
	for _, i := range r.votes.servers(granted) {
		r.votes[i].token = r.values[i].Token()
	}
	m, token := r.m, r.votes.token()
	if !r.makeSafe(token) {
		return r.fail(errToken)
	}
	e := m.become(r.c, r.values, token)
	if e == nil {
		return r.fail(engine.ErrTooLate)
	}
	for i, v := range r.votes {
		switch v.kind {
		case granted:
			m.checkPart(i) // the part may have been lost before the hold began
		case pending:
		default:
			m.rejoin(i, r.q.timeout, nil)
		}
	}
	r.collectLate()
	return e, nil
}

// makeSafe makes a majority of the servers grant only tokens above this token later, and reports whether that
// has succeeded. A server has stored the token already if its grant has this token or a higher one. If too
// few servers have stored it, makeSafe sends the token to all other servers with a grant, and waits until
// enough of them have answered. It sends the token to more servers than necessary, because a server may
// forget the token.
func (r *round) makeSafe(token int64) bool {
	stored := r.votes.stored(token)
	low := stored.servers(pending)
	if !stored.won() {
		storing := startPoll(r.q, stored, func(i int) (none struct{}, _ error) {
			return none, store(r.c.values, r.values[i], token)
		})
		until, cancel := context.WithTimeout(r.c.bounds.Until, r.q.timeout)
		defer cancel()
		storing.await(until, stored.won)
	}
	for _, i := range low {
		r.values[i].Reserve(token) // the next request for the part stores the token
	}
	return stored.won()
}

// store makes the server of a part grant later holders only tokens above this token, and waits for the reply.
// After an error, it is not known whether the server has stored the token, and the part stays held.
func store(ctx context.Context, part *engine.Entry, token int64) error {
	part.Reserve(token)
	return part.Extend(ctx, 0)
}

// collectLate waits, in the background, for the servers that have not answered. If there is a hold, parts
// that these servers grant join the hold. If a server returns an error, or its part cannot join, rejoin
// acquires the part. If there is no hold, collectLate releases the parts.
func (r *round) collectLate() {
	m, late := r.m, r.votes.count(pending)
	if late == 0 {
		return
	}
	for range late { // each in its own goroutine, because addPart waits for servers, which may not answer
		r.q.home.Go(func() {
			a := <-r.answers
			if a.err != nil || m.ctx.Err() != nil {
				r.q.unlockInBackground(a.value)
				m.rejoin(a.i, r.q.timeout, nil)
			} else if !m.addPart(a.i, a.value) {
				m.rejoin(a.i, 0, nil)
			}
		})
	}
}

// fail releases all parts, even parts that are granted later, and returns an error that says why there is no
// hold. For reason, see roundError.
func (r *round) fail(reason error) (*entry, error) {
	r.m.stop()
	r.q.unlockInBackground(r.values...)
	// Wait a moment for the missing answers, because nothing should be granted after the call has returned.
	// Also, a missing answer may name the holder. If that holder is this quorum itself, two of its sessions
	// lead to one server.
	if r.c.bounds.Over() || reason == errMinority {
		until, cancel := context.WithTimeout(context.Background(), call.LeavingTime)
		defer cancel()
		for r.votes.count(pending) > 0 && until.Err() == nil {
			select {
			case a := <-r.answers:
				r.take(a)
				r.q.unlockInBackground(a.value)
			case <-until.Done():
			}
		}
	}
	err := r.c.roundError(r, reason)
	r.collectLate()
	return nil, err
}
