package mutex

import (
	"crypto/subtle"
	"strings"
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

// learn is news of a grant to the attempt. Mu held.
func (a *attempt) learn(w award) {
	if a.state == over || w.token <= a.past || a.members.First() == nil { // then the answer withdraws it
		return
	}
	if w.at != 0 {
		w.since = a.since(w.at)
		if !time.Now().Before(w.since.Add(protocol.Valid(w.lease))) {
			a.sooner(0) // it may only seem over, where the last answer took long. If it is not, it gets the whole lease
			return
		}
	}
	defer a.answeredFirst()
	a.granted(w)
}

// answered is the end of a request; true sends it again. Mu held.
func (a *attempt) answered(o wire.Outcome, r protocol.Answer, err error) (again bool) {
	l := a.l
	if o.Unanswered != nil {
		a.grant.Late = a.notAfter
	}
	if a.state == over { // it has learned of a grant meanwhile, or was withdrawn
		return false
	}
	first := a.state == asking
	switch {
	case r.Status == protocol.Expired && a.members.First() != nil && a.expired < protocol.MaxExpired:
		a.expired++
		return true
	case o.Err != nil && a.endures(o):
		return true
	}
	a.out = false
	if o.Unanswered != nil || first && a.grant.Late != 0 { // the lost answer may have told of a grant to another
		l.look(a)
	}
	defer a.answeredFirst()
	switch {
	case err != nil:
		err = l.Keys.Failed(err)
	case r.Status == protocol.Expired:
		err = l.Fail(protocol.TooLate(a.asksFor()))
	case r.Status == protocol.Stale && (first || a.expired >= protocol.MaxExpired):
		err = l.Fail(protocol.ErrOver)
	}
	switch {
	case err != nil || a.members.First() == nil:
		a.fail(err, !first || r.Status == protocol.Queued || protocol.MayHold(&a.grant, o, r))
	case r.Status == protocol.Granted:
		if first {
			l.others = false
		}
		a.granted(award{token: r.Token, lease: a.asksFor(), since: o.Sent})
	case r.Status == protocol.Stale: // it was granted the lock, and lost it by force
		a.end()
		a.askAnew()
	default:
		a.refused(o, r)
	}
	return false
}

// endures reports whether an outage only lengthens the wait. It dismisses the members that have waited long
// enough for its end, and reports false if there are no others. Mu held.
func (a *attempt) endures(o wire.Outcome) bool {
	stays := a.state == standing && strings.Contains(o.Err.Error(), "OOM ") // the place does where Redis is full
	if !stays && !wire.Judge(o.Err).Transient || a.members.First() == nil {
		return false
	}
	for w := a.members.First(); w != nil; {
		next := w.Next()
		if !w.For.(*Acquisition).Endures(o.Failing, o.Err) {
			w.Answer(Handoff{Err: a.l.Keys.Failed(failure.Outage(o.Failing, o.Err))})
		}
		w = next
	}
	if a.members.First() == nil {
		a.l.vacate()
		return false
	}
	return true
}

// fail ends the attempt. Mu held.
func (a *attempt) fail(err error, mayHold bool) {
	a.dismiss(err)
	if mayHold {
		a.withdraw()
		return
	}
	a.end()
	if a.gone != nil {
		close(a.gone) // there is nothing to give up
	}
}

// dismiss answers the members, if there are any, that there was an error. Mu held.
func (a *attempt) dismiss(err error) {
	if a.members.First() != nil {
		a.members.Answer(Handoff{Err: err})
		a.l.vacate()
	}
}

// refused notes that the attempt stands in the queue. Mu held.
func (a *attempt) refused(o wire.Outcome, r protocol.Answer) {
	l := a.l
	l.Saw(r)
	l.others = l.others || !l.S().Owns(r.Holder)
	if a.state == asking && l.S().Observer != nil { // which learns that they wait
		for w := a.members.First(); w != nil; w = w.Next() {
			w.Queued()
		}
	}
	a.state, a.expired = standing, 0
	a.base, a.redis, a.past = o.Sent, r.Now, max(a.past, r.Token)
	d := l.S().Liveness / 5 * 3 // which leaves time to repeat it
	if r.Left >= 0 && !r.Behind {
		d = min(d, r.Left+time.Millisecond)
	}
	a.sooner(d)
	a.rest() // also if something has said earlier when to ask
}

// since is a local time that is not after a grant of this attempt, whose Redis time is at. Mu held.
func (a *attempt) since(at int64) time.Time {
	t := protocol.GrantTime(at, a.redis, a.base)
	if a.redis != 0 && t.Before(a.began) {
		t = a.began
	}
	return t
}

// granted gives the members what Redis granted: the first has the lock now, the others wait at the root
// gate. Mu held, but not all the time (Tenure.Begin).
func (a *attempt) granted(w award) {
	l := a.l
	a.end()
	t := l.NewTenure(a.grant, w.token, a.lease != 0)
	l.Keep()
	err := t.Begin(w.since, w.lease)
	first := a.members.First() // Begin may have let one go
	if err == nil && first != nil {
		a.install(t, first, w)
		return
	}
	if err == nil { // no member wants it
		t.Discard()
	}
	l.ReleaseUntilDone(a.grant, time.Now().Add(w.lease), a.gone)
	l.Drop()
	switch {
	case err == ErrTooLate && a.expired < protocol.MaxExpired && first != nil:
		a.askAnew()
	case first != nil:
		a.dismiss(l.Fail(err))
	default: // it left when the attempt was over already
		l.vacate()
	}
}

// install gives the tenure to the first member. Mu held.
func (a *attempt) install(t *Tenure, first *Waiter, w award) {
	l := a.l
	l.Root.Install()
	l.expect = a.members.Len()
	first.Answer(Handoff{In: true, Tenure: t, Token: t.Token})
	l.Root.Waiters.Append(&a.members)
	if left := a.lease - w.age; left > w.lease { // it got a first lease
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

// askAnew makes another attempt of the members: the place is lost, as in a process that was stopped when it
// was granted the lock. Mu held.
func (a *attempt) askAnew() {
	again := &attempt{l: a.l, ctx: a.ctx, lease: a.lease, expired: a.expired + 1, size: a.members.Len()}
	for w := a.members.First(); w != nil; w = w.Next() {
		w.Place = again
	}
	again.members.Append(&a.members)
	again.begin()
	go again.runFirst()
}

// An attempt is an inbox.Attempt.

// Key is the lock's.
func (a *attempt) Key() string { return a.l.Keys.Lock() }

// Told is 'TOKEN NOW LEASE NONCE' of a grant, or 'LEASE' for the next in the queue, which looks when that
// lease is over. A grant counts only with the attempt's nonce, which was given to Redis alone. A look costs
// no more than a request.
func (a *attempt) Told(words []string) {
	a.l.Mu.Lock()
	defer a.l.Mu.Unlock()
	switch {
	case a.state == over:
	case len(words) == 1:
		a.sooner(max(milliseconds(words[0]), 0) + time.Millisecond)
	case len(words) == 4 && subtle.ConstantTimeCompare([]byte(a.nonce), []byte(words[3])) == 1:
		token, at := protocol.TokenOrZero(words[0]), protocol.TokenOrZero(words[1])
		a.learn(award{token: token, at: at, lease: milliseconds(words[2])})
	}
}

// Missed has it ask: a message may have been lost.
func (a *attempt) Missed() {
	a.l.Mu.Lock()
	defer a.l.Mu.Unlock()
	a.sooner(0)
}

// deliver gives an award to the attempt that it is for, if that still waits here. The caller must be counted
// in the session's work. Mu is not held.
func (l *Lock) deliver(owner string, w award) {
	if a, _ := l.table.inbox.Find(owner).(*attempt); a != nil {
		a.l.Mu.Lock()
		defer a.l.Mu.Unlock()
		a.learn(w)
	}
}
