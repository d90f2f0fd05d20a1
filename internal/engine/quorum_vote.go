package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// ballot is one attempt at a majority: what is known of it at each member.
type ballot struct {
	q        *quorum
	l        *lock
	grant    grant     // its token is the one that was proposed first
	start    time.Time // before the first request was sent
	lease    time.Duration
	proposal int64
	decided  atomic.Bool // no vote is sent again

	mu      sync.Mutex // guards what follows, but for seat.asked; a leaf
	seats   []seat     // by member
	missing int        // votes that are not in yet
	timer   *time.Timer
	overdue bool          // the time for answers is over
	ready   chan struct{} // closed when it is decided, and then told
	told    bool
	later   []*errand     // for those that have not voted yet
	took    time.Duration // until it was decided
	split   bool          // it was lost, and nobody has won
}

// seat is one member's part of a ballot.
type seat struct {
	asked    bool // never changed after the first request
	vote     byte // status of the answer; 0: none yet
	err      error
	accepted bool      // the proposal is stored there
	stored   int64     // a token in the way that was heard of there
	notAfter int64     // of the last copy sent
	late     bool      // a copy may still arrive
	until    time.Time // believed to be held until then
	kept     time.Time // when the last request left that found it held; zero if one did not since
	gone     time.Time // when the last request left that did not
	answer             // who holds it, if another does
	free     time.Time // when nobody else holds it, as far as is known
}

// mayHold: the attempt may have been granted there. mu held.
func (s *seat) mayHold() bool { return s.asked && (s.vote == 0 || s.vote == 'G' || s.late) }

func ballotOf(c wire.Copier) *ballot {
	switch c := c.(type) {
	case *release:
		return c.ballot
	case *telling:
		return c.st.ballot
	}
	return nil
}

// undecided: its vote is not in, and in time yet. mu held.
func (b *ballot) undecided(s *seat) bool { return s.asked && s.vote == 0 && !b.overdue }

// poll is the request for one member's vote.
type poll struct {
	b    *ballot
	i    int
	last int64  // the block's end
	join string // "1": the vote is won already, without this member; else "0"
}

func (v *poll) Request(now time.Time) wire.Request {
	b, s := v.b, v.b.q.s
	seat := &b.seats[v.i]
	b.mu.Lock()
	if v.join == "0" { // else mayJoin has, so that a release knows it
		b.welcome(v.i, now)
	}
	notAfter := seat.notAfter
	b.mu.Unlock()
	return b.l.keys.request(b.l.p.Lock, b.grant.owner, b.lease.Milliseconds(), notAfter, s.about, s.memory, b.grant.token, v.last, b.l.keys.channel, v.join)
}

// welcome bounds the time until which a copy of the request that is made now may still arrive at a member. mu held.
func (b *ballot) welcome(i int, now time.Time) {
	if t := b.q.members[i].clock.Now(now); t != 0 {
		b.seats[i].notAfter = max(b.seats[i].notAfter, t+patience(b.lease).Microseconds())
	}
}

// ask votes. Where too few answer in time it does so again, as often as a request is sent to one server.
func (q *quorum) ask(a *acquisition, left *atomic.Bool) wire.Outcome {
	for try := 1; ; try++ {
		o := q.vote(a)
		if o.Err == nil || !wire.Judge(o.Err).Transient || try >= wire.Tries || left.Load() || isClosed(q.s.closing) || !wire.Pause(q.s.ctx, wire.Backoff(try, 4*time.Millisecond, 64*time.Millisecond)) {
			return o
		}
	}
}

// vote is one vote. It returns as soon as that is decided; what was granted to an
// attempt that is lost is given back, at once, or as soon as it is known.
func (q *quorum) vote(a *acquisition) wire.Outcome {
	b := &ballot{q: q, l: a.l, start: time.Now(), lease: a.lease(), proposal: q.propose(), seats: make([]seat, len(q.members))}
	b.grant = q.s.newAttempt()
	b.grant.token, b.grant.ballot = itoa(b.proposal), b
	a.grant = b.grant
	ctx := context.WithoutCancel(a.ctx) // whoever leaves must not look like a server that fails
	decided := b.open(ctx)
	<-decided
	t := b.count()
	token, won := b.proposal, t.accepted >= q.need
	if !won && t.granted >= q.need {
		token, won = b.raise(ctx)
	}
	b.decided.Store(true)
	if won {
		return wire.Outcome{Reply: "G 0 " + itoa(token), Sent: b.start}
	}
	b.took = time.Since(b.start)
	b.send(q.s.ctx, b.l.p.Release, &release{l: b.l, grant: a.grant}, 1, nil)
	return b.lost()
}

