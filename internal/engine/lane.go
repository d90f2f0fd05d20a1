package engine

import (
	"slices"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
)

// lane is where those goroutines of a session wait that want the same of one name. One that asks once has a
// lane for itself, which the pool does not know. pool.mu guards it.
//
// There are never more attempts than goroutines that wait. While an attempt stands in Redis' queue, or Redis
// has last said that others wait, no further one is begun. So the session mostly has one place in the queue
// for each lane, and its goroutines take turns at it.
type lane struct {
	p        *pool
	want     Want
	waiters  []*waiter   // first come, first served
	attempts []*attempt  // that are asking or standing, the oldest first
	live     *Grant      // shared: the one that goroutines may join; nil if there is none
	delay    *time.Timer // until it asks; nil: it will not
	outage   *time.Timer // calls endWaitsInOutage; nil: no waiter without a deadline needs that
	standing int32       // how many attempts stand
	grants   int32       // how many are held
	leaving  int32       // exclusive, not fair: attempts that were given up, and have not ended
	once     bool        // it is of a goroutine that does not wait
	others   bool        // others wanted it when Redis was asked last
	full     bool        // of a fair kind: goroutines that come now make another lane

	// Where attempts and waiters begin: most lanes need no more.
	oneAttempt [1]*attempt
	oneWaiter  [1]*waiter
}

// Of a fair kind, only the queue in Redis says which goroutine of all sessions is next. So a lane is the
// goroutines that had come when its request left: it is full then, and goroutines that come later make the
// next lane. A grant passes in memory within its lane alone. One lane asks at a time (pool.asking), so that
// they stand in the queue in the order of their making. While the session has the lock, or stands in the
// queue, the next lane waits for so long to be joined by more goroutines. It costs them a later place by that
// at most. Without it, each goroutine of a busy session would cost two requests.
const forming = time.Millisecond

// lane finds a lane that takes in goroutines, or makes one. mu held.
func (p *pool) lane(w Want) *lane {
	for _, l := range slices.Backward(p.lanes) {
		if l.want == w && !l.full && !(p.kind.Fair && len(l.waiters) >= protocol.Block) {
			return l
		}
	}
	if n := len(p.lanes); n > 0 && p.kind.Fair {
		p.lanes[n-1].full = true // whatever comes now is behind those that wait there,
		p.lanes[n-1].askNow()    // which wait for no others any more
	}
	l := &p.one
	if l.p != nil {
		l = new(lane)
	}
	l.reset(p, w)
	p.lanes = append(p.lanes, l)
	return l
}

// reset makes it an empty lane.
func (l *lane) reset(p *pool, w Want) {
	*l = lane{p: p, want: w}
	l.attempts, l.waiters = l.oneAttempt[:0], l.oneWaiter[:0]
}

// ask begins attempts for those that wait, or does so later. The caller must be counted in the session's
// work. mu held.
func (l *lane) ask() {
	if !l.wanting() {
		return
	}
	switch d := l.patience(); {
	case d <= 0:
		l.askNow()
	case l.delay == nil:
		l.askAfter(d)
	}
}

// askNow begins them. mu held.
func (l *lane) askNow() {
	l.undelay()
	for l.wanting() {
		a := l.newAttempt()
		l.p.s.Go(func() { a.run(false) })
	}
}

// wanting: there are fewer attempts than may be. mu held.
func (l *lane) wanting() bool {
	if l.once {
		return len(l.attempts) < len(l.waiters)
	}
	most := len(l.waiters)
	if l.others || l.want.Shared || l.want.exclusive() { // one grant serves all, or one after the other
		most = min(most, 1)
	}
	return l.standing == 0 && len(l.attempts) < most && // one that stands is the place of the whole lane
		l.leaving == 0 && l.p.asking == nil && !l.served()
}

// served: a grant of this lane will pass to those that wait in it. If it ends before that, they ask. A lease
// that a goroutine chose is not passed on. mu held.
func (l *lane) served() bool {
	passes := func(g *Grant) bool { return g.l == l && !g.own && l.p.s.Age() >= g.stays }
	return l.want.exclusive() && l.first().cfg.Lease == 0 && slices.ContainsFunc(l.p.grants, passes)
}

// patience returns for how long goroutines wait for others before they ask. mu held.
func (l *lane) patience() time.Duration {
	if !l.once && l.p.kind.Fair && (len(l.p.grants) > 0 || len(l.p.lanes[0].attempts) > 0) {
		return forming
	}
	return 0
}

// askAfter makes it ask after d, and not before. mu held.
func (l *lane) askAfter(d time.Duration) {
	l.undelay()
	var delay *time.Timer
	delay = time.AfterFunc(d, func() { // the lane may be forgotten by then, and does not ask
		s := l.p.s
		if !s.Begin() {
			return // those that wait learn it by their bounds
		}
		defer s.End()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		if l.delay == delay {
			l.askNow()
		}
	})
	l.delay = delay
}

// firstAnswered lets the next lane ask: the first request of an attempt is answered, or will be without an
// effect on it. mu held.
func (a *attempt) firstAnswered() {
	p := a.l.p
	if p.asking == a {
		p.asking = nil
		for _, l := range slices.Clone(p.lanes) { // one that asks may be forgotten
			l.askNow()
		}
	}
}

// undelay ends that. mu held.
func (l *lane) undelay() {
	if l.delay != nil {
		l.delay.Stop()
		l.delay = nil
	}
}

