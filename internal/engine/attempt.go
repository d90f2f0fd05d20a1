package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// attemptState is what an attempt is doing. It changes in begin, stands, giveUp and end.
type attemptState uint8

const (
	asking   attemptState = iota // its first request is under way
	standing                     // in Redis' queue, or listening: it asks again now and then
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

	asker

	left    atomic.Bool     // no goroutine waits for it: do not send again
	ctx     context.Context // for traces; the goroutine that sends its requests has it, and what follows
	earlier error           // of a copy that was not answered

	// pool.mu guards the following.
	state    attemptState
	out      bool          // a request may be under way: a copy may come after the message of a grant
	at       time.Time     // when to ask again at the latest; zero: nothing has said so
	notAfter int64         // of the last copy sent
	late     int64         // Redis time until which an unanswered copy may come; 0: there is none
	past     int64         // a token that was in use by the time of an answer that said to wait
	base     time.Time     // before the last request was sent that was answered, or the first one
	redis    int64         // the Redis time in that answer; 0: there is none
	inRedis  bool          // it may have what it wants, or a place in the queue
	expired  int           // how often in a row a request came too late
	size     int           // how many goroutines waited when it first asked
	changed  chan struct{} // cap 1: look at what has changed; nil before it rests
	gone     chan struct{} // closed when it has ended in Redis; nil until it is given up
}

// begin begins an attempt of the lane, which the caller starts or runs. mu held.
func (l *lane) begin() *attempt {
	p := l.p
	if l.attempts == nil {
		l.attempts = l.one[:0]
	}
	first := l.first()
	a := &first.at
	if first.asked {
		a = new(attempt)
	}
	first.asked = true
	*a = attempt{
		l: l, lease: first.cfg.Lease, base: time.Now(),
		asker: asker{p: p, owner: p.s().Attempt()},
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
	if !p.broadcast() {
		p.all.inbox.add(a.owner.(string), a) // before the first request: a message may overtake the answer
	}
	p.retain() // run or start drops it
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
	o := s.Link.Call(until, p.kind.Acquire, a, 1, &a.left)
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
	if a.gone != nil {
		close(a.gone)
	}
	if a.left.Load() && a.l.want.exclusive() && !p.kind.Fair {
		a.l.leaving--
		a.l.askNow()
		a.l.forget()
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
func (a *attempt) asksFor() time.Duration { return cmp.Or(a.lease, a.l.p.s().Lease) }

// Request makes a copy of its request.
func (a *attempt) Request(now time.Time) wire.Request {
	p := a.l.p
	s := p.s()
	var until int64
	if t := s.Clock.Now(now); t != 0 { // else the reply brings the time
		// What is handed over expires with the liveness.
		until = t + protocol.Patience(min(a.asksFor(), s.Liveness)).Microseconds()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.out = true
	if p.kind.Fair && a.size == 0 {
		a.l.full, a.size = true, a.l.waiters.n
	}
	p.ear.forget()
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
	switch {
	case a.l.once && !p.lingers(a.lease):
	case !p.broadcast():
		mode = p.all.inbox.mode(p.keys.Lock())
	case s.Link.Single():
		mode = "1"
	}
	argv := append(make([]any, 0, 13), // of constant size, it does not escape
		a.owner, max(a.size, 1), a.notAfter, lease, args.About, args.Keep, liveness, args.Channels,
		a.nonce, mode)
	if !p.kind.Counts {
		argv[1] = a.l.want.N
		argv = append(argv, a.l.want.Limit, joins)
	}
	if p.lingers(a.lease) {
		argv = append(argv, args.Quiet)
	}
	return p.keys.Request(p.kind.Acquire, argv...)
}

// run asks until it is known what becomes of the attempt; if it was answered before, after a rest.
func (a *attempt) run(rest bool) {
	p := a.l.p
	defer a.finish()
	p.mu.Lock()
	a.ctx, a.changed = context.WithoutCancel(a.ctx), make(chan struct{}, 1)
	p.mu.Unlock()
	for ; !rest || a.rest(); rest = true {
		o := p.s().Link.Call(a.ctx, p.kind.Acquire, a, wire.Tries, &a.left)
		o.Unanswered, a.earlier = cmp.Or(o.Unanswered, a.earlier), nil
		if !a.onReply(o) {
			return
		}
	}
}

// onReply takes in how its request ended, and reports whether there is more to do.
func (a *attempt) onReply(o wire.Outcome) (again bool) {
	p := a.l.p
	r, err := p.read(o, a)
	switch { // only attempts that stand are told by message
	case r.Status != protocol.Queued || a.l.once:
	case p.broadcast():
		p.listen(r, o.Sent)
	default:
		p.hear(r, o.Sent)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return a.answered(o, r, err)
}

// hear makes the session listen for messages about the name, as a reply said that was asked for at sent.
func (p *pool) hear(r protocol.Answer, sent time.Time) {
	p.all.inbox.listen(p.keys.Lock(), r.Sharded)
	if r.Deaf {
		p.all.inbox.unheard(p.keys.Lock(), sent)
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
		p.s().Clock.Heard(r.Now, o.Sent)
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
		a.told(s.Token, since, s.Lease)
		a.l.p.mu.Unlock()
	}
}

// rest waits until it is time to ask again, and reports false if the attempt is over.
func (a *attempt) rest() bool {
	p := a.l.p
	for {
		p.mu.Lock()
		state, late, d := a.state, a.late, time.Until(a.at)
		gives, published := a.mayHave(), p.ear.ready()
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
			p.releaseUntilDone(a.owner, "", late, time.Now().Add(a.asksFor()+p.s().Liveness))
			return false
		case d <= 0:
			return true
		}
		t := time.NewTimer(d)
		select {
		case <-a.changed: // its state or its time has changed
		case <-published:
			a.Missed()
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
