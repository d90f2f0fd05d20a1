package quorum

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// roundState is how far a round has come. It changes in decide and close.
type roundState uint8

const (
	voting  roundState = iota
	decided            // by a majority; further votes may come
	closed             // the time for votes is over
)

func (s roundState) String() string { return [...]string{"voting", "decided", "closed"}[s] }

// round is one attempt at a majority: what is known of it at each member, for as long as anything is held by it.
type round struct {
	// What follows never changes once the round has begun.
	q        *Quorum
	l        *mutex.Lock
	grant    protocol.Grant // its token is the one that was proposed first
	self     protocol.Vote  // by which the grant leads here
	start    time.Time      // before the first request was sent
	lease    time.Duration
	proposal int64
	purpose  string        // of its votes
	ready    chan struct{} // closed when it is decided

	over atomic.Bool // no vote is sent again

	// What follows belongs to the acquisition.
	losses int           // rounds in a row that no voter has won
	took   time.Duration // until it was lost
	split  bool          // it was lost, and no voter has won

	mu      sync.Mutex // guards what follows; under it only those of members are taken
	state   roundState
	votes   []vote // by member
	missing int    // votes that are not in yet
	timer   *time.Timer
	later   []*request
}

// roundOf is the round that brought a grant.
func roundOf(g *protocol.Grant) *round { return g.Vote.Of.(*round) }

// undecided: its vote is not in, and in time yet. mu held.
func (b *round) undecided(v *vote) bool {
	return v.asked && v.Status == protocol.None && b.state != closed
}

// ballot is the request for one member's vote. The same request joins a member later, to a grant that it lost.
type ballot struct {
	b       *round
	i       int
	last    int64 // the block's end
	purpose string
}

// Purposes of a ballot, as its script has them.
const (
	once  = "0" // who is refused goes
	waits = "w" // who is refused waits: the member is to tell of the holder's release
	joins = "1" // the round is won already, without this member
)

func (v *ballot) Request(now time.Time) wire.Request {
	b, s := v.b, v.b.q.s
	b.mu.Lock()
	if v.purpose != joins { // else mayJoin has, so that a release knows it
		b.welcome(v.i, now)
	}
	notAfter, lease := b.votes[v.i].notAfter, b.lease
	b.mu.Unlock()
	if v.purpose == joins {
		lease = b.joinLease()
	}
	nonce := ""
	if v.purpose != once {
		nonce = rand.Text()
	}
	return b.l.Keys.Request(b.l.Kind.Lock, b.grant.Owner, lease.Milliseconds(), notAfter, s.Args.About, s.Args.Keep, b.grant.Token, v.last, b.l.Keys.Channel, v.purpose, nonce)
}

// welcome bounds the time until which a copy of the request that is made now may still arrive at a member. mu held.
func (b *round) welcome(i int, now time.Time) {
	if t := b.q.members[i].Clock.Now(now); t != 0 {
		b.votes[i].notAfter = max(b.votes[i].notAfter, t+protocol.Patience(b.lease).Microseconds())
	}
}

// Ask holds a round. A round that is lost to other voters is an answer, and not repeated here: the caller rests first.
// Where too few answer in time it does so again, as often as a request is sent to one server.
func (q *Quorum) Ask(a *mutex.Acquisition, _ int, abandoned *atomic.Bool) wire.Outcome {
	for try := 1; ; try++ {
		o := q.round(a)
		if o.Err == nil || !wire.Judge(o.Err).Transient || try >= wire.Tries || abandoned.Load() || wakeup.Closed(q.s.Closing()) ||
			!wire.Pause(q.s.Ctx, wire.Backoff(try, 4*time.Millisecond, 64*time.Millisecond)) {
			return o
		}
	}
}

