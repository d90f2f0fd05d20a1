package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// renew keeps leases on all members, and returns when a majority has answered for each of them.
func (q *quorum) renew(ctx context.Context, leases []*watchdog.Lease) []watchdog.Result {
	start := time.Now()
	streaks := make([]*streak, len(leases))
	for i, l := range leases {
		streaks[i] = streakOf(l)
	}
	decided := make(chan struct{}) // when this returns
	defer close(decided)
	errs := make(chan error, len(q.members))
	for i, m := range q.members {
		q.s.work.Add(1)
		go func() {
			defer q.s.end()
			var failed error
			var gone []*streak
			m.link.Batch(ctx, m.link.Entrance(), len(streaks), func(j int) (*wire.Script, wire.Request) {
				st := streaks[j]
				st.lock.mu.Lock()
				defer st.lock.mu.Unlock()
				return protocol.Keep, st.keepRequest(q.s.renew)
			}, func(j int, reply string, err error) {
				streaks[j].ballot.kept(i, wire.Outcome{Reply: reply, Sent: start, Err: err}, q.s.Lease)
				if err != nil {
					failed = err
				} else if reply != "K" {
					gone = append(gone, streaks[j])
				}
			})
			errs <- failed
			if gone != nil {
				<-decided
				q.join(i, gone, start)
			}
		}()
	}
	err := errLate
	for n := 0; n < len(q.members); n++ {
		select {
		case e := <-errs:
			if e != nil {
				err = e
			}
		case <-ctx.Done():
			n = len(q.members)
		}
		if !slices.ContainsFunc(streaks, func(st *streak) bool { return !st.ballot.renewed(start) }) {
			break
		}
	}
	results := make([]watchdog.Result, len(streaks))
	for j, st := range streaks {
		switch deadline, before := st.ballot.deadline(), st.deadline(); {
		case deadline.Before(before): // of those that carried it, some have lost it
			results[j].Gone = true
		case st.ballot.renewed(start): // which moves no deadline that Extend made a later one
			results[j].Deadline = deadline
		default:
			results[j].Err = q.noMajority(0, err)
		}
	}
	return results
}

// join takes streaks at a member that does not have them, because it came back empty, or was not reached when they
// were granted: else each restart of a server would leave them one fewer, until there is no majority.
func (q *quorum) join(i int, streaks []*streak, start time.Time) {
	streaks = slices.DeleteFunc(streaks, func(st *streak) bool {
		st.lock.mu.Lock()
		defer st.lock.mu.Unlock()
		return st.state != held || !st.ballot.mayJoin(i, start) // a release that comes from here on leaves a mark
	})
	if len(streaks) == 0 {
		return
	}
	m, sent := q.members[i], time.Now()
	m.link.Batch(q.s.ctx, m.link.Entrance(), len(streaks), func(j int) (*wire.Script, wire.Request) {
		st := streaks[j]
		return st.lock.p.Lock, (&poll{st.ballot, i, st.last, "1"}).Request(sent)
	}, func(j int, reply string, err error) {
		st := streaks[j]
		if errors.As(err, new(*valueError)) {
			_ = q.dissent(m, st.lock, err)
		}
		st.lock.mu.Lock()
		defer st.lock.mu.Unlock()
		st.ballot.joined(i, wire.Outcome{Reply: reply, Sent: sent, Err: err}, st.last)
	})
}

// kept notes what a member said of a lease.
func (b *ballot) kept(i int, o wire.Outcome, lease time.Duration) {
	if o.Err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.seats[i]
	switch until := o.Sent.Add(valid(lease)); {
	case o.Reply != "K":
		s.until, s.kept = time.Time{}, time.Time{}
		if o.Sent.After(s.gone) {
			s.gone = o.Sent
		}
		return
	case o.Sent.Before(s.gone): // the answer may be of before it was gone
		return
	case lease > 0 && until.After(s.until):
		s.until = until
	}
	if o.Sent.After(s.kept) {
		s.kept = o.Sent
	}
}

// renewed reports whether a majority has been found held by requests that left at start or later.
func (b *ballot) renewed(start time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.renewedSince(start)
}

// renewedSince is renewed, with mu held.
func (b *ballot) renewedSince(start time.Time) bool {
	return !b.nth(len(b.seats)-b.q.need, func(s *seat) time.Time { return s.kept }).Before(start)
}

// deadline is when the hold on a majority is no longer valid.
func (b *ballot) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.until()
}

// until is deadline, with mu held.
func (b *ballot) until() time.Time {
	return b.nth(len(b.seats)-b.q.need, func(s *seat) time.Time { return s.until })
}

// nth is the time that n of the seats come before. mu held.
func (b *ballot) nth(n int, of func(*seat) time.Time) time.Time {
	times := make([]time.Time, len(b.seats))
	for i := range b.seats {
		times[i] = of(&b.seats[i])
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[n]
}

// mayJoin reports whether the grant may be taken at a member that has just said that it does not have it: only if a
// majority without that one has been renewed since start. So it had the grant all the time, and nobody else
// had a majority. From then on a copy of the request may arrive there, which a release must know. lock.mu held.
func (b *ballot) mayJoin(i int, start time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.seats[i]
	if b.undecided(s) || !s.until.IsZero() || !b.renewedSince(start) {
		return false
	}
	s.asked, s.late = true, true
	b.welcome(i, time.Now())
	if s.vote == 0 {
		s.vote = 'E'
	}
	return true
}

// joined notes what a member said to that. A copy of an earlier such request may still be on its way. lock.mu held.
func (b *ballot) joined(i int, o wire.Outcome, last int64) {
	r, ok := parse(o.Reply)
	if o.Err != nil || !ok {
		return // it may have, or may yet: the next renewal tells
	}
	b.q.members[i].clock.Heard(r.now, o.Sent)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.seats[i]
	if r.status != 'G' || !b.until().After(time.Now()) {
		return
	}
	stored, accepted, _ := strings.Cut(r.token, " ")
	s.vote, s.until = 'G', o.Sent.Add(valid(b.lease))
	s.accepted = accepted == "+" || s.accepted && stored == itoa(last)
}
