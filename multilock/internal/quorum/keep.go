package quorum

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Server is the same for all leases: a batch goes to all members.
func (q *Quorum) Server(session.Lessee) any { return nil }

// Renew keeps leases on all members, and returns when a majority has answered for each of them, or with ctx.
// What members are asked goes on without it.
func (q *Quorum) Renew(ctx context.Context, _ any, leases []*watchdog.Lease) []watchdog.Result {
	start := time.Now()
	tenures := make([]*mutex.Tenure, len(leases))
	for i, l := range leases {
		tenures[i] = l.Owner.(*mutex.Tenure)
	}
	decided := make(chan struct{}) // closed when this returns
	defer close(decided)
	errs := make(chan error, len(q.members))
	for i := range q.members {
		q.s.Go(func() { q.keepAt(i, tenures, start, errs, decided) })
	}
	answered, failing := 0, []error(nil)
	for n := 0; n < len(q.members); n++ {
		select {
		case e := <-errs:
			if e != nil {
				failing = append(failing, e)
			} else {
				answered++
			}
		case <-ctx.Done():
			n = len(q.members) // what has come by now is all that counts
			failing = append(failing, errLate)
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
			results[j].Err = q.noMajority(answered, failing...)
		}
	}
	return results
}

// keepAt renews at one member, whatever the others answer, and takes there what that does not have. It says
// in first how the first request ended. What has failed is repeated at once, on another connection, and then
// with growing pauses, until the next renewal is due.
func (q *Quorum) keepAt(
	i int, tenures []*mutex.Tenure, start time.Time, first chan<- error, decided <-chan struct{},
) {
	ctx, cancel := context.WithDeadline(q.s.Ctx, start.Add(q.s.Lease/3))
	defer cancel()
	bounds := wakeup.Bounds{Until: ctx, Closing: q.s.Closing()}
	for try := 0; ; try++ {
		gone, failed, err := q.renewAt(ctx, i, tenures)
		if try == 0 && err != nil {
			first <- q.members[i].named(err)
		} else if try == 0 {
			first <- nil
		}
		if len(gone) > 0 {
			<-decided // by then it is known whether a majority holds it without this member
			gone = q.join(ctx, i, gone, start)
		}
		left := slices.DeleteFunc(slices.Concat(failed, gone), func(t *mutex.Tenure) bool { return !held(t) })
		ended := bounds.Over()
		if try > 0 && len(left) > 0 {
			_, ended = bounds.Sleep(wire.Backoff(try, 10*time.Millisecond, q.s.Lease/15), nil)
		}
		if ended || len(left) == 0 {
			q.missing(i, tenures, err)
			return
		}
		tenures = left
	}
}

// held reports whether it goes on. It takes Lock.Mu.
func held(t *mutex.Tenure) bool {
	t.Lock.Mu.Lock()
	defer t.Lock.Mu.Unlock()
	return t.State() == handover.Held
}

// renewAt renews at one member. gone is what that does not have, and failed what it may be asked for again.
func (q *Quorum) renewAt(
	ctx context.Context, i int, tenures []*mutex.Tenure,
) (gone, failed []*mutex.Tenure, last error) {
	link, sent := q.members[i].Link, time.Now()
	link.Batch(ctx, link.Entrance(), len(tenures), func(j int) (*wire.Script, wire.Request) {
		return tenures[j].Renewal()
	}, func(j int, reply string, err error) {
		roundOf(&tenures[j].Grant).kept(i, wire.Outcome{Reply: reply, Sent: sent, Err: err}, q.s.Lease)
		switch {
		case err != nil:
			last = err
			if wire.Judge(err).Transient {
				failed = append(failed, tenures[j])
			}
		case reply != "K":
			gone = append(gone, tenures[j])
		}
	})
	return gone, failed, last
}

// join takes tenures at a member that does not have them, because it came back empty, or was not reached when
// they were granted. Else each restart of a server would leave them one fewer, until there is no majority. It
// returns those that the member may be asked for again.
func (q *Quorum) join(
	ctx context.Context, i int, tenures []*mutex.Tenure, start time.Time,
) (again []*mutex.Tenure) {
	tenures = slices.DeleteFunc(tenures, func(t *mutex.Tenure) bool {
		t.Lock.Mu.Lock()
		defer t.Lock.Mu.Unlock()
		if t.State() != handover.Held {
			return true
		}
		may := roundOf(&t.Grant).mayJoin(i, start) // a release that comes from here on knows of the request to join
		if !may {
			again = append(again, t)
		}
		return !may
	})
	if len(tenures) == 0 {
		return again
	}
	m, sent := q.members[i], time.Now() // the leases count from before the batch
	m.Link.Batch(ctx, m.Link.Entrance(), len(tenures), func(j int) (*wire.Script, wire.Request) {
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
		if roundOf(&t.Grant).joined(i, wire.Outcome{Reply: reply, Sent: sent, Err: err}, t.LastToken()) {
			again = append(again, t)
		}
	})
	return again
}

// missing logs that a member does not have what a bare majority holds: one more that fails, and it is lost.
func (q *Quorum) missing(i int, tenures []*mutex.Tenure, err error) {
	for _, t := range tenures {
		if held(t) && roundOf(&t.Grant).bare(i) {
			q.members[i].warn(q.s, "a RedLock is held by a bare majority", t.Lock.Keys.Name, cmp.Or(err, errTaken))
			return
		}
	}
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

// joined notes what a member said to that, and reports whether it makes sense to ask again. A copy of an
// earlier such request may still be on its way. Lock.Mu held.
func (b *round) joined(i int, o wire.Outcome, last int64) (again bool) {
	r, err := protocol.Read(o)
	if err != nil {
		return wire.Judge(err).Transient // it may have, or may yet: the next renewal tells
	}
	b.q.members[i].Clock.Heard(r.Now, o.Sent)
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	if r.Status != protocol.Granted || !b.until().After(time.Now()) {
		return r.Status == protocol.Held // for a vote that another one is about to give back
	}
	token, accepted := stored(r)
	v.Status = protocol.Granted
	if until := o.Sent.Add(protocol.Valid(b.joinLease())); until.After(v.until) { // a renewal that was sent later may have been answered already
		v.until = until
	}
	v.accepted = accepted || v.accepted && token == last
	return false
}

// bare reports whether the i-th member does not have the grant, and one more that fails would end the hold.
func (b *round) bare(i int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.votes[i].until.After(time.Now()) {
		return false
	}
	held := 0
	for i := range b.votes {
		if b.votes[i].until.After(time.Now()) {
			held++
		}
	}
	return held <= b.q.need
}
