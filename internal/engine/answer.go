package engine

import (
	"context"
	"crypto/subtle"
	"fmt"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// answered takes in the answer to its request, and reports whether there is more to do. mu held.
func (a *attempt) answered(o wire.Outcome, r protocol.Answer, err error) (again bool) {
	l := a.l
	p := l.p
	a.out = false
	again = true
	defer func() {
		if !again || a.state != asking {
			a.firstAnswered()
		}
	}()
	if o.Unanswered != nil {
		a.late = a.notAfter // a copy may still come until then
	}
	a.inRedis = a.inRedis || r.Status == protocol.Granted ||
		r.Status == protocol.Queued && !l.once && !p.broadcast() || o.Err != nil && wire.Judge(o.Err).Unknown
	switch {
	case a.state == over: // told of a grant while the request was under way
		return false
	case a.state == unwanted:
		return a.mayHave() // rest gives it up
	case r.Status == protocol.Expired && a.expired < protocol.MaxExpired:
		a.expired++
		a.at = time.Now() // the answer has brought the time
		return true
	case err != nil && !l.once && a.endures(o, err):
		a.at = time.Now().Add(wire.Backoff(2, 20*time.Millisecond, time.Second))
		return a.state != unwanted || a.mayHave()
	}
	switch {
	case err != nil:
		err = p.kind.Failed(p.keys, err)
	case r.Status == protocol.Expired:
		err = p.fail(protocol.TooLate(a.asksFor()))
	case r.Status == protocol.Stale && a.expired < protocol.MaxExpired:
		a.end(over) // it was granted the lock, and lost it by force
		a.askAgain()
		return false
	case r.Status == protocol.Stale:
		err = p.fail(protocol.ErrOver)
	case r.Status == protocol.Limited:
		err = p.kind.Limited(p.keys.Name, l.want, r.Limit)
	case r.Status == protocol.Queued && l.once:
		err = l.refused(r)
	}
	switch {
	case err != nil || r.Status == protocol.GoesOn:
		a.end(over)
		if a.mayHave() {
			a.giveBack()
		}
		if err == nil {
			a.extended(o.Sent)
		} else {
			l.fail(err)
		}
		return false
	case r.Status == protocol.Granted:
		if a.state == asking { // it did not have to wait
			l.others, p.rivals = false, false
		}
		a.mayLinger = r.MayLinger
		a.granted(r.Token, o.Sent, a.asksFor())
		return false
	}
	a.stands(o, r)
	return true
}

// mayHave: it may have permits, or a place in the queue, or get them by a copy of its request. mu held.
func (a *attempt) mayHave() bool { return a.inRedis || a.late != 0 }

// stands notes that it is in the queue, or listens. mu held.
func (a *attempt) stands(o wire.Outcome, r protocol.Answer) {
	l := a.l
	if a.state == asking {
		a.state = standing
		l.standing++
	}
	l.others = true // from now on the lane has one attempt at a time
	l.p.rivals = l.p.rivals || !l.p.s().Owns(r.Holder)
	l.p.saw(r)
	a.expired = 0
	a.base, a.redis, a.past = o.Sent, r.Now, max(a.past, r.Token)
	d := l.p.s().Liveness / 5 * 3 // which leaves time to repeat it
	if r.Left >= 0 && !r.Behind {
		d = min(d, r.Left+time.Millisecond)
	}
	a.sooner(d)
	if l.p.s().Observer != nil { // which learns that they wait
		for w := l.waiters.first; w != nil; w = w.next {
			w.queued()
		}
	}
}

// refused is the error of one that asks once: it is not free. mu held.
func (l *lane) refused(r protocol.Answer) error {
	e := r.Locked(l.p.keys.Name)
	if l.waiters.n > 0 && l.p.s().Holds(r.Holder) { // else it has left
		e.Hint = l.first().hint(l.p.grantOf(r.Holder))
	}
	return l.p.kind.Locked(e)
}

// saw notes a holder of permits, or that there are too few though none are held. mu held.
func (p *pool) saw(r protocol.Answer) {
	now := time.Now()
	p.seen = &failure.Sighting{Holder: r.Holder, About: r.About, At: now, Until: now.Add(max(0, r.Left))}
}

// endures: an outage only lengthens the wait. It ends the waits of those that have waited long enough for its
// end. mu held.
func (a *attempt) endures(o wire.Outcome, err error) bool {
	l := a.l
	stays := a.state == standing && strings.Contains(err.Error(), "OOM ") // the place does if Redis is full
	if !stays && !wire.Judge(err).Transient {
		return false
	}
	trouble := fmt.Errorf("%w%s", err, wire.Hint(err))
	for w := l.waiters.first; w != nil; {
		next := w.next
		c := w.a
		c.trouble = trouble
		if c.cfg.Impatient || !c.bounds.Endures(o.Failing, c.begun, l.p.s().Lease) {
			w.answer(nil, l.p.kind.Failed(l.p.keys, failure.Outage(o.Failing, err)))
		}
		w = next
	}
	l.trim()
	return true
}

// granted makes a grant of what Redis gave at base or later, for this lease. mu held.
func (a *attempt) granted(token int64, base time.Time, lease time.Duration) {
	l := a.l
	a.end(over) // a reply and a message may both bring the grant: one counts
	home := l
	if l.once && !l.p.kind.Fair { // other goroutines may have the grant after its own
		home = l.p.lane(l.want)
	}
	g, err := l.p.begin(home, a.owner, token, base, lease, a.lease)
	if a.mayLinger {
		a.has(g)
	}
	if err != nil {
		home.forget()
		a.giveBack()
		if err == ErrTooLate && a.expired < protocol.MaxExpired {
			a.askAgain() // its waiters are still there
		} else {
			l.fail(l.p.fail(err))
		}
		return
	}
	g.late = a.late // the release leaves a tombstone for copies that are under way
	l.give(g)
}

// askAgain makes another attempt for those that wait. mu held.
func (a *attempt) askAgain() {
	l := a.l
	if l.p.asking == a { // before other lanes
		l.p.asking = nil
	}
	if l.wanting() {
		again := l.begin()
		again.expired = a.expired + 1
		l.p.s().Go(func() { again.run(false) })
	}
}

// extended has those that wait enter the grant that goes on. mu held.
func (a *attempt) extended(sent time.Time) {
	l, g := a.l, a.joins
	if !g.held() || l.live != g { // given back meanwhile
		l.ask()
		return
	}
	l.others = false        // the script lets it go on only while there is no queue
	g.since = l.p.s().Age() // readers may join for as long again
	l.since = g.since
	l.p.s().Watchdog.Extend(&g.lease, sent.Add(protocol.Valid(a.asksFor())))
	for l.waiters.n > 0 {
		l.admit(g)
	}
	l.trim()
}

// giveBack gives back, in the background, what the attempt may have. The caller must be counted in the
// session's work.
func (a *attempt) giveBack() {
	a.l.p.releaseLater(a.owner, "", a.late, time.Now().Add(a.asksFor()+a.l.p.s().Liveness))
}

// An attempt is a recipient.

// Told is 'TOKEN NOW LEASE NONCE' of a grant, 'LEFT' to the next in the queue, until a lease ends, or nothing
// if another session wants the grant. A grant counts only with the attempt's nonce, which only Redis was
// told. To look costs no more than a request.
func (a *attempt) Told(words []string) {
	a.asker.Told(words)
	p := a.l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(words) == 1:
		if left, ok := protocol.Remaining(words[0]); ok {
			a.sooner(max(0, left) + time.Millisecond)
		}
	case len(words) == 4 && subtle.ConstantTimeCompare([]byte(a.nonce), []byte(words[3])) == 1:
		lease, ok := protocol.Remaining(words[2])
		if ok {
			since := protocol.GrantTime(protocol.TokenOrZero(words[1]), a.redis, a.base)
			a.told(protocol.TokenOrZero(words[0]), since, lease)
		}
	}
}

// told takes in a grant that a message or a reply to another request has brought. mu held.
func (a *attempt) told(token int64, since time.Time, lease time.Duration) {
	if a.state > standing || token <= a.past {
		return // an answer was first, no goroutine wants it, or it was over when an answer said to wait
	}
	if a.out { // it may arrive when the grant is over
		a.late = a.notAfter
	}
	if !time.Now().Before(since.Add(protocol.Valid(lease))) {
		a.sooner(0) // or so it seems: it asks, and gets the whole lease if it has it still
		return
	}
	a.granted(token, since, lease)
	a.firstAnswered()
	a.wake() // run may be asleep, and is to end
}

// Missed has it ask: a message may have been lost.
func (a *attempt) Missed() {
	a.asker.Missed()
	a.l.p.mu.Lock()
	defer a.l.p.mu.Unlock()
	a.sooner(0)
}

// observe tells the observer.
func (p *pool) observe(ctx context.Context, e session.Event) {
	p.s().Observe(ctx, p.kind.Letter, p.keys.Name, e)
}

// fail puts the name before an error.
func (p *pool) fail(err error) error { return p.kind.Named(p.keys.Name, err) }