// round is one round. It returns as soon as that is decided; what was granted to an attempt that is lost is given back,
// at once, or as soon as it is known.
func (q *Quorum) round(a *mutex.Acquisition) wire.Outcome {
	b := &round{q: q, l: a.Lock, start: time.Now(), lease: a.Lease(), proposal: q.propose(), purpose: waits, ready: make(chan struct{}), votes: make([]vote, len(q.members))}
	if a.Try {
		b.purpose = once
	}
	if former := a.Grant.Vote; former != nil {
		b.losses = former.Of.(*round).losses // it is the same wait, so they count on
	}
	b.grant = protocol.Grant{Owner: q.s.Attempt(), Token: b.proposal, Vote: &b.self}
	b.self.Of = b
	a.Grant = b.grant
	ctx := context.WithoutCancel(a.Ctx) // a caller that leaves must not look like a server that fails
	b.open(ctx)
	<-b.ready // closed by the timer at the latest
	t := b.count()
	token, won := b.proposal, t.accepted >= q.need
	if !won && t.won(q.need) {
		token, won = b.secondRound(ctx) // a majority granted, but has not stored the token
	}
	b.over.Store(true)
	if won {
		return wire.Outcome{Reply: "G 0 " + protocol.Number(token), Sent: b.start}
	}
	b.took = time.Since(b.start)
	r := a.Lock.ReleaseRequest(b.grant)
	b.release(q.s.Ctx, &r, 1) // no goroutine waits for it: it is repeated in the background
	return b.lost()
}

// open asks the members for their votes, all at once, so a round takes as long as the majority's slowest request. The
// timeout runs from here, and closes the round, whichever goroutines wait for it.
func (b *round) open(ctx context.Context) {
	q := b.q
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, m := range q.members {
		v := &b.votes[i]
		v.free = b.start.Add(b.lease) // while nothing is known
		if v.asked = q.usable(m); v.asked {
			b.missing++
		}
	}
	if b.missing < q.need { // no way around the slow ones
		for i := range b.votes {
			b.votes[i].asked = true
		}
		b.missing = len(b.votes)
	}
	for i := range b.votes {
		if b.votes[i].asked {
			q.s.Go(func() { b.cast(ctx, i) })
		}
	}
	q.s.Add(1) // for the timer; cast ends it if it stops the timer
	b.timer = time.AfterFunc(q.timeout, func() {
		defer q.s.End()
		b.close()
	})
}

func (b *round) count() tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally()
}

// tally counts. mu held.
func (b *round) tally() (t tally) {
	for i := range b.votes {
		switch v := &b.votes[i]; {
		case v.Status == protocol.Granted:
			t.granted++
			if v.accepted {
				t.accepted++
			}
		case v.Status == protocol.Held:
			t.refused++
		case v.Status == protocol.Expired:
			t.expired++
		case b.undecided(v):
			t.undecided++
		}
	}
	return t
}

// decide wakes the goroutines that wait for the outcome, once. mu held.
func (b *round) decide() {
	if t := b.tally(); b.state == voting && (t.won(b.q.need) || t.lost(b.q.need)) {
		b.state = decided
		close(b.ready)
	}
}

// cast brings in one member's vote. Requests about the grant that wait for it go now where it was granted, or may have
// been; where it was refused they are answered without being sent.
func (b *round) cast(ctx context.Context, i int) {
	m := b.q.members[i]
	o := m.Link.Call(ctx, b.l.Kind.Lock, &ballot{b, i, b.proposal + protocol.Block - 1, b.purpose}, wire.Tries, &b.over)
	r, err := protocol.Read(o)
	late := o.Unanswered != nil || err != nil && o.Err == nil // whatever it says, it may have been granted
	var odd *protocol.ValueError
	switch {
	case err == nil:
		m.Clock.Heard(r.Now, o.Sent)
		if token, accepted := stored(r); r.Status == protocol.Granted && !accepted && !b.q.credible(token) {
			late = true // it was granted, and is to be given back
			err = b.q.dissent(m, b.l, &protocol.ValueError{Key: b.l.Keys.Metadata(), Field: "t", Value: protocol.Number(token), Why: fmt.Sprintf("more than %v above the servers' clocks", ahead)})
		}
	case errors.As(err, &odd):
		err = b.q.dissent(m, b.l, err)
	default:
		if wire.Judge(err).Transient {
			m.suspect(err)
		}
		err = m.named(err)
	}
	b.mu.Lock()
	v := &b.votes[i]
	var later []*request
	if b.state != closed { // else they have gone already
		later = b.later
	}
	v.late, v.err, v.Status = late || v.late, err, failed // a request to join may be under way, too
	if err == nil {
		v.fill(r, o.Sent)
		b.q.saw(v.stored)
	}
	if until := b.start.Add(protocol.Valid(b.lease)); v.Status == protocol.Granted && v.gone.IsZero() && until.After(v.until) { // else a renewal overtook it
		v.until = until
	}
	b.decide()
	if b.missing--; b.missing == 0 && b.timer.Stop() { // all are in, so there is nothing to close
		b.q.s.End()
	}
	mayHold := v.mayHold()
	b.mu.Unlock()
	for _, r := range later {
		if mayHold {
			r.run(b, i)
		} else {
			r.replies.add(wire.Outcome{Reply: "L"}) // it has nothing there, so there is nothing to ask
		}
	}
}

