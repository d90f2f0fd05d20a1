package permit

import (
	"cmp"
	"context"
	"crypto/subtle"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// attemptState is what an attempt is doing. It changes in begin, answered, giveUp and end.
type attemptState uint8

const (
	asking   attemptState = iota // its first request is under way
	standing                     // in Redis' queue: it asks again now and then, which keeps its place
	unwanted                     // its caller has gone: its goroutine gives up what it has
	over                         // what comes now is given back
)

func (s attemptState) String() string {
	return [...]string{"asking", "standing", "unwanted", "over"}[s]
}

// attempt asks Redis for what a lane wants. A goroutine of its own sends its requests, one at a time (run),
// but the first unless Redis is silent.
type attempt struct {
	// What follows never changes.
	l     *lane
	owner any // string
	nonce string
	ctx   context.Context
	joins *Grant        // that may go on instead, if no other waits; nil: none
	gone  chan struct{} // closed when run or start returns
	news  chan struct{} // cap 1: look at what follows

	left    atomic.Bool // its caller has gone: do not send again
	earlier error       // of a copy that was not answered; the goroutine that sends its requests has it

	// pool.mu guards the following.
	state    attemptState
	out      bool      // a request is under way: a copy may come after a grant that a message tells of
	at       time.Time // when to ask again at the latest; zero: nothing has said so
	notAfter int64     // of the last copy sent
	late     int64     // Redis time until which an unanswered copy may come; 0: there is none
	past     int64     // a token that was in use by the time of an answer that said to wait
	base     time.Time // before the last request was sent that was answered, or the first one
	redis    int64     // the Redis time in that answer; 0: there is none
	expired  int       // how often in a row a request came too late
}

// begin begins an attempt of the lane, which the caller starts or runs. mu held.
func (l *lane) begin() *attempt {
	p := l.p
	a := &attempt{
		l: l, owner: p.s().Attempt(), nonce: inbox.NewNonce(), base: time.Now(),
		// The context is for traces. Its end must not end a request that is made for the lane.
		ctx: context.WithoutCancel(l.waiters.First().For.(*acquisition).ctx), joins: l.live, gone: make(chan struct{}), news: make(chan struct{}, 1),
	}
	l.attempts = append(l.attempts, a)
	p.all.inbox.Add(a.owner.(string), a) // before the first request: a message may overtake the answer
	p.keep()                             // run or start drops it
	return a
}

// start has a goroutine run it, unless its first request settles it: that is sent here, in the goroutine of
// one that waits for it until until ends, unless Redis is silent. The caller must be counted in the session's
// work.
func (a *attempt) start(until context.Context) {
	p := a.l.p
	s := p.s()
	if p.silent(until) {
		s.Go(func() { a.run(false) })
		return
	}
	o := s.Link.Call(until, acquireScript, a, 1, &a.left)
	if !o.Again && !a.took(o) {
		close(a.gone)
		p.drop()
		return
	}
	a.earlier = o.Unanswered
	s.Go(func() { a.run(!o.Again) })
}

// end ends the attempt as far as the lane is concerned. mu held.
func (a *attempt) end(to attemptState) {
	l := a.l
	if i := slices.Index(l.attempts, a); i >= 0 {
		l.attempts = slices.Delete(l.attempts, i, i+1)
	}
	if a.state == standing {
		l.standing--
	}
	a.state = to
	l.p.all.inbox.Remove(a.owner.(string)) // from now on no message can grant it anything
}

// giveUp has the attempt's goroutine give up what it has. mu held.
func (a *attempt) giveUp() {
	a.end(unwanted)
	a.left.Store(true) // not even a copy of its request
	a.wake()
}

func (a *attempt) wake() {
	select {
	case a.news <- struct{}{}:
	default: // it will look anyway
	}
}

// lease is what it asks for.
func (a *attempt) lease() time.Duration { return a.l.want.lease(a.l.p.s()) }

// Request makes a copy of its request.
func (a *attempt) Request(now time.Time) wire.Request {
	p := a.l.p
	s := p.s()
	var until int64
	if t := s.Clock.Now(now); t != 0 { // else the reply brings the time
		// What is handed over expires with the liveness.
		until = t + protocol.Patience(min(a.lease(), s.Liveness)).Microseconds()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.out = true
	if a.state < unwanted { // else nothing may come later than was said when it ended
		a.notAfter = max(a.notAfter, until)
	}
	joins := any("")
	if a.joins != nil && a.joins.held() { // else the script could prolong what is being released
		joins = a.joins.owner
	}
	return p.acquireRequest(a.l.want, a.owner, a.notAfter, s.Args.Liveness, a.nonce, p.all.inbox.Mode(p.keys.Lock()), joins)
}

// acquireRequest is a call of acquireScript.
func (p *pool) acquireRequest(w Want, owner any, notAfter int64, liveness any, nonce string, mode, joins any) wire.Request {
	s := p.s()
	lease := s.Args.Lease
	if w.Lease != 0 {
		lease = protocol.Milliseconds(w.Lease)
	}
	return p.keys.Request(acquireScript, owner, w.N, notAfter, lease, s.Args.About, s.Args.Keep, liveness, s.Args.Channels, nonce, mode, w.Limit, joins)
}

// run asks until it is known what becomes of the attempt; if it was answered before, after a rest.
func (a *attempt) run(rest bool) {
	p := a.l.p
	defer p.drop()
	defer close(a.gone)
	for ; !rest || a.rest(); rest = true {
		o := p.s().Link.Call(a.ctx, acquireScript, a, wire.Tries, &a.left)
		o.Unanswered, a.earlier = cmp.Or(o.Unanswered, a.earlier), nil
		if !a.took(o) {
			return
		}
	}
}

// took takes in how its request ended, and reports whether there is more to do.
func (a *attempt) took(o wire.Outcome) (again bool) {
	p := a.l.p
	r, err := p.took(o, a)
	if r.Status == protocol.Queued {
		p.all.inbox.Listen(p.keys.Lock()) // only attempts in the queue are told by message
		if r.Deaf {
			p.all.inbox.Unheard(p.keys.Lock(), o.Sent)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return a.answered(o, r, err)
}

// took reads the reply to a request of an attempt, or of none, and delivers what others were served. mu is
// not held.
func (p *pool) took(o wire.Outcome, of *attempt) (protocol.Answer, error) {
	r, err := protocol.Read(o)
	if o.Unanswered != nil { // the reply that was lost may have told of a grant to another attempt of this session
		p.mu.Lock()
		for _, l := range p.lanes {
			for _, a := range l.attempts {
				if a != of {
					a.sooner(0)
				}
			}
		}
		p.mu.Unlock()
	}
	if err != nil {
		return r, err
	}
	if r.Now != 0 {
		p.s().Clock.Heard(r.Now, o.Sent)
	}
	for _, s := range r.Served {
		if a, ok := p.all.inbox.Find(s.Owner).(*attempt); ok { // else it was told by message, or is being given up
			a.l.p.mu.Lock()
			a.told(s.Token, o.Sent, s.Lease) // it was served after the request had left
			a.l.p.mu.Unlock()
		}
	}
	return r, nil
}

// rest waits until it is time to ask again, and reports false if the attempt is over.
func (a *attempt) rest() bool {
	p := a.l.p
	for {
		p.mu.Lock()
		state, late, d := a.state, a.late, time.Until(a.at)
		if d <= 0 {
			a.at = time.Time{}
		}
		p.mu.Unlock()
		switch {
		case state == over:
			return false
		case state == unwanted:
			p.releaseUntilDone(a.owner, late, time.Now().Add(a.lease()+p.s().Liveness)) // a place may be granted as late as its liveness ends
			return false
		case d <= 0:
			return true
		}
		t := time.NewTimer(d)
		select {
		case <-a.news: // its state or its time has changed
		case <-t.C:
		}
		t.Stop()
	}
}

// sooner has it ask again after d, if it would ask later. mu held.
func (a *attempt) sooner(d time.Duration) {
	if at := time.Now().Add(d); a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.wake()
	}
}

// answered takes in the answer to its request, and reports whether there is more to do. mu held.
func (a *attempt) answered(o wire.Outcome, r protocol.Answer, err error) (again bool) {
	l := a.l
	p := l.p
	a.out = false
	if o.Unanswered != nil {
		a.late = a.notAfter // a copy may still come until then
	}
	switch {
	case a.state == over: // told of a grant while the request was under way
		return false
	case a.state == unwanted:
		// It may stand in the queue, or hold something: rest gives it up.
		return a.mayHave(err) || r.Status == protocol.Queued || r.Status == protocol.Granted
	case r.Status == protocol.Expired && a.expired < protocol.MaxExpired:
		a.expired++
		a.at = time.Now() // the answer has brought the time
		return true
	case err != nil && a.endures(o, err):
		a.at = time.Now().Add(wire.Backoff(2, 20*time.Millisecond, time.Second))
		return a.state != unwanted || a.mayHave(err)
	}
	switch {
	case err != nil:
		err = p.kind.Failed(p.keys, err)
	case r.Status == protocol.Expired:
		err = p.fail(protocol.TooLate(a.lease()))
	case r.Status == protocol.Stale:
		err = p.fail(protocol.ErrOver)
	case r.Status == protocol.Limited:
		err = p.kind.Limited(p.keys.Name, l.want, r.Limit)
	}
	switch {
	case err != nil || r.Status == protocol.GoesOn:
		a.end(over)
		if a.mayHave(o.Err) {
			a.release()
		}
		if err == nil {
			a.extended(o.Sent)
		} else {
			l.fail(err)
		}
		return false
	case r.Status == protocol.Granted:
		if a.state == asking {
			l.others = false // it did not have to wait
		}
		a.granted(r.Token, o.Sent, a.lease())
		return false
	}
	a.stands(o, r)
	return true
}

// mayHave: it may have permits, or a place in the queue, or get them by a copy of its request. err is that of
// the last copy. mu held.
func (a *attempt) mayHave(err error) bool {
	return a.redis != 0 || a.late != 0 || err != nil && wire.Judge(err).Unknown
}

// stands notes that it is in the queue. mu held.
func (a *attempt) stands(o wire.Outcome, r protocol.Answer) {
	l := a.l
	if a.state == asking {
		a.state = standing
		l.standing++
	}
	l.others = true // from now on the lane has one attempt at a time
	l.p.saw(r)
	a.expired = 0
	a.base, a.redis, a.past = o.Sent, r.Now, max(a.past, r.Token)
	d := l.p.s().Liveness / 5 * 3 // which leaves time to repeat it
	if r.Left >= 0 && !r.Behind {
		d = min(d, r.Left+time.Millisecond)
	}
	a.sooner(d)
	if l.p.s().Observer != nil { // which learns that they wait
		for w := l.waiters.First(); w != nil; w = w.Next() {
			w.Queued()
		}
	}
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
	stays := a.state == standing && strings.Contains(err.Error(), "OOM ") // the place does where Redis is full
	if !stays && !wire.Judge(err).Transient {
		return false
	}
	for w := l.waiters.First(); w != nil; {
		next := w.Next()
		c := w.For.(*acquisition)
		c.trouble = err
		if !c.bounds.Endures(o.Failing, c.begun, l.p.s().Lease) {
			w.Answer(handoff{Err: l.p.kind.Failed(l.p.keys, failure.Outage(o.Failing, err))})
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
	g := l.p.begin(l, a.owner, token, base, lease)
	if g == nil { // too late, or the session closes
		a.release()
		l.ask() // its waiters are still there
		return
	}
	g.late = a.late // the release leaves a tombstone for copies that are under way
	l.give(g)
}

// extended has those that wait enter the grant that goes on. mu held.
func (a *attempt) extended(sent time.Time) {
	l, g := a.l, a.joins
	if !g.held() || l.live != g { // given back meanwhile
		l.ask()
		return
	}
	l.others = false     // the script lets it go on only while there is no queue
	g.since = time.Now() // readers may join for as long again
	l.since = g.since
	l.p.s().Watchdog.Extend(&g.lease, sent.Add(protocol.Valid(a.lease())))
	for l.waiters.Len() > 0 {
		l.admit(g)
	}
	l.trim()
}

// release gives back, in the background, what the attempt may have. The caller must be counted in the
// session's work.
func (a *attempt) release() {
	a.l.p.releaseLater(a.owner, a.late, time.Now().Add(a.lease()+a.l.p.s().Liveness))
}

// An attempt is an inbox.Attempt.

// Key is the holders' key.
func (a *attempt) Key() string { return a.l.p.keys.Lock() }

// Told is 'TOKEN NOW LEASE NONCE' of a grant, or 'LEFT' to the next in the queue, until a lease ends. A grant
// counts only with the attempt's nonce, which only Redis was told. To look costs no more than a request.
func (a *attempt) Told(words []string) {
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
			a.told(protocol.TokenOrZero(words[0]), protocol.GrantTime(protocol.TokenOrZero(words[1]), a.redis, a.base), lease)
		}
	}
}

// told is news of a grant. mu held.
func (a *attempt) told(token int64, since time.Time, lease time.Duration) {
	if a.state > standing || token <= a.past { // an answer was first, no goroutine wants it, or it was over when an answer said to wait
		return
	}
	if a.out { // it may arrive when the grant is over
		a.late = a.notAfter
	}
	if !time.Now().Before(since.Add(protocol.Valid(lease))) { // or so it seems: it asks, and gets the whole lease if it has it still
		a.sooner(0)
		return
	}
	a.granted(token, since, lease)
	a.wake() // run may be asleep, and is to end
}

// Missed has it ask: a message may have been lost.
func (a *attempt) Missed() {
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
