package mutex

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// cohortState is what a cohort's attempt is doing. It changes in begin, answered and retire.
type cohortState uint8

const (
	asking cohortState = iota // its request is under way
	queued                    // Redis has answered "not yet": it must be kept alive
	over                      // granted, failed or withdrawn: a grant that comes later goes to no goroutine
)

func (s cohortState) String() string { return [...]string{"asking", "queued", "over"}[s] }

// cohort is one attempt in Redis, and the goroutines that wait with it.
type cohort struct {
	l         *Lock
	lease     time.Duration // fixed, as the only member wants it; 0: the session's
	abandoned atomic.Bool   // its answer is not needed any more: do not send again

	// What follows is set with Lock.Mu held before a copy of the request is sent, and does not change then.
	ctx   context.Context // of the copy: its first member's, or one that does not end
	nonce string          // proves that a message about the attempt is Redis' own
	size  int             // how many members it had when it asked

	// Lock.Mu guards the following.
	state    cohortState
	notAfter int64          // of the last copy sent
	grant    protocol.Grant // its owner field does not change
	members  List
	began    time.Time     // before the first request was sent
	base     time.Time     // before the last request was sent that Redis answered
	redis    int64         // the Redis time in that answer, in microseconds; 0: there is none
	past     int64         // the token which that answer named: a grant that is not above it is over
	told     award         // a grant that was learned of while asking
	expired  int           // how often in a row a grant or request came too late
	hint     time.Duration // when it should look, as a message said while it asked
	gone     chan struct{} // closed when the place was given up, or could not be at the first try; nil if no goroutine waits for that
}

// maxCohort bounds a cohort, for its tokens must fit into a block.
const maxCohort = protocol.Block

func (c *cohort) owner() string { return c.grant.Owner.(string) }

// form makes the goroutines that wait for it the next cohort, which must run then; nil if there are none, or
// if the cohort before is still asking. Mu held.
func (l *Lock) form() *cohort {
	w := l.forming.First()
	l.expect = 0 // goroutines that come later ask at once
	if l.asking != nil || w == nil {
		return nil
	}
	a := w.For.(*Acquisition)
	c := &cohort{l: l, ctx: a.Until, lease: a.Config.Lease}
	c.fill()
	c.begin()
	return c
}

// fill has the goroutines that wait for the next cohort join this one. Mu held.
func (c *cohort) fill() {
	if c.abandoned.Load() {
		return
	}
	for w := c.l.forming.First(); w != nil && c.members.Len() < maxCohort; w = c.l.forming.First() {
		if c.members.Len() > 0 {
			if c.lease != 0 || w.Fixed {
				break // a lease of its own choice is a grant of its own
			}
			c.outliveMember()
		}
		w.Withdraw()
		w.Place = c
		c.members.Push(w)
	}
	c.size = c.members.Len()
}

// outliveMember has the request go on though its first member leaves: the answer is the others', too, and
// go-redis may end the reading with a context. Mu held.
func (c *cohort) outliveMember() {
	if c.ctx.Done() != nil {
		c.ctx = context.WithoutCancel(c.ctx)
	}
}

// begin begins an attempt for the cohort, which must run then. Mu held.
func (c *cohort) begin() {
	l := c.l
	c.grant, c.notAfter = protocol.Grant{Owner: l.S().Attempt(), Token: ""}, 0
	c.nonce = inbox.NewNonce()
	c.state, c.told, c.past = asking, award{}, 0
	c.began = time.Now()
	c.base, c.redis = c.began, 0
	l.asking = c
	l.standing = append(l.standing, c)
	l.table.inbox.Add(c.owner(), c)
	l.S().Add(1)
	l.Keep() // until the request is answered: it is rolled back if no goroutine waits for it any more
}

// retire ends the attempt as far as this session is concerned: a grant that comes later goes to no goroutine.
// Mu held.
func (c *cohort) retire() {
	l := c.l
	c.state = over
	l.table.inbox.Remove(c.owner())
	if i := slices.Index(l.standing, c); i >= 0 {
		l.standing = slices.Delete(l.standing, i, i+1)
	}
	if len(l.standing) > 0 {
		return
	}
	l.standing = nil // very many locks may be held
	if l.beat.timer != nil {
		l.beat.timer.Stop()
		l.beat.at = time.Time{}
	}
}