// close is called when the time for votes is over: what is not in counts as refused, so the round is decided.
func (b *round) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var late []int
	for i := range b.votes {
		if b.undecided(&b.votes[i]) {
			late = append(late, i)
		}
	}
	if b.state == voting { // else decide has closed it
		close(b.ready)
	}
	b.state = closed
	for _, i := range late {
		b.q.members[i].suspect(nil)
		for _, r := range b.later {
			r.start(b, i)
		}
	}
}

// secondRound is where a majority has granted but not accepted the proposal: a higher one to all that may hold. No other
// attempt can raise what is stored where this one holds.
func (b *round) secondRound(ctx context.Context) (token int64, ok bool) {
	q := b.q
	asked := b.mayHold(nil)
	next := q.propose() // above all that they answered
	accepts := q.replies(len(asked))
	same := &protocol.Same{Script: q.accept, Keys: b.l.Keys, Argv: []any{b.grant.Owner, next, protocol.Block}}
	for _, i := range asked {
		q.s.Go(func() {
			o := q.members[i].Link.Call(ctx, q.accept, same, wire.Tries, &b.over)
			b.raised(i, o, next)
			accepts.add(o)
		})
	}
	timer := time.NewTimer(q.timeout)
	defer timer.Stop()
	select {
	case <-accepts.ready:
		return next, accepts.outcome().Reply == "A"
	case <-timer.C: // which have stored it is not known: the caller releases all
		return 0, false
	}
}

// raised notes what a member said of the second round's token.
func (b *round) raised(i int, o wire.Outcome, token int64) {
	if o.Err != nil || o.Reply != "A" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.votes[i].accepted, b.votes[i].raised = true, token
}

// lost is the outcome of a round without a majority, as one server would answer: held by the one that most members name,
// expired, or an error. The acquisition need not know that several were asked.
func (b *round) lost() wire.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := wire.Outcome{Sent: b.start}
	var known, expired int
	var failing []error
	var most *vote
	holders := map[string]int{}
	for i := range b.votes {
		v := &b.votes[i]
		switch v.Status {
		case protocol.Held:
			known++
			holders[v.Holder]++
			if most == nil || holders[v.Holder] > holders[most.Holder] {
				most = v
			}
		case protocol.Granted:
			known++
		case protocol.Expired:
			expired++
		case protocol.None:
			if v.asked {
				failing = append(failing, b.q.members[i].silent(errLate))
			} else {
				failing = append(failing, b.q.members[i].silent(errSlow))
			}
		case failed:
			failing = append(failing, v.err)
		default:
			failing = append(failing, b.q.members[i].named(protocol.ErrOver))
		}
	}
	switch {
	case known >= b.q.need && most != nil:
		b.split = holders[most.Holder] < b.q.need
		left := max(0, time.Until(b.freeAt()))
		o.Reply = fmt.Sprintf("H 0 %d %s %s %s", left.Milliseconds(), most.Holder, most.Token, most.About)
	case known+expired >= b.q.need && expired > 0:
		o.Reply = "V 0"
	case known >= b.q.need:
		o.Err = errNotAccepted
	default:
		o.Err = b.q.noMajority(known+expired, failing...)
	}
	return o
}
