package mutex

import (
	"crypto/subtle"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// award is what is known of a grant.
type award struct {
	token int64
	lease time.Duration
	since time.Time     // not after the lease began, where an answer brought it
	at    int64         // the Redis time at which it began, in microseconds, where a message did
	age   time.Duration // for how long it had been held when the lease began
}

// awardOf is the grant that a reply names, which was sent at sent: what is left of its lease.
func awardOf(r protocol.Answer, sent time.Time) award {
	age := time.Duration(max(0, r.Now-r.Token)) * time.Microsecond
	return award{token: r.Token, lease: r.Left, since: sent, age: age}
}

// toldTime is how long an attempt that was notified of a grant waits for the answer to its request. Then a
// heartbeat asks: the first lease is shorter than most time-outs of clients.
const toldTime = 500 * time.Millisecond

// learn is news of a grant to the attempt. Mu held.
func (c *cohort) learn(w award) {
	switch {
	case c.state == over || w.token <= c.past:
	case c.state == asking: // the answer may say that this is over
		if w.token > c.told.token {
			c.told = w
			c.l.schedule(toldTime)
		}
	default:
		c.granted(w)
	}
}

// confirmed: a heartbeat has found that the attempt was granted what it was notified of. The request under
// way is as good as lost: a copy may still come. Mu held.
func (c *cohort) confirmed() {
	l := c.l
	if c.state != asking || c.told.token == 0 || c.members.First() == nil {
		return
	}
	c.abandoned.Store(true)
	c.grant.Late = c.notAfter
	c.state = queued
	if l.asking == c {
		l.asking = nil
		l.ask()
	}
}

// answered is the end of a request; true sends it again. Mu held.
func (c *cohort) answered(o wire.Outcome, r protocol.Answer, err error) (again bool) {
	if c.state != asking {
		return false // confirmed
	}
	l := c.l
	if r.Status == protocol.Expired && c.members.First() != nil && c.expired < protocol.MaxExpired {
		c.expired++
		return true
	}
	if o.Err != nil && wire.Judge(o.Err).Transient && c.endures(o) {
		return true
	}
	c.state = queued // until it is known to be over
	newcomer := c.members.First()
	if c.grant.Late != 0 && len(l.standing) > 1 { // the lost answer may have told of a grant to another
		defer l.schedule(0)
	}
	if l.asking == c {
		l.asking = nil
		defer l.ask()
	}
	switch {
	case err != nil:
		err = l.Keys.Failed(err)
	case r.Status == protocol.Expired:
		err = l.Fail(protocol.TooLate(c.asksFor()))
	case r.Status == protocol.Stale:
		err = l.Fail(protocol.ErrOver)
	}
	switch {
	case err != nil || c.members.First() == nil:
		c.fail(err, protocol.MayHold(&c.grant, o, r) || r.Status == protocol.Held)
	case r.Status == protocol.Granted:
		l.others = false
		c.granted(award{token: r.Token, lease: c.asksFor(), since: o.Sent})
	default:
		c.refused(o, r, newcomer)
	}
	return false
}

// endures dismisses the members that have waited long enough for an outage to end, and reports whether others
// are left. Mu held.
func (c *cohort) endures(o wire.Outcome) bool {
	if c.members.First() == nil {
		return false
	}
	for w := c.members.First(); w != nil; {
		next := w.Next()
		if !w.For.(*Acquisition).Endures(o.Failing, o.Err) {
			w.Answer(Handoff{Err: c.l.Keys.Failed(failure.Outage(o.Failing, o.Err))})
		}
		w = next
	}
	if c.members.First() == nil {
		c.l.vacate()
		return false
	}
	return true
}

// fail ends the attempt. Mu held.
func (c *cohort) fail(err error, mayHold bool) {
	c.dismiss(err)
	if mayHold {
		c.withdraw()
		return
	}
	c.retire()
	if c.gone != nil {
		close(c.gone) // there is nothing to give up
	}
}

// dismiss answers the members, if there are any, that there was an error. Mu held.
func (c *cohort) dismiss(err error) {
	if c.members.First() != nil {
		c.members.Answer(Handoff{Err: err})
		c.l.vacate()
	}
}

// refused notes that the attempt stands in the queue. Mu held.
func (c *cohort) refused(o wire.Outcome, r protocol.Answer, newcomer *Waiter) {
	l := c.l
	l.Saw(r)
	l.others = l.others || !l.S().Owns(r.Holder)
	c.heard(o.Sent, r)
	if c.told.token > c.past {
		c.granted(c.told)
		return
	}
	// told was a grant to an earlier copy, which ran out meanwhile: this copy queued the attempt again.
	c.told = award{}
	if r.Behind {
		r.Left = -1
	}
	l.schedule(r.Left)
	if c.hint > 0 {
		l.schedule(c.hint)
	}
	if l.S().Observer != nil { // which learns that they wait
		for w := newcomer; w != nil; w = w.Next() {
			w.Queued()
		}
	}
}

// heard notes an answer that came while the attempt stands in the queue. Mu held.
func (c *cohort) heard(sent time.Time, r protocol.Answer) {
	c.base, c.redis = sent, r.Now
	c.past = max(c.past, r.Token)
}

// since is a local time that is not after a grant of this attempt, whose Redis time is at. Mu held.
func (c *cohort) since(at int64) time.Time {
	t := protocol.GrantTime(at, c.redis, c.base)
	if c.redis != 0 && t.Before(c.began) {
		t = c.began
	}
	return t
}

// granted gives the cohort what Redis granted it: its first member has the lock now, the others wait at the
// root gate. Mu held, but not all the time (Tenure.Begin).
func (c *cohort) granted(w award) {
	l := c.l
	if w.at != 0 {
		w.since = c.since(w.at)
		if !time.Now().Before(w.since.Add(protocol.Valid(w.lease))) && c.expired < protocol.MaxExpired {
			c.askAgain()
			return
		}
	}
	c.retire()
	t := l.NewTenure(c.grant, w.token, c.lease != 0)
	l.Keep()
	err := t.Begin(w.since, w.lease)
	first := c.members.First() // Begin may have let one go
	if err == nil && first != nil {
		c.install(t, first, w)
		return
	}
	if err == nil { // no member wants it
		t.Discard()
	}
	l.ReleaseUntilDone(c.grant, time.Now().Add(w.lease), c.gone)
	l.Drop()
	switch {
	case err == ErrTooLate && c.expired < protocol.MaxExpired && first != nil:
		c.askAnew()
	case first != nil:
		c.dismiss(l.Fail(err))
	default: // it left when the attempt was over already
		l.vacate()
	}
}

// install gives the tenure to the first member. Mu held.
func (c *cohort) install(t *Tenure, first *Waiter, w award) {
	l := c.l
	l.Root.Install()
	l.expect = c.members.Len()
	first.Answer(Handoff{In: true, Tenure: t, Token: t.Token})
	l.Root.Waiters.Append(&c.members)
	if left := c.lease - w.age; left > w.lease { // it got a first lease
		l.S().Go(func() { l.complete(t, w.since.Add(left)) })
	}
}

// complete makes a fixed lease as long as was asked for. No watchdog renews it, so this goes on until its
// deadline.
func (l *Lock) complete(t *Tenure, until time.Time) {
	for try := 1; ; try++ {
		o := t.Update(l.S().Ctx, time.Until(until), wire.Tries, nil)
		over := o.Err == nil || !wire.Judge(o.Err).Unsettled() || !time.Now().Before(t.Deadline())
		if over || !wire.Pause(l.S().Ctx, wire.Backoff(try, 20*time.Millisecond, 200*time.Millisecond)) {
			return
		}
	}
}

// askAgain has Redis say what became of a grant that seems to be over. It may not be: where the last answer
// took long, the grant is counted from long before. A lock that the attempt still has is made its own for the
// whole lease. Mu held.
func (c *cohort) askAgain() {
	l := c.l
	c.expired++
	c.state, c.told = asking, award{}
	c.size = c.members.Len()
	l.S().Add(1)
	l.Keep()
	go c.run()
}

// askAnew makes newcomers of the members whose grant came too late, as in a process that was stopped: the
// place is lost. Mu held.
func (c *cohort) askAnew() {
	again := &cohort{l: c.l, ctx: c.ctx, lease: c.lease, expired: c.expired + 1, size: c.members.Len()}
	for w := c.members.First(); w != nil; w = w.Next() {
		w.Place = again
	}
	again.members.Append(&c.members)
	again.begin()
	go again.run()
}

// A cohort is an inbox.Attempt.

// Key is the lock's.
func (c *cohort) Key() string { return c.l.Keys.Lock() }

// Told is 'TOKEN NOW LEASE NONCE' of a grant, or 'LEASE' for the next in the queue, which looks when that
// lease is over. A grant counts only with the attempt's nonce, which was given to Redis alone. A look costs
// no more than a request.
func (c *cohort) Told(words []string) {
	l := c.l
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case len(words) == 1:
		switch hint := max(milliseconds(words[0]), time.Millisecond); {
		case c.state == queued:
			l.schedule(hint)
		case c.hint == 0 || hint < c.hint: // a client that may only publish must not put the look off
			c.hint = hint
		}
	case len(words) == 4 && subtle.ConstantTimeCompare([]byte(c.nonce), []byte(words[3])) == 1:
		c.learn(award{token: protocol.TokenOrZero(words[0]), at: protocol.TokenOrZero(words[1]), lease: milliseconds(words[2])})
	}
}

// Missed has a heartbeat ask.
func (c *cohort) Missed() {
	c.l.Mu.Lock()
	defer c.l.Mu.Unlock()
	if len(c.l.standing) > 0 {
		c.l.schedule(0)
	}
}

// attempt is the cohort that stands under an owner field; nil if none does.
func (l *Lock) attempt(owner string) *cohort {
	if c, _ := l.table.inbox.Find(owner).(*cohort); c != nil && c.l == l {
		return c
	}
	return nil
}

// deliver gives an award to the attempt that it is for, if that still waits here. The caller must be counted
// in the session's work. Mu is not held.
func (l *Lock) deliver(owner string, w award) {
	if c, _ := l.table.inbox.Find(owner).(*cohort); c != nil {
		c.l.Mu.Lock()
		defer c.l.Mu.Unlock()
		c.learn(w)
	}
}
