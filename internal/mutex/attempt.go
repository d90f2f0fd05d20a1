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

// attemptState is what an attempt is doing. It changes in begin, refused and end.
type attemptState uint8

const (
	asking   attemptState = iota // its first request is under way
	standing                     // in Redis' queue: it asks again now and then, which keeps its place
	over                         // granted, failed or withdrawn: a grant that comes later goes to no goroutine
)

func (s attemptState) String() string { return [...]string{"asking", "standing", "over"}[s] }

// attempt is one attempt in Redis, and the goroutines that wait with it. It has one request under way at a
// time.
type attempt struct {
	l         *Lock
	lease     time.Duration // fixed, as the only member wants it; 0: the session's
	abandoned atomic.Bool   // its answer is not needed any more: do not send again

	// What follows is set with Lock.Mu held before a copy of the request is sent, and does not change then.
	ctx   context.Context // of the copy: its first member's, or one that does not end
	nonce string          // proves that a message about the attempt is Redis' own
	size  int             // how many members it had when it asked

	// Lock.Mu guards the following.
	state    attemptState
	out      bool           // a request is under way: a copy may come after a grant that a message tells of
	notAfter int64          // of the last copy sent
	grant    protocol.Grant // its owner field does not change
	members  List
	began    time.Time     // before the first request was sent
	base     time.Time     // before the last request was sent that Redis answered
	redis    int64         // the Redis time in that answer, in microseconds; 0: there is none
	past     int64         // the token which that answer named: a grant that is not above it is over
	expired  int           // how often in a row a grant or request came too late
	at       time.Time     // when to ask again at the latest; zero: nothing has said so
	timer    *time.Timer   // for that; nil before it stands
	gone     chan struct{} // closed when the place was given up, or could not be at the first try; nil if no goroutine waits for that
}

// maxMembers bounds how many wait with an attempt, for their tokens must fit into a block.
const maxMembers = protocol.Block

func (a *attempt) owner() string { return a.grant.Owner.(string) }

// form makes an attempt of the goroutines that wait for the next one. The caller starts or runs it. nil:
// there are none, or the one before is still asking. Mu held.
func (l *Lock) form() *attempt {
	w := l.forming.First()
	l.expect = 0 // goroutines that come later ask at once
	if l.asking != nil || w == nil {
		return nil
	}
	first := w.For.(*Acquisition)
	a := &attempt{l: l, ctx: first.Until, lease: first.Config.Lease}
	a.fill()
	a.begin()
	return a
}

// fill has the goroutines that wait for the next attempt join this one. Mu held.
func (a *attempt) fill() {
	if a.abandoned.Load() {
		return
	}
	for w := a.l.forming.First(); w != nil && a.members.Len() < maxMembers; w = a.l.forming.First() {
		if a.members.Len() > 0 {
			if a.lease != 0 || w.Fixed {
				break // a lease of its own choice is a grant of its own
			}
			a.outliveMember()
		}
		w.Withdraw()
		w.Place = a
		a.members.Push(w)
	}
	a.size = a.members.Len()
}

// outliveMember has the request go on though its first member leaves: the answer is the others', too, and
// go-redis may end the reading with a context. Mu held.
func (a *attempt) outliveMember() {
	if a.ctx.Done() != nil {
		a.ctx = context.WithoutCancel(a.ctx)
	}
}

// begin gives it its owner field. The caller starts or runs it, and must be counted in the session's work. Mu
// held.
func (a *attempt) begin() {
	l := a.l
	a.grant = protocol.Grant{Owner: l.S().Attempt(), Token: ""}
	a.nonce = inbox.NewNonce()
	a.out = true
	a.began = time.Now()
	a.base = a.began
	l.asking = a
	l.standing = append(l.standing, a)
	l.table.inbox.Add(a.owner(), a)
	l.S().Add(1)
	l.Keep() // until the request is answered: it is rolled back if no goroutine waits for it any more
}

// end ends the attempt as far as this session is concerned: a grant that comes later goes to no goroutine. A
// copy of its request may still come if one is under way. Mu held.
func (a *attempt) end() {
	l := a.l
	a.state = over
	if a.out {
		a.abandoned.Store(true)
		a.grant.Late = a.notAfter
	}
	l.table.inbox.Remove(a.owner())
	if i := slices.Index(l.standing, a); i >= 0 {
		l.standing = slices.Delete(l.standing, i, i+1)
	}
	if len(l.standing) == 0 {
		l.standing = nil // very many locks may be held
	}
	if a.timer != nil {
		a.timer.Stop()
	}
}

// withdraw ends an attempt that may stand in the queue, or hold the lock by now. The caller must be counted
// in the session's work. Mu held.
func (a *attempt) withdraw() {
	a.end()
	a.l.ReleaseUntilDone(a.grant, time.Now().Add(a.asksFor()+a.l.S().Liveness), a.gone)
}

// memberLeft is called when a member has gone. If it was the last one, the place is given up, which ends with
// the channel that is returned. Mu held.
func (a *attempt) memberLeft() (gone <-chan struct{}) {
	if a.members.First() != nil || a.takeIn() {
		return nil
	}
	if a.state != over {
		defer a.l.vacate()
	}
	switch a.state {
	case asking: // the answer withdraws
		a.gone = make(chan struct{})
		a.abandoned.Store(true)
		a.answeredFirst()
	case standing:
		a.gone = make(chan struct{})
		a.withdraw()
	}
	return a.gone
}

