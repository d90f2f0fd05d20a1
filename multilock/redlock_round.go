package multilock

import (
	"context"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
)

// settleTime is the least time for which a round that has a majority waits for the other servers, which
// mostly answer at the same time. With all parts of an odd number of servers the token is safe, and a part
// that comes later has to be confirmed.
const settleTime = 2 * time.Millisecond

// A round sends a request for the lock to all servers at once, and makes a majority of the grants. It belongs
// to the goroutine of its call.
type round struct {
	*poll[*engine.Entry] // its values are the parts
	c                    *lockCall
	m                    *majority
}

// round returns when a majority has granted, or cannot any more. In the first case, grants that come later
// join the hold, and otherwise they are released. A try is refused where others have the lock. Otherwise
// the round waits in the servers' queues.
//
// The round does not wait for slow servers forever. Its limit is
//   - the server timeout, if it is a try, or if a minority has granted, which keeps other holders out
//   - the server timeout, if servers have failed and it is not known yet why there is no majority (explained)
//   - as long again as the round has taken, once its result is known
func (c *lockCall) round(try bool) (*entry, error) {
	q, cfg := c.q, c.cfg
	if end, bounded := c.bounds.Until.Deadline(); bounded {
		// This is no deadline of the parts' context, because parts outlive the call. It is a little later
		// than the deadline of the call, which otherwise could end with the errors of the parts.
		cfg.Bounded, cfg.Wait = true, max(time.Until(end), 0)+settleTime
	}
	m := &majority{l: c.l, q: q, local: c.local, note: cfg.Note}
	m.ctx, m.stop = context.WithCancel(c.values)
	r := &round{c: c, m: m}
	r.poll = ask(q, q.tally(pending), func(i int) (*engine.Entry, error) {
		return m.acquirePart(i, cfg, try)
	})
	start, decided, explaining := time.Now(), false, false
	c.roundAt = start
	limit := time.NewTimer(q.timeout)
	defer limit.Stop()
	if !try {
		limit.Stop() // until a minority is granted, which keeps no other holder out for long
	}
	for {
		select {
		case a := <-r.answers:
			r.take(a)
			if r.votes[a.i].kind == granted && r.votes.count(granted) == 1 && !try {
				start = time.Now() // now the wait for the other servers begins
				limit.Reset(q.timeout)
			}
		case <-limit.C:
			if !r.votes.won() && !try {
				return r.fail(errMinority)
			}
			return r.finish()
		case <-c.bounds.Until.Done():
			return r.fail(nil)
		}
		switch {
		case r.votes.open(): // too early to say
		case r.pendingFail():
			return r.finish()
		case !r.votes.won() && !r.votes.explained():
			if !explaining && !try {
				limit.Reset(q.timeout) // for a try it counts from the beginning
			}
			explaining = true
		case !decided:
			decided = true
			limit.Reset(min(q.timeout, max(settleTime, time.Since(start))))
		}
	}
}

// pendingFail reports whether every server that has not answered is known to be failing.
func (r *round) pendingFail() bool {
	answers := func(i int) bool { return r.q.servers[i].trouble() == nil }
	return !slices.ContainsFunc(r.votes.servers(pending), answers)
}

// finish makes a hold of a majority, once its token is safe.
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
			m.checkPart(i) // the part may be lost by now
		case pending:
		default:
			m.rejoin(i, r.q.timeout, "")
		}
	}
	r.collectLate()
	return e, nil
}

// makeSafe makes a majority of the servers grant only tokens above this one, and reports whether it did. A
// grant that is not below the token has stored it. If too few grants have, makeSafe sends the token to all
// other servers with a grant, since a server may forget, and waits until enough have answered.
func (r *round) makeSafe(token int64) bool {
	stored := r.votes.below(token)
	low := stored.servers(pending)
	if !stored.won() {
		storing := ask(r.q, stored, func(i int) (none struct{}, _ error) {
			return none, store(r.c.values, r.values[i], token)
		})
		until, cancel := context.WithTimeout(r.c.bounds.Until, r.q.timeout)
		defer cancel()
		storing.await(until, stored.won)
	}
	for _, i := range low {
		r.values[i].Reserve(token) // with the next request for the part
	}
	return stored.won()
}

// store makes the server of a part grant no later holder this token or one below, and waits for the reply.
// After an error, the server may have stored the token or not, and the part stays held.
func store(ctx context.Context, part *engine.Entry, token int64) error {
	part.Reserve(token)
	return part.Extend(ctx, 0)
}

// collectLate makes parts that are granted from now on join the hold. Without a hold, they are released.
func (r *round) collectLate() {
	m, late := r.m, r.votes.count(pending)
	if late == 0 {
		return
	}
	r.q.home.Go(func() {
		for range late {
			a := <-r.answers
			if a.err != nil || m.ctx.Err() != nil {
				r.q.giveBack(a.value)
				m.rejoin(a.i, r.q.timeout, "")
			} else if !m.addPart(a.i, a.value) {
				m.rejoin(a.i, 0, "")
			}
		}
	})
}

// fail releases all parts, even parts that are granted later. It returns the reason why there is no majority.
// If reason is nil, it is found from the votes.
func (r *round) fail(reason error) (*entry, error) {
	r.m.stop()
	r.q.giveBack(r.values...)
	// Nothing should be granted after the call has returned. And servers that have not answered know the
	// holder. That may be this quorum itself, if two sessions lead to one server.
	if r.c.bounds.Over() || reason == errMinority {
		until, cancel := context.WithTimeout(context.Background(), call.LeavingTime)
		defer cancel()
		for r.votes.count(pending) > 0 && until.Err() == nil {
			select {
			case a := <-r.answers:
				r.take(a)
				r.q.giveBack(a.value)
			case <-until.Done():
			}
		}
	}
	err := r.c.roundError(r, reason)
	r.collectLate()
	return nil, err
}