// open asks the members for their votes. The channel is closed when they have decided it.
func (b *ballot) open(ctx context.Context) (ready <-chan struct{}) {
	q := b.q
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range q.members {
		s := &b.seats[i]
		s.free = b.start.Add(b.lease) // while nothing is known
		if s.asked = q.usable(m); s.asked {
			b.missing++
		}
	}
	if b.missing < q.need { // no way around the slow ones
		for i := range b.seats {
			b.seats[i].asked = true
		}
		b.missing = len(b.seats)
	}
	b.ready = make(chan struct{})
	q.s.work.Add(1 + b.missing)
	for i := range b.seats {
		if b.seats[i].asked {
			go func() {
				defer q.s.end()
				b.cast(ctx, i)
			}()
		}
	}
	b.timer = time.AfterFunc(q.timeout, func() {
		defer q.s.end()
		b.close()
	})
	return b.ready
}

// tally is the state of a vote.
type tally struct{ granted, accepted, refused, void, undecided int }

func (b *ballot) count() (t tally) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally()
}

func (b *ballot) tally() (t tally) {
	for i := range b.seats {
		switch s := &b.seats[i]; {
		case s.vote == 'G':
			t.granted++
			if s.accepted {
				t.accepted++
			}
		case s.vote == 'H':
			t.refused++
		case s.vote == 'V':
			t.void++
		case b.undecided(s):
			t.undecided++
		}
	}
	return t
}

// decide wakes whoever waits for the outcome, once. mu held.
func (b *ballot) decide() {
	t, need := b.tally(), b.q.need
	// A majority must also say who holds it; and the first lock waits for all clocks.
	lost := t.granted+t.undecided < need && (t.undecided == 0 || t.granted+t.refused >= need && t.void == 0)
	if (lost || t.granted >= need) && !b.told {
		b.told = true
		close(b.ready)
	}
}

// cast brings in one member's vote.
func (b *ballot) cast(ctx context.Context, i int) {
	m := b.q.members[i]
	o := m.call(ctx, b.l.p.Lock, &poll{b, i, b.proposal + protocol.Block - 1, "0"}, wire.Tries, &b.decided)
	r, ok := parse(o.Reply)
	late := o.Unanswered != nil
	if o.Err == nil && !ok {
		o.Err, late = wire.Unexpected(o.Reply), true // whatever it says, it may have been granted
	}
	var odd *valueError
	switch {
	case o.Err == nil:
		m.clock.Heard(r.now, o.Sent)
		if stored, accepted := r.stored(); r.status == 'G' && !accepted && !b.q.credible(stored) {
			late = true // it was granted, and is to be given back
			o.Err = b.q.dissent(m, b.l, &valueError{b.l.keys.memory(), "t", itoa(stored), fmt.Sprintf("more than %v above the servers' clocks", ahead)})
		}
	case wire.Judge(o.Err).Transient:
		m.suspect()
	case errors.As(o.Err, &odd):
		o.Err = b.q.dissent(m, b.l, o.Err)
	}
	b.mu.Lock()
	s := &b.seats[i]
	var later []*errand
	if !b.overdue { // else they have gone already
		later = b.later
	}
	s.late, s.err, s.vote = late || s.late, o.Err, 'E' // a request to join may be under way, too
	if o.Err == nil {
		s.fill(r, o.Sent)
		b.q.saw(s.stored)
	}
	if until := b.start.Add(valid(b.lease)); s.vote == 'G' && s.gone.IsZero() && until.After(s.until) { // else a renewal overtook it
		s.until = until
	}
	b.decide()
	if b.missing--; b.missing == 0 && b.timer.Stop() {
		b.q.s.end()
	}
	mayHold := s.mayHold()
	b.mu.Unlock()
	for _, e := range later {
		if mayHold {
			e.run(b, i)
		} else {
			e.replies.add(wire.Outcome{Reply: "L"})
		}
	}
}

// stored reads 'STORED +', the end of the block that was accepted, or 'STORED -', what is not below the proposal.
func (r answer) stored() (token int64, accepted bool) {
	stored, mark, _ := strings.Cut(r.token, " ")
	token, _ = tokenOf(stored)
	return token, mark == "+"
}

