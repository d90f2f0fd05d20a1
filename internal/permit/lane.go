package permit

import (
	"time"

	"github.com/lockline/lockline/internal/handover"
)

// What goroutines of a session wait for, and how they are answered.
type (
	waiter  = handover.Waiter[*Grant]
	handoff = handover.Handoff[*Grant]
)

// lane is where those goroutines of a session wait that want the same of one name. pool.mu guards it.
//
// There are never more attempts than goroutines that wait. While one of them stands in Redis' queue, or Redis has last said that
// others wait, there is only that one: the session has one place in the queue for each lane, and its goroutines take turns at it. If others wait, and the
// session has what may be passed on in memory, it does not ask before that time is over: most would be served before the answer.
type lane struct {
	p        *pool
	want     Want
	waiters  handover.List[*Grant]
	attempts []*attempt // that are asking or standing, the oldest first
	standing int        // how many of these stand in the queue
	others   bool       // others wanted it when Redis was asked last
	live     *Grant     // shared: the one that goroutines may join; nil if there is none
	grants   int        // that are held
	since    time.Time  // when the last of these came, or Redis was asked about it
	later    *time.Timer
}

// lane finds or makes a lane. mu held.
func (p *pool) lane(w Want) *lane {
	l := p.lanes[w]
	if l == nil {
		l = &lane{p: p, want: w}
		p.lanes[w] = l
	}
	return l
}

// ask begins attempts for those that wait. The caller must be counted in the session's work. mu held.
func (l *lane) ask() {
	most := l.waiters.Len()
	if l.others || l.want.Shared {
		most = min(most, 1)
	}
	if rest := l.p.s().Streak - time.Since(l.since); most > 0 && rest > 0 && l.others && l.grants > 0 && l.want.Lease == 0 {
		l.askAfter(rest)
		return
	}
	for l.standing == 0 && len(l.attempts) < most {
		l.begin()
	}
}

// askAfter has it ask after d. mu held.
func (l *lane) askAfter(d time.Duration) {
	if l.later != nil {
		l.later.Reset(d)
		return
	}
	l.later = time.AfterFunc(d, func() {
		s := l.p.s()
		if !s.Begin() {
			return
		}
		defer s.End()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.ask()
	})
}

// trim gives up attempts that nobody waits for, the youngest first, and returns the last of these; nil if there is none. mu held.
func (l *lane) trim() (last *attempt) {
	for n := len(l.attempts); n > l.waiters.Len(); n = len(l.attempts) {
		last = l.attempts[n-1]
		last.giveUp()
	}
	l.forget()
	return last
}

// forget drops a lane that nobody uses. mu held.
func (l *lane) forget() {
	if l.waiters.Len() == 0 && len(l.attempts) == 0 && l.grants == 0 {
		delete(l.p.lanes, l.want)
	}
}

// joinable reports whether a goroutine may enter the live grant without asking: for a while after Redis was asked, or readers that
// come all the time would keep writers out. mu held.
func (l *lane) joinable() bool {
	g := l.live
	return g != nil && time.Since(g.since) < l.p.s().Streak && g.lasts()
}

// give hands a grant to those that wait for it. If nobody does, it is given back. The caller must be counted in the session's work. mu held.
func (l *lane) give(g *Grant) {
	switch {
	case l.waiters.Len() == 0:
		g.discard()
	case l.want.Shared:
		l.live = g
		for l.waiters.Len() > 0 {
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
	l.waiters.First().Answer(handoff{In: true, Tenure: g, Token: g.token})
}

// fail answers those that an attempt has asked for that there was an error. mu held.
func (l *lane) fail(err error) {
	for w := l.waiters.First(); w != nil; w = l.waiters.First() {
		w.Answer(handoff{Err: err})
		if !l.want.Shared {
			break
		}
	}
	l.ask()
	l.trim()
}