// answeredFirst lets the next attempt ask: this one's first request is answered, or will be without an effect
// on it. Mu held.
func (a *attempt) answeredFirst() {
	if a.l.asking == a {
		a.l.asking = nil
		a.l.ask()
	}
}

// asksFor is the lease that it wants.
func (a *attempt) asksFor() time.Duration {
	if a.lease != 0 {
		return a.lease
	}
	return a.l.S().Lease
}

// gather takes in the goroutines that came since.
func (a *attempt) gather() {
	runtime.Gosched()
	a.l.Mu.Lock()
	defer a.l.Mu.Unlock()
	if a.state == asking && a.grant.Late == 0 { // else it may stand in the queue already, and others behind it
		a.fill()
	}
}

// start sends the attempt's request, the first copy in the goroutine of a member that leaves when until ends,
// unless Redis is silent.
func (a *attempt) start(until context.Context) {
	l, s := a.l, a.l.S()
	if l.Silent(until) {
		go a.runFirst()
		return
	}
	if l.othersWant() { // else few others come, and yielding costs two thread wake-ups
		a.gather()
	}
	o := s.Link.Call(a.ctx, l.Kind.Acquire, a, 1, &a.abandoned)
	if o.Again && o.Unanswered != nil {
		l.Mu.Lock()
		a.grant.Late = a.notAfter
		l.Mu.Unlock()
	}
	if o.Again || a.took(o) {
		go a.runFirst()
		return
	}
	l.Drop()
	s.End()
}

// runFirst is run of its first request.
func (a *attempt) runFirst() {
	a.gather()
	a.l.Mu.Lock()
	a.outliveMember()
	a.l.Mu.Unlock()
	a.run()
}

// run sends the attempt's request until it is answered, and sees to what comes of it.
func (a *attempt) run() {
	l, s := a.l, a.l.S()
	defer s.End()
	defer l.Drop()
	for try, again := 1, true; again; try++ {
		o := s.Link.Call(a.ctx, l.Kind.Acquire, a, wire.Tries, &a.abandoned)
		again = a.took(o)
		if again && o.Err != nil && !wire.Pause(s.Ctx, wire.Backoff(try, 20*time.Millisecond, time.Second)) {
			a.abandoned.Store(true)
		}
	}
}

// sooner has it ask again after d, if it would ask later. Mu held.
func (a *attempt) sooner(d time.Duration) {
	if at := time.Now().Add(d); a.at.IsZero() || at.Before(a.at) {
		a.at = at
		a.rest()
	}
}

// rest sets the timer, unless the answer to a request is to do that. Mu held.
func (a *attempt) rest() {
	switch d := time.Until(a.at); {
	case a.state != standing || a.out:
	case a.timer == nil:
		a.timer = time.AfterFunc(d, a.askAgain)
	default:
		a.timer.Reset(d)
	}
}

// look has all but one ask again: they may have been granted the lock. Mu held.
func (l *Lock) look(but *attempt) {
	for _, a := range l.standing {
		if a != but {
			a.sooner(0)
		}
	}
}

// askAgain keeps the place of an attempt that stands, or learns of a grant of which no message came.
func (a *attempt) askAgain() {
	l, s := a.l, a.l.S()
	if !s.Begin() {
		return // those that wait learn it by their bounds
	}
	l.Mu.Lock()
	if a.state != standing || a.out {
		l.Mu.Unlock()
		s.End()
		return
	}
	a.out, a.at = true, time.Time{}
	a.ctx, a.size = s.Ctx, a.members.Len()
	l.Keep()
	l.Mu.Unlock()
	l.table.inbox.Listen(l.Keys.Lock()) // another server may have the lock by now
	a.run()
}

// took takes in how a request ended; true sends it again.
func (a *attempt) took(o wire.Outcome) (again bool) {
	l := a.l
	r, err := protocol.Read(o)
	if err == nil {
		l.S().Clock.Heard(r.Now, o.Sent)
	}
	if r.Status == protocol.Queued {
		l.deliver(r.Holder, awardOf(r, o.Sent)) // a free lock may have gone to an attempt of this session
		l.table.inbox.Listen(l.Keys.Lock())
		if r.Deaf {
			l.table.inbox.Unheard(l.Keys.Lock(), o.Sent)
		}
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return a.answered(o, r, err)
}

// Request makes a copy of the attempt's request.
func (a *attempt) Request(now time.Time) wire.Request {
	l := a.l
	s := l.S()
	lease := s.Args.Lease
	if a.lease != 0 {
		lease = a.lease.Milliseconds()
	}
	var until int64
	if t := s.Clock.Now(now); t != 0 {
		// What is handed over expires with the liveness.
		until = t + protocol.Patience(min(a.asksFor(), s.Liveness)).Microseconds()
	}
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if a.state != over { // else nothing may come later than was said when it ended
		a.notAfter = max(a.notAfter, until)
	}
	return l.Keys.Request(l.Kind.Acquire, a.grant.Owner, a.size, a.notAfter, lease, s.Args.About, s.Args.Keep,
		s.Args.Liveness, l.Keys.Channel, a.nonce, l.table.inbox.Mode(l.Keys.Lock()))
}
