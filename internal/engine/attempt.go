package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// attemptState is what an attempt is doing. It changes in stands, giveUp and end.
type attemptState uint8

const (
	asking   attemptState = iota // its first request is under way
	standing                     // in Redis' queue: it asks again now and then
	unwanted                     // no goroutine waits for it: it gives up what it has
	over                         // what comes now is given back
)

func (s attemptState) String() string {
	return [...]string{"asking", "standing", "unwanted", "over"}[s]
}

// attempt asks Redis for what a lane wants, one request at a time. A goroutine of its own sends them (run),
// but mostly the first one is sent by a goroutine that waits (start).
type attempt struct {
	// What follows never changes.
	l     *lane
	lease time.Duration // that one goroutine chose for itself; 0: the session's
	nonce string        // cannot be guessed, so a message that has it is Redis' own; "": it never stands
	joins *Grant        // that may go on instead, if no other waits; nil: none
	owner any           // string
	info  any           // string: holder info, with the note of the call that the attempt was made for

	left    atomic.Bool     // no goroutine waits for it: do not send again
	ctx     context.Context // for traces; the goroutine that sends its requests has it, and what follows
	earlier error           // of a copy that was not answered

	// pool.mu guards the following.
	state    attemptState
	out      bool      // a request may be under way: a copy may come after the message of a grant
	at       time.Time // when to ask again at the latest; zero: nothing has said so
	notAfter int64     // Redis time after which the last copy that was sent counts no more
	late     int64     // Redis time until which a copy that was not answered may come; 0: there is none
	moved    time.Time // when it began, or was given up
	inRedis  bool      // it may have what it wants, or a place in the queue

	// The last answer that said to wait. The first two date a grant that a message brings. Its token is
	// higher than the third, or it is older than that answer.
	base  time.Time // before its request was sent; before there is one, the beginning of the attempt
	redis int64     // the Redis time in it; 0: there is none
	past  int64     // the token that was in use

	expired   int           // how often in a row a request came too late
	mayLinger bool          // the session may keep the grant while no goroutine has it
	wanted    bool          // but another session may have been refused before the grant was there
	size      int           // how many goroutines waited when it first asked
	changed   chan struct{} // cap 1: look at what has changed; nil before it rests
	gone      chan struct{} // closed when it has ended in Redis; nil until it is given up
}

// newAttempt is one of the lane, which the caller starts or runs. mu held.
func (l *lane) newAttempt() *attempt {
	p := l.p
	first := l.first()
	a, now, note := &first.at, time.Now(), l.waiters[len(l.attempts)].a.cfg.Note // see wanting
	if first.asked {
		a = new(attempt)
	}
	first.asked = true
	*a = attempt{
		l: l, lease: first.cfg.Lease, base: now, moved: now,
		owner: p.s.Attempt(), info: p.s.Args.Info(note),
		// The context is for traces. Its end must not end a request that is made for the lane.
		ctx: first.ctx, joins: l.live,
	}
	l.attempts = append(l.attempts, a)
	if !l.once {
		a.nonce = rand.Text()
		if p.kind.Fair {
			p.asking = a
		}
	}
	// Before the first request: a message may overtake the reply.
	p.all.inbox.add(a.owner.(string), a)
	if p.kind.Alone { // what it gets may be given back
		p.attempts = append(p.attempts, a)
	}
	p.retain() // run or start drops it
	return a
}

// start sends the first request of the attempt in the caller's goroutine, which waits for it until until
// ends, unless that could take longer. If the reply does not settle what becomes of the attempt, start leaves
// it to a goroutine of its own. The caller must be counted in the session's work.
func (a *attempt) start(until context.Context) {
	p := a.l.p
	s := p.s
	if s.Link.NeedsGoroutine(until, p.keys.LockKey(), s.Lease) {
		s.Go(func() { a.run(false) })
		return
	}
	o := s.Link.Call(until, a, 1, &a.left)
	if !o.Again && !a.onReply(o) {
		a.finish()
		return
	}
	a.earlier = o.Unanswered
	s.Go(func() { a.run(!o.Again) })
}