// withdraw ends an attempt that may stand in the queue, or hold the lock by now. The caller must be counted
// in the session's work. Mu held.
func (c *cohort) withdraw() {
	c.retire()
	c.l.ReleaseUntilDone(c.grant, time.Now().Add(c.asksFor()+c.l.S().Liveness), c.gone)
}

// memberLeft is called when a member has gone. If it was the last one, the place is given up, which ends with
// the channel that is returned. Mu held.
func (c *cohort) memberLeft() (gone <-chan struct{}) {
	if c.members.First() != nil || c.takeIn() {
		return nil
	}
	if c.state != over {
		defer c.l.vacate()
	}
	switch c.state {
	case asking: // the answer withdraws
		c.gone = make(chan struct{})
		c.abandoned.Store(true)
		if c.l.asking == c {
			c.l.asking = nil
			c.l.ask()
		}
	case queued:
		c.gone = make(chan struct{})
		c.withdraw()
	}
	return c.gone
}

// asksFor is the lease that the cohort wants.
func (c *cohort) asksFor() time.Duration {
	if c.lease != 0 {
		return c.lease
	}
	return c.l.S().Lease
}

// copy says when the next copy of the request is void.
func (c *cohort) copy(until int64) (notAfter int64) {
	c.l.Mu.Lock()
	defer c.l.Mu.Unlock()
	if c.state == asking { // else nothing may come later than was said when its grant was confirmed
		c.notAfter = max(c.notAfter, until)
	}
	return c.notAfter
}

// gather takes in the goroutines that came since.
func (c *cohort) gather() {
	runtime.Gosched()
	c.l.Mu.Lock()
	defer c.l.Mu.Unlock()
	if c.redis == 0 && c.grant.Late == 0 { // else it may stand in the queue already, and others behind it
		c.fill()
	}
}

// start sends the attempt's request, the first copy in the goroutine of a member that leaves when until ends,
// unless Redis is silent.
func (c *cohort) start(until context.Context) {
	l, s := c.l, c.l.S()
	if l.Silent(until) {
		go c.run()
		return
	}
	if l.othersWant() { // else few others come, and yielding costs two thread wake-ups
		c.gather()
	}
	o := s.Link.Call(c.ctx, l.Kind.Lock, c, 1, &c.abandoned)
	if o.Again && o.Unanswered != nil {
		l.Mu.Lock()
		c.grant.Late = c.notAfter
		l.Mu.Unlock()
	}
	if o.Again || c.took(o) {
		go c.run()
		return
	}
	l.Drop()
	s.End()
}

// run sends the attempt's request until it is answered, and sees to what comes of it.
func (c *cohort) run() {
	l, s := c.l, c.l.S()
	c.gather()
	l.Mu.Lock()
	c.outliveMember()
	l.Mu.Unlock()
	defer s.End()
	defer l.Drop()
	for try, again := 1, true; again; try++ {
		o := s.Link.Call(c.ctx, l.Kind.Lock, c, wire.Tries, &c.abandoned)
		again = c.took(o)
		if again && o.Err != nil && !wire.Pause(s.Ctx, wire.Backoff(try, 20*time.Millisecond, time.Second)) {
			c.abandoned.Store(true)
		}
	}
}

// took takes in how a request ended; true sends it again.
func (c *cohort) took(o wire.Outcome) (again bool) {
	l := c.l
	r, err := protocol.Read(o)
	if err == nil {
		l.S().Clock.Heard(r.Now, o.Sent)
	}
	if r.Status == protocol.Held {
		l.deliver(r.Holder, awardOf(r, o.Sent)) // a free lock may have gone to an attempt of this session
		l.table.inbox.Listen(l.Keys.Lock())
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if o.Unanswered != nil {
		c.grant.Late = c.notAfter
	}
	return c.answered(o, r, err)
}

// Request makes a copy of the attempt's request.
func (c *cohort) Request(now time.Time) wire.Request {
	s := c.l.S()
	lease := s.Args.Lease
	if c.lease != 0 {
		lease = c.lease.Milliseconds()
	}
	var until int64
	if t := s.Clock.Now(now); t != 0 {
		// What is handed over expires with the liveness.
		until = t + protocol.Patience(min(c.asksFor(), s.Liveness)).Microseconds()
	}
	return c.l.Keys.Request(c.l.Kind.Lock, c.grant.Owner, lease, c.copy(until), s.Args.About, s.Args.Keep,
		s.Args.Liveness, c.l.Keys.Channel, c.size, c.nonce, c.l.table.inbox.Mode(c.l.Keys.Lock()))
}