// watchOutage makes sure that endWaitsInOutage runs, at the latest at this time or a lease from now. A failed
// request can end a wait in an outage, too (endures). The timer is for requests that are stuck for longer
// than the lease. One timer serves all waiters of the lane. A timer for each wait would cost a fifth of the
// speed at which goroutines of one session take turns. The caller must hold pool.mu.
func (l *lane) watchOutage(at time.Time) {
	if l.outage == nil {
		l.outage = time.AfterFunc(time.Until(at), l.endWaitsInOutage)
	}
}

// endWaitsInOutage ends those waits without a deadline that have been in an outage for the session's lease.
// If other such waits remain, it runs again when the first of them may have to end.
func (l *lane) endWaitsInOutage() {
	p := l.p
	if !p.s.Begin() {
		return // the waiters end because the session is closed
	}
	defer p.s.End()
	since, err := p.s.Link.Trouble(p.s.Ctx, p.keys.LockKey()) // without p.mu, since it may block
	p.mu.Lock()
	defer p.mu.Unlock()
	l.outage = nil
	for _, w := range slices.Clone(l.waiters) { // answer removes waiters
		if !w.a.unbounded() {
			continue
		}
		begun := since // of the outage, as far as it concerns this waiter
		if begun.Before(w.a.begun) {
			begun = w.a.begun
		}
		end := begun.Add(p.s.Lease)
		if err == nil {
			end = time.Now().Add(p.s.Lease)
		}
		if time.Until(end) > 0 {
			l.watchOutage(end)
		} else {
			l.answer(w, nil, p.kind.Failed(p.keys, failure.Outage(begun, err)))
		}
	}
	l.trim()
}

// trim gives up attempts that no goroutine waits for, or not with this lease, the youngest first. It returns
// the last of these, or nil. mu held.
func (l *lane) trim() (last *attempt) {
	for n := len(l.attempts); n > 0; n = len(l.attempts) {
		a := l.attempts[n-1]
		if n <= len(l.waiters) && (a.lease == l.first().cfg.Lease || !l.want.exclusive()) {
			break
		}
		last = a
		a.giveUp()
	}
	l.forget()
	return last
}

// forget drops a lane that nothing uses. mu held.
func (l *lane) forget() {
	if len(l.waiters) == 0 && len(l.attempts) == 0 && l.grants == 0 && l.leaving == 0 {
		l.undelay()
		if l.outage != nil {
			l.outage.Stop()
			l.outage = nil
		}
		if i := slices.Index(l.p.lanes, l); i >= 0 {
			l.p.lanes = slices.Delete(l.p.lanes, i, i+1)
		}
	}
}

// first is the acquisition that is next. A goroutine must wait. mu held.
func (l *lane) first() *acquisition { return l.waiters[0].a }

// joinable reports whether a goroutine may enter the live grant without asking: for a while after Redis was
// asked, or readers that come all the time would keep writers out. mu held.
func (l *lane) joinable() bool {
	g := l.live
	return g != nil && l.p.s.Age()-g.since < g.span() && g.lasts()
}

// give hands a grant to the goroutines that wait for it. If none waits, it is given back. The caller must be
// counted in the session's work. mu held.
func (l *lane) give(g *Grant) {
	switch {
	case len(l.waiters) == 0:
		g.releaseIdle()
	case l.want.Shared:
		g.l.live = g
		for len(l.waiters) > 0 {
			l.admit(g)
		}
	default:
		l.admit(g)
	}
	l.ask()
	l.trim()
}

// admit gives the first that waits an entry of a grant. mu held.
func (l *lane) admit(g *Grant) {
	g.entries++
	l.answer(l.waiters[0], g, nil)
}

// fail answers those that an attempt has asked for that there was an error. mu held.
func (l *lane) fail(err error) {
	for len(l.waiters) > 0 {
		l.answer(l.waiters[0], nil, err)
		if !l.want.Shared { // in other lanes, an attempt is for one waiter
			break
		}
	}
	l.ask()
	l.trim()
}

// waiter is an acquisition's place in a lane. It is answered once, or withdrawn.
type waiter struct {
	// What follows never changes once it waits, or listens.
	a     *acquisition
	ready chan news // nil until it listens; has room for one queued, and then the answer

	// The answer. It is set before the waiter is told so.
	g   *Grant // in which it has an entry
	err error

	// pool.mu guards the following.
	answered bool
}

// news is what a waiter is told.
type news uint8

const (
	queued   news = iota // no answer yet: Redis has said that the wait may take longer
	answered             // g or err is there
)

// listen has it told. mu held.
func (w *waiter) listen() {
	w.ready = make(chan news, 2)
	if w.answered {
		w.ready <- answered
	}
}

// withdraw takes a waiter out of the lane. False: it was answered already. mu held.
func (l *lane) withdraw(w *waiter) bool {
	i := slices.Index(l.waiters, w)
	switch {
	case i == 0 && len(l.waiters) > 1: // without moving the others, which may be very many
		l.waiters[0] = nil
		l.waiters = l.waiters[1:]
	case i >= 0:
		l.waiters = slices.Delete(l.waiters, i, i+1)
	}
	return i >= 0
}

// answer takes a waiter out of the lane and answers it, unless it was. It never blocks. mu held.
func (l *lane) answer(w *waiter, g *Grant, err error) {
	if l.withdraw(w) {
		w.g, w.err, w.answered = g, err, true
		if w.ready != nil {
			w.ready <- answered
		}
	}
}

// queued says that it waits in Redis' queue. Never two of these are pending at once, or there would be no
// room for the answer. mu held.
func (w *waiter) queued() {
	if w.ready != nil && len(w.ready) == 0 {
		w.ready <- queued
	}
}