// fill notes an answer. ballot.mu held.
func (s *seat) fill(r answer, sent time.Time) {
	s.vote, s.answer = r.status, r
	switch r.status {
	case 'G':
		if stored, accepted := r.stored(); accepted {
			s.accepted = true
		} else {
			s.stored = stored
		}
		s.free = time.Time{}
	case 'H':
		s.stored, _ = tokenOf(r.token)
		if r.left >= 0 { // else no expiry: not a lock of ours, look again now and then
			s.free = sent.Add(min(r.left, maxRest) + time.Millisecond)
		}
	}
}

// close is called when the time for answers is over.
func (b *ballot) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var late []int
	for i := range b.seats {
		if b.undecided(&b.seats[i]) {
			late = append(late, i)
		}
	}
	b.overdue = true
	b.decide()
	for _, i := range late {
		b.q.members[i].suspect()
		for _, e := range b.later {
			e.start(b, i)
		}
	}
}

// raise is the second round, where a majority has granted but not accepted the
// proposal: a higher one to all that may hold. Nobody else can raise what is stored where this attempt holds.
func (b *ballot) raise(ctx context.Context) (token int64, ok bool) {
	q := b.q
	asked := b.voters(nil)
	token = q.propose() // above all that they answered
	accepts := q.count(len(asked))
	request := &plain{b.l.keys, b.l.p.Accept, []any{b.grant.owner, token, protocol.Block}}
	for _, i := range asked {
		q.s.work.Add(1)
		go func() {
			defer q.s.end()
			accepts.add(q.members[i].call(ctx, b.l.p.Accept, request, wire.Tries, &b.decided))
		}()
	}
	timer := time.NewTimer(q.timeout)
	defer timer.Stop()
	select {
	case <-accepts.ready:
		return token, accepts.outcome().Reply == "A"
	case <-timer.C:
		return 0, false
	}
}

// lost is the outcome of a vote without a majority.
func (b *ballot) lost() wire.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := wire.Outcome{Sent: b.start}
	var known, void int
	var err error = errSlow
	var most *seat
	votes := map[string]int{}
	for i := range b.seats {
		s := &b.seats[i]
		switch s.vote {
		case 'H':
			known++
			votes[s.holder]++
			if most == nil || votes[s.holder] > votes[most.holder] {
				most = s
			}
		case 'G':
			known++
		case 'V':
			void++
		case 0:
			if s.asked && err == errSlow {
				err = errLate
			}
		default:
			if s.err != nil && (err == errSlow || err == errLate || !wire.Judge(err).Transient) {
				err = s.err
			}
		}
	}
	switch {
	case known >= b.q.need && most != nil:
		b.split = votes[most.holder] < b.q.need
		left := max(0, time.Until(b.freeAt()))
		o.Reply = fmt.Sprintf("H 0 %d %s %s %s", left.Milliseconds(), most.holder, most.token, most.about)
	case known+void >= b.q.need && void > 0:
		o.Reply = "V 0"
	case known >= b.q.need:
		o.Err = errNotAccepted
	default:
		o.Err = b.q.noMajority(known+void, err)
	}
	return o
}

// freeAt is when a majority is free of those who hold it now, as far as that is known. mu held.
func (b *ballot) freeAt() time.Time {
	return b.nth(b.q.need-1, func(s *seat) time.Time { return s.free })
}

// rest waits until a majority is free: members are by message, by the end of a lease,
// or perhaps, where the subscription was interrupted. Then some time more, by
// chance, so that those who wait do not split the votes.
func (b *ballot) rest(a *acquisition) error {
	subs := a.l.sub.subs
	for {
		b.mu.Lock()
		d := time.Until(b.freeAt())
		b.mu.Unlock()
		if d <= 0 {
			break
		}
		if err := a.sleep(d); err != nil {
			return err
		}
		for i, sub := range subs {
			messages, gap := sub.Take()
			b.heard(i, messages, gap)
		}
	}
	if b.split {
		a.losses++
	} else {
		a.losses = 0
	}
	for until := time.Now().Add(spread(b.took, a.losses)); ; {
		d := time.Until(until)
		if d <= 0 {
			return nil
		}
		if err := a.sleep(d); err != nil {
			return err
		}
	}
}

// heard takes the messages of a member: 'GRANT USED', which grant is over there, and the last token that may have been used. A
// grant other than the one that was in the way changes nothing: others that lose votes give back, too.
func (b *ballot) heard(i int, messages []string, gap bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.seats[i]
	free := gap
	for _, message := range messages {
		grant, used, _ := strings.Cut(message, " ")
		token, _ := tokenOf(used)
		b.q.saw(token)
		free = free || grant == s.token
	}
	if free {
		s.free = time.Time{}
	}
}