// finish is its end in Redis, as far as that could be told.
func (a *attempt) finish() {
	p := a.l.p
	p.mu.Lock()
	if i := slices.Index(p.attempts, a); i >= 0 {
		p.attempts = slices.Delete(p.attempts, i, i+1)
		p.endsRelease()
	}
	if a.gone != nil {
		close(a.gone)
		if a.l.want.exclusive() && !p.kind.Fair {
			a.l.leaving--
			a.l.askNow()
			a.l.forget()
		}
	}
	p.mu.Unlock()
	p.drop()
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
	if !a.mayLinger { // else the grant takes its place
		l.p.all.inbox.remove(a.owner.(string)) // from now on no message can grant it anything
	}
}

// giveUp has the attempt's goroutine give up what it has. mu held.
func (a *attempt) giveUp() {
	if seen := a.l.p.seen; a.state == standing && seen != nil {
		seen.At = time.Now() // the lock was another's until now: that is no outage for those that still wait
	}
	a.end(unwanted)
	a.moved = time.Now()
	a.left.Store(true) // not even a copy of its request
	a.gone = make(chan struct{})
	if a.l.want.exclusive() && !a.l.p.kind.Fair {
		a.l.leaving++
	}
	a.wake()
	a.firstAnswered()
}

func (a *attempt) wake() {
	select {
	case a.changed <- struct{}{}:
	default: // it does not rest yet, or will look anyway
	}
}

// asksFor is the lease that it wants.
func (a *attempt) asksFor() time.Duration { return cmp.Or(a.lease, a.l.p.s.Lease) }

