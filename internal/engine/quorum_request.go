package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// count is what members say to one request. mu guards all but ready.
type count struct {
	q               *quorum
	mu              sync.Mutex
	yes, no, failed int
	absent          int // of no: those that are not asked
	o               wire.Outcome
	decided         bool
	ready           chan struct{} // closed when o is the outcome: whoever waits is woken once
}

func (q *quorum) count(asked int) *count {
	absent := len(q.members) - asked
	c := &count{q: q, no: absent, absent: absent, o: wire.Outcome{Sent: time.Now()}, ready: make(chan struct{})}
	c.decide()
	return c
}

// add counts an answer: 'L' is a no.
func (c *count) add(o wire.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.decided {
		return
	}
	if o.Unanswered != nil {
		c.o.Unanswered = o.Unanswered
	}
	switch {
	case o.Err != nil:
		c.o.Err = o.Err
		c.failed++
	case strings.HasPrefix(o.Reply, "L"):
		c.no++
	default:
		c.o.Reply = o.Reply
		c.yes++
	}
	c.decide()
}

// decide: 'L' as soon as no majority can say anything else. mu held.
func (c *count) decide() {
	all := len(c.q.members)
	switch {
	case c.yes >= c.q.need:
		c.o.Err = nil
	case all-c.no < c.q.need:
		c.o.Reply, c.o.Err = "L", nil
	case all-c.no-c.failed < c.q.need:
		c.o.Err = c.q.noMajority(c.yes+c.no-c.absent, c.o.Err)
	default:
		return
	}
	c.decided = true
	close(c.ready)
}

// outcome waits for a majority.
func (c *count) outcome() wire.Outcome {
	<-c.ready
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.o
}

// call sends a request about a grant to all members that may have granted it, and
// returns what a majority says. The others' answers are not waited for.
func (q *quorum) call(ctx context.Context, sc *wire.Script, c wire.Copier, most int, left *atomic.Bool) wire.Outcome {
	b := ballotOf(c)
	if b == nil {
		return q.all(ctx, sc, c)
	}
	return b.send(ctx, sc, c, most, left).outcome()
}

// errand is a request about a grant, to the members that may have granted it.
type errand struct {
	ctx     context.Context
	sc      *wire.Script
	c       wire.Copier
	most    int
	left    *atomic.Bool
	replies *count
}

// send sends a request about a grant. A release is sent again to those that do not answer, until the lease is over.
func (b *ballot) send(ctx context.Context, sc *wire.Script, c wire.Copier, most int, left *atomic.Bool) *count {
	if end, ok := c.(*release); ok {
		if used, ok := end.used.(int64); ok {
			b.q.saw(used)
		}
	}
	e := &errand{ctx: ctx, sc: sc, c: c, most: most, left: left}
	for _, i := range b.voters(e) {
		e.start(b, i)
	}
	return e.replies
}

func (e *errand) start(b *ballot, i int) {
	b.q.s.work.Add(1)
	go func() {
		defer b.q.s.end()
		e.run(b, i)
	}()
}

// run asks one member.
func (e *errand) run(b *ballot, i int) {
	o := b.q.members[i].call(e.ctx, e.sc, memberCopy(e.c, b, i), e.most, e.left)
	if t, ok := e.c.(*telling); ok {
		b.kept(i, o, t.lease)
	}
	e.replies.add(o)
	if end, ok := e.c.(*release); ok && o.Err != nil && wire.Judge(o.Err).Unsettled() {
		b.q.settle(end.l, end.grant, i, b.lease)
	}
}

// settle gives back what one member may have granted, until it answers or the lease is over.
func (q *quorum) settle(l *lock, g grant, i int, lease time.Duration) wire.Outcome {
	m := q.members[i]
	until := time.Now().Add(lease)
	r := memberCopy(&release{l: l, grant: g}, g.ballot, i)
	for try := 0; ; try++ {
		o := m.call(q.s.ctx, l.p.Release, r, 1, nil)
		if o.Err == nil || !wire.Judge(o.Err).Unsettled() || time.Now().After(until) || isClosed(q.s.closing) ||
			!wire.Pause(q.s.ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return o
		}
	}
}

// releaseAll gives back what ended streaks held.
func (q *quorum) releaseAll(ended []*streak) error {
	var (
		mu     sync.Mutex // guards failed
		failed []error
		wg     sync.WaitGroup
	)
	for _, st := range ended {
		wg.Go(func() {
			if err := st.lock.giveBack(q.s.ctx, st.final(), wire.Tries).Err; err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, st.lock.keys.failed(err))
			}
		})
	}
	wg.Wait()
	return Join(failed...)
}

// all sends a request to all members. The answers of those that are in time, if they are a majority, come line by line.
func (q *quorum) all(ctx context.Context, sc *wire.Script, c wire.Copier) wire.Outcome {
	o := wire.Outcome{Sent: time.Now()}
	answers := make(chan wire.Outcome, len(q.members))
	for _, m := range q.members {
		q.s.work.Add(1)
		go func() {
			defer q.s.end()
			answers <- m.call(ctx, sc, c, wire.Tries, nil)
		}()
	}
	timer := time.NewTimer(q.timeout)
	defer timer.Stop()
	err := errLate
	var replies []string
	for n := 0; n < len(q.members); n++ {
		select {
		case one := <-answers:
			if one.Err == nil {
				replies = append(replies, one.Reply)
			} else {
				err = one.Err
			}
		case <-timer.C:
			n = len(q.members)
		}
	}
	if len(replies) < q.need {
		o.Err = q.noMajority(len(replies), err)
	}
	o.Reply = strings.Join(replies, "\n")
	return o
}

// state is the lock as a majority of the members has it.
func (q *quorum) state(name, replies string) (State, error) {
	owners := map[string][]State{}
	free := State{Name: name}
	for reply := range strings.Lines(replies) {
		st, err := decodeState(name, reply)
		if err != nil {
			return State{}, &nameError{name: name, err: err}
		}
		if st.Held {
			owners[st.Owner] = append(owners[st.Owner], st)
		}
		free.Token = max(free.Token, st.Token)
	}
	for _, held := range owners {
		if len(held) < q.need {
			continue
		}
		slices.SortFunc(held, func(a, b State) int { return cmp.Compare(b.Remaining, a.Remaining) })
		st := held[q.need-1] // the majority lasts no longer
		for _, other := range held {
			st.Token = max(st.Token, other.Token)
		}
		return st, nil
	}
	return free, nil
}

// voters are the members that may have granted the attempt, as far as they have
// answered, or have not in time. An errand waits for the others' votes, so that it, a release
// above all, does not overtake their request, and counts what they say to it then.
func (b *ballot) voters(e *errand) (at []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	later := 0
	for i := range b.seats {
		s := &b.seats[i]
		switch {
		case b.undecided(s):
			later++
		case s.mayHold():
			at = append(at, i)
		}
	}
	if e != nil {
		e.replies = b.q.count(len(at) + later)
		if later > 0 {
			b.later = append(b.later, e)
		}
	}
	return at
}

// memberCopy is the request as it goes to one member: a release tells it until when a late copy
// could come there, and takes back tokens where they were accepted.
func memberCopy(c wire.Copier, b *ballot, i int) wire.Copier {
	r, ok := c.(*release)
	if !ok || b == nil {
		return c
	}
	one := *r
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.seats[i]
	if s.vote == 0 || s.late {
		one.late = s.notAfter
	}
	one.token = b.grant.token // waiters know the grant by it
	if !s.accepted {
		one.used = ""
	} else if one.used == nil {
		one.used = b.grant.token
	}
	return &one
}
