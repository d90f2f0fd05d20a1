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
// There are never more attempts than goroutines that wait. While an attempt stands in Redis' queue, or Redis
// has last said that others wait, there is only one. The session has one place in the queue for each lane,
// and its goroutines take turns at it. If others wait or holds are brief, the lane first waits for what its
// session has and may pass on in memory. Most goroutines are served that way before an answer would come.
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
	brief    bool       // the last hold was over soon
	delayed  bool       // it will ask
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

// ask begins attempts for those that wait, or does so later. The caller must be counted in the session's
// work. mu held.
func (l *lane) ask() {
	if d := l.patience(); d > 0 && l.wanting() {
		l.askAfter(d)
		return
	}
	l.askNow()
}

// askNow begins them. mu held.
func (l *lane) askNow() {
	for l.wanting() {
		a := l.begin()
		l.p.s().Go(func() { a.run(false) })
	}
}

// wanting: there are fewer attempts than may be. mu held.
func (l *lane) wanting() bool {
	return l.standing == 0 && len(l.attempts) < l.most() // one that stands is the place of the whole lane
}

// most is how many attempts there may be. mu held.
func (l *lane) most() int {
	if l.others || l.want.Shared {
		return min(l.waiters.Len(), 1) // one grant serves all of a shared lane
	}
	return l.waiters.Len()
}

// soon is how long a hold lasts that it pays to wait for. It is several times as long as a request takes.
const soon = time.Millisecond

// patience is for how long those that wait are likely to be served in memory. mu held.
func (l *lane) patience() time.Duration {
	rest := l.p.s().Streak - time.Since(l.since)
	passes := false // some grant of the lane may: one whose lease a goroutine chose never does
	for g := range l.p.grants {
		passes = passes || g.l == l && !g.own
	}
	switch {
	case !passes:
		return 0
	case l.others:
		return min(rest, 5*soon) // others may want more than is free, and leave enough for this lane
	case l.brief:
		return min(rest, soon)
	}
	return 0
}

// askAfter has it ask after d, or when an earlier call has said that it will. mu held.
func (l *lane) askAfter(d time.Duration) {
	if l.delayed {
		return
	}
	l.delayed = true
	time.AfterFunc(d, func() { // the lane may be forgotten by then, and does not ask
		s := l.p.s()
		if !s.Begin() {
			return // those that wait learn it by their bounds
		}
		defer s.End()
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.delayed = false
		l.askNow()
	})
}

// trim gives up attempts that no goroutine waits for, the youngest first, and returns the last of these; nil
// if there is none. mu held.
func (l *lane) trim() (last *attempt) {
	for n := len(l.attempts); n > l.waiters.Len(); n = len(l.attempts) {
		last = l.attempts[n-1]
		last.giveUp()
	}
	l.forget()
	return last
}

// forget drops a lane that nothing uses. mu held.
func (l *lane) forget() {
	if l.waiters.Len() == 0 && len(l.attempts) == 0 && l.grants == 0 {
		delete(l.p.lanes, l.want)
	}
}

// joinable reports whether a goroutine may enter the live grant without asking: for a while after Redis was
// asked, or readers that come all the time would keep writers out. mu held.
func (l *lane) joinable() bool {
	g := l.live
	return g != nil && time.Since(g.since) < l.p.s().Streak && g.lasts()
}

// give hands a grant to the goroutines that wait for it. If none waits, it is given back. The caller must be
// counted in the session's work. mu held.
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
		if !l.want.Shared { // in other lanes, an attempt is for one waiter
			break
		}
	}
	l.ask()
	l.trim()
}