// Request makes a copy of its request.
func (a *attempt) Request(now time.Time) *wire.Request {
	p := a.l.p
	s := p.s
	var until int64
	if t := s.Clock.Now(now); t != 0 { // else the reply brings the time
		// What is handed over expires with the liveness.
		until = t + protocol.Patience(min(a.asksFor(), s.Liveness)).Microseconds()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.out = true
	if p.kind.Fair && a.size == 0 {
		a.l.full, a.size = true, len(a.l.waiters)
	}
	if a.state < unwanted { // else nothing may come later than was said when it ended
		a.notAfter = max(a.notAfter, until)
	}
	joins := any("")
	if a.joins != nil && a.joins.held() { // else the script could prolong what is being released
		joins = a.joins.owner
	}
	args := &s.Args
	lease := args.Lease
	if a.lease != 0 {
		lease = protocol.Milliseconds(a.lease)
	}
	liveness, mode := args.Liveness, any("0")
	if a.l.once {
		liveness = "0" // no place in the queue
	}
	if !a.l.once || p.lingers(a.lease) {
		mode = p.all.inbox.mode(p.keys.LockKey())
	}
	argv := append(make([]any, 0, 13), // of constant size, it does not escape
		a.owner, max(a.size, 1), a.notAfter, lease, a.info, args.Keep, liveness, args.Channels,
		a.nonce, mode)
	quiet := any("")
	if p.lingers(a.lease) {
		quiet = args.Quiet
	}
	switch {
	case !p.kind.Counts:
		argv[1] = a.l.want.N
		argv = append(argv, quiet, a.l.want.Limit, joins)
	case quiet != "":
		argv = append(argv, quiet)
	}
	return p.keys.Request(acquireScript, argv...)
}

// run asks until it is known what becomes of the attempt; if it was answered before, after a rest.
func (a *attempt) run(rest bool) {
	p := a.l.p
	defer a.finish()
	p.mu.Lock()
	a.ctx, a.changed = context.WithoutCancel(a.ctx), make(chan struct{}, 1)
	p.mu.Unlock()
	for ; !rest || a.rest(); rest = true {
		o := p.s.Link.Call(a.ctx, a, wire.Tries, &a.left)
		o.Unanswered, a.earlier = cmp.Or(o.Unanswered, a.earlier), nil
		if !a.onReply(o) {
			return
		}
	}
}

// onReply takes in how its request ended, and reports whether there is more to do.
func (a *attempt) onReply(o wire.Outcome) (again bool) {
	l := a.l
	p := l.p
	r, err := p.read(o, a)
	if r.Status == protocol.Queued && !l.once { // only attempts that stand are told by message
		p.hear(r, o.Sent)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if !again || a.state != asking {
			a.firstAnswered()
		}
	}()
	a.out = false
	if o.Unanswered != nil {
		a.late = a.notAfter // a copy may still come until then
	}
	a.inRedis = a.inRedis || r.Status == protocol.Granted ||
		r.Status == protocol.Queued && !l.once || o.Err != nil && wire.Judge(o.Err).Unknown
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
		err = p.fail(protocol.TooLate(min(a.asksFor(), p.s.Liveness)))
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

// hear makes the session listen for messages about the name, as a reply said that was asked for at sent.
func (p *pool) hear(r protocol.Answer, sent time.Time) {
	p.all.inbox.listen(p.keys.LockKey(), r.Sharded)
	if r.Deaf {
		p.all.inbox.unheard(p.keys.LockKey(), sent)
	}
}

// read reads the reply to a request of an attempt, or of none, and delivers what others were served. mu is
// not held.
func (p *pool) read(o wire.Outcome, of *attempt) (protocol.Answer, error) {
	r, err := protocol.Read(o)
	if o.Unanswered != nil { // the lost reply may have told of a grant to another attempt of this session
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
		p.s.Clock.Heard(r.Now, o.Sent)
	}
	for _, s := range r.Served {
		p.deliver(s, o.Sent) // it was served after the request had left
	}
	if r.Status == protocol.Granted && (r.MayLinger || r.Deaf) { // else it says nothing of how to listen
		p.hear(r, o.Sent)
	}
	if r.Status == protocol.Queued { // what was free may have gone to another attempt of this session
		p.deliver(protocol.Served{Owner: r.Holder, Token: r.Token, Lease: r.Left}, o.Sent)
	}
	return r, nil
}

// deliver gives a grant to the attempt that it is for, if that still waits here: else it was told by message,
// or is being given up. mu is not held.
func (p *pool) deliver(s protocol.Served, since time.Time) {
	if a, ok := p.all.inbox.find(s.Owner).(*attempt); ok {
		a.l.p.mu.Lock()
		a.receive(s.Token, since, s.Lease)
		a.l.p.mu.Unlock()
	}
}

// rest waits until it is time to ask again, and reports false if the attempt is over.
func (a *attempt) rest() bool {
	p := a.l.p
	for {
		p.mu.Lock()
		state, late, d := a.state, a.late, time.Until(a.at)
		gives := a.mayHave()
		if d <= 0 {
			a.at, a.out = time.Time{}, true // a grant that comes before the request is made must know of it
		}
		p.mu.Unlock()
		switch {
		case state == over:
			return false
		case state == unwanted && !gives:
			return false
		case state == unwanted:
			// A place may be granted as late as its liveness ends.
			r := p.releaseRequest(a.owner, "", late, "")
			p.repeat(&r, time.Now().Add(a.asksFor()+p.s.Liveness))
			return false
		case d <= 0:
			return true
		}
		t := time.NewTimer(d)
		select {
		case <-a.changed: // its state or its time has changed
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
	l.p.rivals = l.p.rivals || !l.p.s.Owns(r.Holder)
	now := time.Now()
	l.p.seen = &failure.Sighting{Holder: r.Holder, About: r.About, At: now, Until: now.Add(max(0, r.Left))}
	a.expired = 0
	a.base, a.redis, a.past = o.Sent, r.Now, max(a.past, r.Token)
	d := l.p.s.Liveness / 5 * 3 // which leaves time to repeat it
	switch {
	case r.Left < 0 || r.Behind:
	case r.Spare:
		d = min(d, r.Left+protocol.SpareDelay)
	default:
		d = min(d, r.Left+time.Millisecond)
	}
	a.sooner(d)
	if l.p.s.Observer != nil { // which learns that they wait
		for _, w := range l.waiters {
			w.queued()
		}
	}
}

// refused is the error of one that asks once: it is not free. mu held.
func (l *lane) refused(r protocol.Answer) error {
	e := r.Locked(l.p.keys.Name)
	if len(l.waiters) > 0 && l.p.s.Holds(r.Holder) { // else it has left
		e.Hint = l.first().hint(l.p.grantOf(r.Holder))
	}
	return l.p.kind.locked(e)
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
	for _, w := range slices.Clone(l.waiters) { // an answer takes one out
		c := w.a
		c.trouble = trouble
		if c.cfg.Impatient || !c.bounds.Endures(o.Failing, c.begun, l.p.s.Lease) {
			l.answer(w, nil, l.p.kind.Failed(l.p.keys, failure.Outage(o.Failing, err)))
		}
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
	g, err := l.p.newGrant(home, a.owner, a.info, token, base, lease, a.lease)
	in := l.p.all.inbox
	switch keeps := a.mayLinger && !a.wanted && err == nil; {
	case keeps:
		in.add(a.owner.(string), g)
		g.lingers, l.p.rivals = true, false
	case a.mayLinger:
		in.remove(a.owner.(string))
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
		again := l.newAttempt()
		again.expired = a.expired + 1
		l.p.s.Go(func() { again.run(false) })
	}
}

// extended has those that wait enter the grant that goes on. mu held.
func (a *attempt) extended(sent time.Time) {
	l, g := a.l, a.joins
	if !g.held() || g.l.live != g { // given back meanwhile
		l.ask()
		return
	}
	l.others = false      // the script lets it go on only while there is no queue
	g.since = l.p.s.Age() // readers may join for as long again
	l.p.s.Watchdog.Extend(&g.lease, sent.Add(protocol.Valid(a.asksFor())))
	for len(l.waiters) > 0 {
		l.admit(g)
	}
	l.trim()
}

// giveBack gives back, in the background, what the attempt may have. The caller must be counted in the
// session's work.
func (a *attempt) giveBack() {
	p := a.l.p
	r := p.releaseRequest(a.owner, "", a.late, "")
	p.repeatLater(&r, time.Now().Add(a.asksFor()+p.s.Liveness))
}

// An attempt is a recipient.

func (a *attempt) Key() string { return a.l.p.keys.LockKey() }

// Told is 'TOKEN NOW LEASE NONCE' of a grant, or 'LEFT' to the next in the queue, until a lease ends. Without
// words, another session wants the grant, or messages may have been missed. A grant counts only with the
// attempt's nonce, which only Redis was told. To look costs no more than a request.
func (a *attempt) Told(words []string) {
	p := a.l.p
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case len(words) == 0:
		a.wanted = true
		if g := p.grantOf(a.owner.(string)); g != nil {
			g.wanted()
		}
		a.sooner(0)
	case len(words) == 1:
		if left, ok := protocol.Remaining(words[0]); ok {
			a.sooner(max(0, left) + time.Millisecond)
		}
	case len(words) == 4 && subtle.ConstantTimeCompare([]byte(a.nonce), []byte(words[3])) == 1:
		lease, ok := protocol.Remaining(words[2])
		if ok {
			since := protocol.GrantTime(protocol.TokenOrZero(words[1]), a.redis, a.base)
			a.receive(protocol.TokenOrZero(words[0]), since, lease)
		}
	}
}

// receive takes in a grant that a message or a reply to another request has brought. mu held.
func (a *attempt) receive(token int64, since time.Time, lease time.Duration) {
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

// observe tells the observer.
func (p *pool) observe(ctx context.Context, e session.Event) {
	p.s.Observe(ctx, p.kind.Letter, p.keys.Name, e)
}

// fail puts the name before an error.
func (p *pool) fail(err error) error { return p.kind.Named(p.keys.Name, err) }
