package quorum

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Server is the same for all leases: a batch goes to all members.
func (q *Quorum) Server(session.Lessee) any { return nil }

// Renew keeps leases on all members, and returns when a majority has answered for each of them. What the others say is
// noted when it comes. A member that has lost a grant is asked to take it again once the outcome is decided: only then is
// it known that a majority without that member still holds it.
func (q *Quorum) Renew(ctx context.Context, _ any, leases []*watchdog.Lease) []watchdog.Result {
	start := time.Now()
	tenures := make([]*mutex.Tenure, len(leases))
	for i, l := range leases {
		tenures[i] = l.Owner.(*mutex.Tenure)
	}
	done := make(chan struct{}) // when this returns
	defer close(done)
	errs := make(chan error, len(q.members))
	for i := range q.members {
		q.s.Go(func() {
			gone, err := q.renewAt(ctx, i, tenures, start)
			errs <- err
			if gone != nil {
				<-done // by then it is known whether a majority holds it without this member
				q.join(i, gone, start)
			}
		})
	}
	err := errLate
	for n := 0; n < len(q.members); n++ {
		select {
		case e := <-errs:
			if e != nil {
				err = e
			}
		case <-ctx.Done():
			n = len(q.members) // what has come by now is all that counts
		}
		if !slices.ContainsFunc(tenures, func(t *mutex.Tenure) bool { return !roundOf(&t.Grant).renewed(start) }) { // all have their majority: the rest may come later
			break
		}
	}
	results := make([]watchdog.Result, len(tenures))
	for j, t := range tenures {
		b := roundOf(&t.Grant)
		switch deadline, before := b.deadline(), t.Deadline(); {
		case deadline.Before(before): // of those that carried it, some have lost it
			results[j].Gone = true
		case b.renewed(start): // which moves no deadline that Extend made a later one
			results[j].Deadline = deadline
		default:
			results[j].Err = q.noMajority(0, err)
		}
	}
	return results
}

// renewAt renews at one member, and returns what that does not have.
func (q *Quorum) renewAt(ctx context.Context, i int, tenures []*mutex.Tenure, start time.Time) (gone []*mutex.Tenure, failed error) {
	link := q.members[i].Link
	link.Batch(ctx, link.Entrance(), len(tenures), func(j int) (*wire.Script, wire.Request) {
		return tenures[j].Renewal()
	}, func(j int, reply string, err error) {
		roundOf(&tenures[j].Grant).kept(i, wire.Outcome{Reply: reply, Sent: start, Err: err}, q.s.Lease)
		if err != nil {
			failed = err
		} else if reply != "K" {
			gone = append(gone, tenures[j])
		}
	})
	return gone, failed
}

// join takes tenures at a member that does not have them, because it came back empty, or was not reached when they
// were granted. Else each restart of a server would leave them one fewer, until there is no majority.
func (q *Quorum) join(i int, tenures []*mutex.Tenure, start time.Time) {
	tenures = slices.DeleteFunc(tenures, func(t *mutex.Tenure) bool {
		t.Lock.Mu.Lock()
		defer t.Lock.Mu.Unlock()
		return t.State() != handover.Held || !roundOf(&t.Grant).mayJoin(i, start) // a release that comes from here on knows of the request to join
	})
	if len(tenures) == 0 {
		return
	}
	m, sent := q.members[i], time.Now() // the leases count from before the batch
	m.Link.Batch(q.s.Ctx, m.Link.Entrance(), len(tenures), func(j int) (*wire.Script, wire.Request) {
		t := tenures[j]
		t.Lock.Mu.Lock()
		last := t.LastToken() // passed on meanwhile, the tenure may use all tokens up to there
		t.Lock.Mu.Unlock()
		return t.Lock.Kind.Lock, (&ballot{roundOf(&t.Grant), i, last, joins}).Request(sent)
	}, func(j int, reply string, err error) {
		t := tenures[j]
		if errors.As(err, new(*protocol.ValueError)) {
			_ = q.dissent(m, t.Lock, err)
		}
		t.Lock.Mu.Lock()
		defer t.Lock.Mu.Unlock()
		roundOf(&t.Grant).joined(i, wire.Outcome{Reply: reply, Sent: sent, Err: err}, t.LastToken())
	})
}

// kept notes what a member said of a lease: by a renewal, an Extend or a nested Lock alike.
func (b *round) kept(i int, o wire.Outcome, lease time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.votes[i].renewed(o, lease)
}

// renewed reports whether a majority has been found held by requests that left at start or later.
func (b *round) renewed(start time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.renewedSince(start)
}

// renewedSince is renewed, with mu held.
func (b *round) renewedSince(start time.Time) bool {
	return !nth(b.votes, len(b.votes)-b.q.need, func(v *vote) time.Time { return v.kept }).Before(start)
}

// deadline is when the hold on a majority is no longer valid.
func (b *round) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until()
}

// until is deadline, with mu held.
func (b *round) until() time.Time {
	return nth(b.votes, len(b.votes)-b.q.need, func(v *vote) time.Time { return v.until })
}

// mayJoin allows a request to join, and notes it, or reports false. The grant may be taken at a member that has just said
// that it does not have it only if a majority without that one has been renewed since start. So it had the grant all the time, and no other attempt
// had a majority. From then on a copy of the request may arrive there, which a release must know. Lock.Mu held.
func (b *round) mayJoin(i int, start time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	if b.undecided(v) || !v.until.IsZero() || !b.renewedSince(start) {
		return false
	}
	v.asked, v.late = true, true
	b.welcome(i, time.Now())
	if v.Status == protocol.None {
		v.Status = failed
	}
	return true
}

// joinLease is the lease at a member that is joined: that of renewals, whatever the first holder has asked for. A shorter
// one would end the hold there before it ends elsewhere.
func (b *round) joinLease() time.Duration { return max(b.lease, b.q.s.Lease) }

// joined notes what a member said to that. A copy of an earlier such request may still be on its way. Lock.Mu held.
func (b *round) joined(i int, o wire.Outcome, last int64) {
	r, err := protocol.Read(o)
	if err != nil {
		return // it may have, or may yet: the next renewal tells
	}
	b.q.members[i].Clock.Heard(r.Now, o.Sent)
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	if r.Status != protocol.Granted || !b.until().After(time.Now()) {
		return
	}
	token, accepted := stored(r)
	v.Status = protocol.Granted
	if until := o.Sent.Add(protocol.Valid(b.joinLease())); until.After(v.until) { // a renewal that was sent later may have been answered already
		v.until = until
	}
	v.accepted = accepted || v.accepted && token == last
}
