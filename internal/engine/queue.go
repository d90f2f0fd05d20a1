package engine

import (
	"crypto/subtle"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// A kind of lock whose Protocol has a Heartbeat queues in Redis. What stands in the
// queue there is a group: goroutines of this session with nobody between them, in
// their order. While a request is under way, those who come gather to be the next
// group, which takes over the place of the one before if nobody has come between. A group is
// granted as a whole: its goroutines have the lock one after the other, as one streak.

// line is what this session has in a lock's queue. Guarded by lock.mu.
type line struct {
	gathering turns             // who has not asked yet
	gathered  *time.Timer       // when they ask at the latest
	expect    int               // how many had the lock one after the other, and may come back
	others    bool              // other sessions want the lock, as far as we know
	asking    *group            // whose first request is under way: the next one waits for its end
	last      *group            // of those that stand, the one that was queued last; nil: not known
	standing  map[string]*group // by owner field: those whose request is under way, or was answered "not yet"; nil if nobody waits

	beat    *time.Timer // the next heartbeat
	beatAt  time.Time   // when it is due; zero: none is
	beating bool        // one is under way
	again   bool        // another one was due meanwhile
	outage  time.Time   // since when it is not answered
}

// waits: some goroutine of this session does. mu held.
func (ln *line) waits() bool {
	return ln != nil && (ln.gathering.first != nil || len(ln.standing) > 0)
}

// Goroutines that take turns at a lock stay together in the queue if they ask together.
// So those who come while this session has the lock wait a moment for its unlock, and
// where others wait, too, for the goroutine that unlocks last to come back: at most
// gatherTime, and not longer than gatherLong if its Unlock takes that long. Behind
// groups of this session they gather for gatherLong, which saves requests.
// All is in the order of what a request takes, so their place is hardly later.
const (
	gatherTime = 200 * time.Microsecond
	gatherLong = 2 * time.Millisecond
)

// queue has a goroutine wait with the next group, and returns it if it is to fly now. mu held.
func (l *lock) queue(t *turn) *group {
	ln := l.line
	ln.gathering.push(t)
	long := ln.behindOwn()
	switch {
	case l.streak == nil && ln.gathering.n >= ln.expect && !long:
		return l.nextGroup()
	case ln.gathering.first != t:
	case long:
		ln.gather(gatherLong, l)
	default:
		ln.gather(gatherTime, l)
	}
	return nil
}

// behindOwn: as far as is known, only this session's groups stand before those who gather, who
// lose nothing by waiting for more of them. mu held.
func (ln *line) behindOwn() bool { return !ln.others && len(ln.standing) > 0 }

// gather lets those who gather ask after d at the latest. mu held.
func (ln *line) gather(d time.Duration, l *lock) {
	if ln.gathered == nil {
		ln.gathered = time.AfterFunc(d, l.askNow)
	} else {
		ln.gathered.Reset(d)
	}
}

func (l *lock) askNow() {
	if !l.s.begin() {
		return
	}
	defer l.s.end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ask()
}

// unlocked is called when a streak is over, and when Redis has been told. mu held.
func (l *lock) unlocked(told bool) {
	ln := l.line
	switch {
	case ln.gathering.first == nil && !told:
	case ln.behindOwn(): // their time runs
	case !ln.others:
		l.ask()
	case told:
		ln.gather(gatherTime, l)
	default:
		ln.gather(gatherLong, l)
	}
}

// ask sends the next group's request, if there is one and none is under way. The caller
// must be counted in Session.work. mu held.
func (l *lock) ask() {
	if g := l.nextGroup(); g != nil {
		go g.fly()
	}
}

// turnAway has those of one owner look again. mu held.
func (ln *line) turnAway(as *Owner) {
	ln.gathering.turnAway(as)
	for _, g := range ln.standing {
		if g.members.first != nil {
			g.members.turnAway(as)
			g.desert()
		}
	}
}

// enlist and strike keep the table of this session's attempts.
func (s *Session) enlist(g *group) {
	s.queue.Lock()
	defer s.queue.Unlock()
	s.queued[g.owner.(string)] = g
}

func (s *Session) strike(g *group) {
	s.queue.Lock()
	defer s.queue.Unlock()
	delete(s.queued, g.owner.(string))
}

// tell hands a grant to the attempt that it is for, if that still waits. The caller
// must be counted in Session.work.
func (s *Session) tell(owner string, w award) {
	if g := s.waits(owner); g != nil {
		g.l.mu.Lock()
		defer g.l.mu.Unlock()
		g.l.line.told(owner, w)
	}
}

// waits finds the group that waits with an attempt; nil if none does.
func (s *Session) waits(owner string) *group {
	s.queue.Lock()
	defer s.queue.Unlock()
	return s.queued[owner]
}

// message is tell for what came on the session's channel: 'OWNER TOKEN NOW LEASE NONCE'. Whoever may publish could
// have sent it, but only Redis was told the attempt's nonce.
func (s *Session) message(m string) {
	words := strings.Fields(m)
	if len(words) != 5 {
		return
	}
	g := s.waits(words[0])
	if g == nil {
		return
	}
	g.l.mu.Lock()
	defer g.l.mu.Unlock()
	if g.owner == words[0] && subtle.ConstantTimeCompare([]byte(g.nonce), []byte(words[4])) == 1 {
		g.l.line.told(words[0], award{token: number(words[1]), at: number(words[2]), lease: time.Duration(number(words[3])) * time.Millisecond})
	}
}

// told is news of a grant to an attempt of this session. mu held.
func (ln *line) told(owner string, w award) {
	g := ln.standing[owner]
	switch {
	case g == nil || w.token <= g.past:
	case g.flying: // its answer may say that this is over
		if w.token > g.told.token {
			g.told = w
		}
	default:
		g.granted(w)
	}
}

// owns: the owner field is one of ours.
func (s *Session) owns(owner string) bool {
	return strings.HasPrefix(owner, s.id)
}

// listen subscribes to the session's own channel while anybody is queued, and a
// little longer.
func (s *Session) listen() {
	s.queue.Lock()
	defer s.queue.Unlock()
	if s.listening || !s.begin() {
		return
	}
	s.listening = true
	go s.hear()
}

// hear hands out what arrives on the session's channel.
func (s *Session) hear() {
	defer s.end()
	sub := s.hub.Subscribe(s.channels.(string) + s.id)
	defer sub.Close()
	idle := time.NewTicker(2 * time.Second)
	defer idle.Stop()
	quiet := false
	for {
		select {
		case <-sub.C():
		case <-idle.C:
			s.queue.Lock()
			if len(s.queued) > 0 {
				quiet = false
			} else if quiet {
				s.listening = false
				s.queue.Unlock()
				return
			} else {
				quiet = true
			}
			s.queue.Unlock()
			continue
		case <-s.closing:
			return
		}
		messages, gap := sub.Take()
		for _, m := range messages {
			s.message(m)
		}
		if gap { // a grant may have been missed
			s.beatAll()
		}
	}
}

// beatAll sends a heartbeat for every lock that anybody waits for.
func (s *Session) beatAll() {
	s.queue.Lock()
	locks := map[*lock]bool{}
	for _, g := range s.queued {
		locks[g.l] = true
	}
	s.queue.Unlock()
	for l := range locks {
		l.mu.Lock()
		if len(l.line.standing) > 0 {
			l.schedule(0)
		}
		l.mu.Unlock()
	}
}

// schedule sets the next heartbeat: at a third of the liveness time, or when the
// holder's time is over, if that is earlier. mu held.
func (l *lock) schedule(left time.Duration) {
	ln := l.line
	d := l.s.Liveness / 3
	if left >= 0 {
		d = min(d, left+time.Millisecond)
	}
	at := time.Now().Add(d)
	if !ln.beatAt.IsZero() && !at.Before(ln.beatAt) {
		return // even if that is past: the timer may be late, but it comes
	}
	ln.beatAt = at
	if ln.beat == nil {
		ln.beat = time.AfterFunc(d, l.heartbeat)
	} else {
		ln.beat.Reset(d)
	}
}

// heartbeat keeps this session's groups alive, and learns what became of those
// that no message told.
func (l *lock) heartbeat() {
	s := l.s
	if !s.begin() {
		return
	}
	defer s.end()
	l.mu.Lock()
	ln := l.line
	ln.beatAt = time.Time{}
	if ln.beating { // one at a time
		ln.again = true
		l.mu.Unlock()
		return
	}
	args := []any{s.id, s.liveness, l.keys.channel, keepMemoryArg}
	for owner, g := range ln.standing {
		if g.queued {
			args = append(args, owner)
		}
	}
	if len(args) == 4 {
		l.mu.Unlock()
		return
	}
	ln.beating = true
	l.mu.Unlock()

	o := s.call(s.ctx, l.p.Heartbeat, &plain{l.keys, l.p.Heartbeat, args}, 1, nil)

	l.mu.Lock()
	defer l.mu.Unlock()
	ln.beating = false
	next := time.Duration(-1)
	reply, about, _ := strings.Cut(o.Reply, "\n")
	if words := strings.Fields(reply); o.Err == nil && len(words) >= 5 {
		ln.outage = time.Time{}
		r := answer{now: number(words[1]), token: words[4], holder: words[3], about: about}
		r.left, _ = remaining(words[2])
		if r.holder != "-" {
			l.refused(r)
		}
		missing := map[string]bool{}
		for _, owner := range words[5:] {
			missing[owner] = true
		}
		if r.left >= 0 {
			next = r.left
		}
		unsure := false
		for _, arg := range args[4:] {
			owner := arg.(string)
			switch g := ln.standing[owner]; {
			case g == nil:
			case owner == words[3]: // below
			case missing[owner] && g.followers > 0: // whose answer tells whether they have its place
				unsure = true
			case missing[owner] && g.heir.fits(g):
				g.heir.takeIn(g)
			case missing[owner]: // it asks as a newcomer
				g.exit()
				for t := g.members.last; t != nil; t = g.members.last {
					t.remove()
					t.group = nil
					ln.gathering.unshift(t)
				}
				l.ask()
			default:
				g.base, g.heard = o.Sent, r.now
				g.past = max(g.past, number(words[4]))
			}
		}
		ln.told(r.holder, r.award(o.Sent)) // which may have begun to wait since
		if unsure {
			next = wire.Backoff(2, 20*time.Millisecond, time.Second)
		}
	} else {
		if o.Err == nil {
			o.Err = wire.Unexpected(o.Reply)
		}
		if ln.outage.IsZero() {
			ln.outage = o.Sent
		}
		if !wire.Judge(o.Err).Transient || time.Since(ln.outage) > s.Lease {
			for _, g := range ln.standing {
				if g.queued {
					g.answer(admission{err: l.keys.failed(o.Err)})
					g.quit()
				}
			}
			ln.outage = time.Time{}
		}
		next = wire.Backoff(2, 20*time.Millisecond, time.Second)
	}
	if ln.again {
		ln.again, next = false, 0
	}
	if len(ln.standing) > 0 {
		l.schedule(next)
	}
}

// tryQueued is TryLock for a kind that queues: it does not stand in the queue.
func (a *acquisition) tryQueued() (*hold, error) {
	l, s := a.l, a.l.s
	a.grant = s.newAttempt()
	for void := 0; ; void++ {
		o, err := a.exchange(nil)
		if err != nil {
			return nil, err // exchange's goroutine gives back
		}
		r, _ := parse(o.Reply)
		switch {
		case o.Err != nil:
			err = l.keys.failed(o.Err)
			if a.ended() {
				err = a.over(false)
			}
		case r.status == 'V' && void < maxVoid:
			continue
		case r.status == 'V':
			err = l.fail(tooLate(a.lease()))
		case r.status == 'H':
			s.tell(r.holder, r.award(o.Sent)) // a free lock may have gone to one of ours
			locked := r.locked(l.keys.Name)
			if s.owns(r.holder) {
				locked.Hint = selfHint
			}
			err = Public(locked)
		case r.status == 'G':
			st := l.newStreak(a.grant, r.token, a.cfg.Lease != 0)
			l.keep()
			l.mu.Lock()
			err = st.begin(o.Sent.Add(valid(a.lease())), a.as)
			if err == errTooLate && l.streak != nil { // forced, and granted to another goroutine, before we heard of it
				err = Public(a.lockedHere())
			} else if err != nil {
				err = l.fail(err)
			}
			l.mu.Unlock()
			if err == nil {
				if h, err := a.succeed(admission{st: st, fence: st.fence}); h != nil || err != nil {
					return h, err
				}
				return nil, l.fail(errTooLate)
			}
			l.drop()
		case r.status == 'S':
			err = l.fail(errOver)
		default:
			err = l.keys.failed(wire.Unexpected(o.Reply))
		}
		if o.Err == nil && r.status != 'H' && r.status != 'V' && r.status != 'S' || a.late != 0 {
			l.settle(a.grant, time.Now().Add(a.lease()), nil)
		}
		return nil, err
	}
}
