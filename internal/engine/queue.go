package engine

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"runtime"
	"strings"
	"sync/atomic"
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

// group is one attempt in Redis. The fields below the line are guarded by lock.mu.
type group struct {
	grant
	l        *lock
	ctx      context.Context
	lease    time.Duration // fixed, as the only member wants it; 0: the session's
	nonce    string        // proves that a message about it is Redis' own; of the attempt
	notAfter int64         // of the last copy sent
	size     int           // how many it was when it asked
	left     atomic.Bool   // nobody is in it: do not send again
	// ---
	members turns
	began   time.Time     // before the first request was sent
	base    time.Time     // before the last request was sent that Redis answered
	heard   int64         // the Redis time in that answer, in microseconds
	queued  bool          // has been answered "not yet": it must be kept alive
	past    int64         // the token which that answer named: a grant that is not above it is over
	flying  bool          // a request is under way
	told    award         // a grant that was learned of meanwhile
	void    int           // how often in a row a grant or request came too late
	gone    chan struct{} // closed when the place was given up, or could not be at the first try; nil if nobody waits for that

	behind    *group // whose place the request under way asks for
	followers int    // requests under way that ask for this one's place
	// An answer that is lost may have said that the place of the former is the latter's.
	former, heir *group
}

// waits: some goroutine of this session does. mu held.
func (ln *line) waits() bool {
	return ln != nil && (ln.gathering.first != nil || len(ln.standing) > 0)
}

// award is what is known of a grant.
type award struct {
	token int64
	lease time.Duration
	since time.Time     // not after the lease began, where an answer brought it
	at    int64         // the Redis time at which it began, in microseconds, where a message did
	age   time.Duration // for how long it had been held when the lease began
}

// maxGroup bounds a group, for its tokens must fit into a block.
const maxGroup = block

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

func (l *lock) nextGroup() *group {
	ln := l.line
	t := ln.gathering.first
	ln.expect = 0 // who comes later asks at once
	if ln.asking != nil || t == nil {
		return nil
	}
	g := &group{l: l, ctx: t.a.ctx, lease: t.a.cfg.Lease}
	if ln.last != nil { // whose place it may take
		g.share()
	}
	g.fill()
	g.enter()
	return g
}

// fill has those who gather join the group. mu held.
func (g *group) fill() {
	if g.left.Load() {
		return
	}
	for t := g.l.line.gathering.first; t != nil && g.members.n < maxGroup; t = g.l.line.gathering.first {
		if g.members.n > 0 {
			if g.lease != 0 || t.a.cfg.Lease != 0 {
				break // a lease of its own choice is a grant of its own
			}
			g.share()
		}
		t.remove()
		t.group = g
		g.members.push(t)
	}
	g.size = g.members.n
}

// share has the request go on though its first member leaves: the answer is the others', too, and go-redis may end the reading
// with a context.
func (g *group) share() {
	if g.ctx.Done() != nil {
		g.ctx = context.WithoutCancel(g.ctx)
	}
}

// enter begins an attempt for the group, which must fly then. mu held.
func (g *group) enter() {
	l := g.l
	g.grant, g.notAfter = l.s.newAttempt(), 0
	g.nonce = newNonce()
	g.queued, g.told, g.past = false, award{}, 0
	g.began = time.Now()
	g.base, g.heard = g.began, 0
	g.flying = true
	l.line.asking = g
	if l.line.standing == nil {
		l.line.standing = map[string]*group{}
	}
	l.line.standing[g.owner.(string)] = g
	l.s.enlist(g)
	l.s.work.Add(1)
	l.keep() // the request is undone if nobody waits for it any more
}

// exit ends the attempt as far as this session is concerned: a grant that comes
// later is nobody's. mu held.
func (g *group) exit() {
	l, ln := g.l, g.l.line
	l.s.strike(g)
	delete(ln.standing, g.owner.(string))
	if ln.last == g {
		ln.last = nil
	}
	if len(ln.standing) > 0 {
		return
	}
	if ln.beat != nil {
		ln.beat.Stop()
		ln.beatAt = time.Time{}
	}
	if ln.gathering.first == nil {
		ln.standing = nil // an empty map is large, and very many locks may be held
	}
}

// quit ends an attempt that may stand in the queue, or hold the lock by now. The
// caller must be counted in Session.work. mu held.
func (g *group) quit() {
	g.exit()
	g.l.settle(g.grant, time.Now().Add(g.asks()+g.l.s.Liveness), g.gone)
}

// follow names the attempt whose place the group is to take, and says how many wait with it.
func (g *group) follow() (attempt any, size int) {
	l := g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	g.unfollow()
	t := l.line.last
	// Nothing that comes late may put back whose place another one has.
	if t == nil || g.ctx.Done() != nil || t.late != 0 || t.lease != 0 || g.lease != 0 || t.members.n+g.size > maxGroup {
		return "", 0
	}
	g.behind = t
	t.followers++
	return t.owner, t.members.n
}

// unfollow returns the group whose place the last request asked for. mu held.
func (g *group) unfollow() *group {
	t := g.behind
	if t != nil {
		t.followers--
	}
	g.behind = nil
	return t
}

// fits: g stands in the queue, and has room for those of t. mu held.
func (g *group) fits(t *group) bool {
	return g != nil && g.l.line.standing[g.owner.(string)] == g && !g.flying && g.members.n+t.members.n <= maxGroup
}

// takeIn has those of a group whose place this one has stand before its own. mu held.
func (g *group) takeIn(t *group) {
	if g.l.line.standing[t.owner.(string)] != t {
		return // they have left
	}
	t.exit()
	for m := t.members.last; m != nil; m = t.members.last {
		m.remove()
		m.group = g
		g.members.unshift(m)
	}
}

// desert is called when a member has gone. If it was the last one, the place is given up, which ends with the
// channel that is returned. mu held.
func (g *group) desert() (gone <-chan struct{}) {
	switch {
	case g.members.first != nil:
		return nil
	case g.flying: // its end quits
		g.gone = make(chan struct{})
		g.left.Store(true)
		if g.l.line.asking == g {
			g.l.line.asking = nil
			g.l.ask()
		}
	case g.l.line.standing[g.owner.(string)] == g:
		g.gone = make(chan struct{})
		g.quit()
	}
	return g.gone
}

// answer answers all members. mu held.
func (g *group) answer(ad admission) {
	for g.members.first != nil {
		g.members.first.answer(ad)
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

// asks is the lease that the group asks for.
func (g *group) asks() time.Duration {
	if g.lease != 0 {
		return g.lease
	}
	return g.l.s.Lease
}

// fly sends the attempt's request until it is answered, and sees to what comes of it.
func (g *group) fly() {
	l, s := g.l, g.l.s
	runtime.Gosched()
	l.mu.Lock()
	g.fill() // those who came since
	l.mu.Unlock()
	defer s.end()
	defer l.drop()
	for again := true; again; {
		o := s.call(g.ctx, l.p.Lock, g, wire.Tries, &g.left)
		r, ok := parse(o.Reply)
		if ok && o.Err == nil {
			s.clock.Heard(r.now, o.Sent)
		}
		if r.status == 'H' {
			s.tell(r.holder, r.award(o.Sent)) // a free lock may have gone to one of ours
			s.listen()
		}
		l.mu.Lock()
		if o.Unanswered != nil {
			g.late = g.notAfter
		}
		again = g.answered(o, r)
		l.mu.Unlock()
	}
}

// answered is the end of a flight; true sends the request again. mu held.
func (g *group) answered(o wire.Outcome, r answer) (again bool) {
	l := g.l
	if r.status == 'V' && g.members.first != nil && g.void < maxVoid {
		g.void++
		return true
	}
	g.flying = false
	newcomer := g.members.first
	switch t := g.unfollow(); {
	case t != nil && r.joined:
		g.takeIn(t)
	case g.late != 0 && len(l.line.standing) > 1: // an earlier copy may have taken a place: a heartbeat tells
		if t != nil {
			g.former, t.heir = t, g
		}
		defer l.schedule(0)
	}
	if l.line.asking == g {
		l.line.asking = nil
		defer l.ask()
	}
	var err error
	switch {
	case o.Err != nil:
		err = l.keys.failed(o.Err)
	case r.status == 'V':
		err = l.fail(tooLate(g.asks()))
	case r.status == 'S':
		err = l.fail(errOver)
	case r.status != 'G' && r.status != 'H':
		err = l.keys.failed(wire.Unexpected(o.Reply))
	}
	switch {
	case err != nil || g.members.first == nil:
		g.answer(admission{err: err})
		if o.Err == nil && r.status != 'V' && r.status != 'S' || g.late != 0 { // whatever else it says, it may have been granted
			g.quit()
		} else {
			g.exit()
			if g.gone != nil {
				close(g.gone) // there is nothing to give up
			}
		}
	case r.status == 'G':
		l.line.others = false
		g.granted(award{token: number(r.token), lease: g.asks(), since: o.Sent})
	default:
		l.refused(r)
		l.line.others = l.line.others || !l.s.owns(r.holder)
		g.base, g.heard = o.Sent, r.now
		past := number(r.token)
		if g.told.token > past {
			g.granted(g.told)
			return false
		}
		// What was told was of a grant to an earlier copy, which ran out meanwhile: this copy queued the attempt again.
		g.told = award{}
		g.queued, g.past = true, past
		l.line.last = g
		l.schedule(r.left)
		if l.s.Observer != nil {
			for t := newcomer; t != nil; t = t.next {
				t.stand()
			}
		}
	}
	return false
}

// since converts the Redis time of a grant of this attempt to a local time that is not after the grant. When Redis'
// clock showed heard, the local one showed base or more. How far the two have gone from there to the grant may differ by
// the margin for drift. mu held.
func (g *group) since(at int64) time.Time {
	if g.heard == 0 {
		return g.base
	}
	d := time.Duration(at-g.heard) * time.Microsecond
	t := g.base.Add(d - d.Abs()/100)
	if now := time.Now(); t.After(now) {
		t = now // a clock that was set
	}
	if t.Before(g.began) {
		t = g.began
	}
	return t
}

// granted gives the group what Redis granted it: its first member has the lock now, the others stand in
// line behind. mu held.
func (g *group) granted(w award) {
	l := g.l
	s := l.s
	if w.at != 0 {
		w.since = g.since(w.at)
	}
	if t := g.former; t != nil && g.fits(t) {
		g.takeIn(t) // they came before, so they are not in the queue any more
	}
	g.exit()
	st := l.newStreak(g.grant, itoa(w.token), g.lease != 0)
	l.keep()
	err := st.begin(w.since.Add(valid(w.lease)), nil)
	t := g.members.first // begin may have let one go
	if err == nil && t != nil {
		l.root.owner, l.line.expect = t.a.as, g.members.n
		t.answer(admission{in: true, st: st, fence: st.fence})
		l.root.queue.append(&g.members)
		l.share(l.root.owner)
		if left := g.lease - w.age; left > w.lease { // it got what was left of its liveness time
			until := w.since.Add(left)
			s.work.Add(1)
			go func() {
				defer s.end()
				st.tell(s.ctx, time.Until(until), nil)
			}()
		}
		return
	}
	if err == nil { // nobody wants it
		st.state, l.streak = released, nil
		l.root.inside = 0
		s.dog.Remove(&st.lease)
	}
	l.settle(g.grant, time.Now().Add(w.lease), g.gone)
	l.drop()
	switch {
	case err == errTooLate && g.void < maxVoid && t != nil:
		// As in a process that was stopped: the place is lost, it asks as a newcomer.
		g.void++
		again := &group{l: l, ctx: g.ctx, lease: g.lease, void: g.void}
		for t := g.members.first; t != nil; t = g.members.first {
			t.remove()
			t.group = again
			again.members.push(t)
			again.size++
		}
		again.enter()
		go again.fly()
	case err != nil:
		g.answer(admission{err: l.fail(err)})
	}
}

// Request makes a copy of the attempt's request.
func (g *group) Request(now time.Time) wire.Request {
	l, s := g.l, g.l.s
	ms := s.renew
	if g.lease != 0 {
		ms = g.lease.Milliseconds()
	}
	if t := s.clock.Now(now); t != 0 {
		// What is handed over expires with the liveness.
		g.notAfter = max(g.notAfter, t+patience(min(g.asks(), s.Liveness)).Microseconds())
	}
	behind, size := g.follow()
	return l.keys.request(l.p.Lock, g.owner, ms, g.notAfter, s.about, keepMemoryArg, s.liveness, l.keys.channel, g.size, behind, size, g.nonce)
}

// newNonce is a text without spaces that nobody can guess.
func newNonce() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(random[:])
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

// award is the grant that a reply names, which was sent at sent: what is left of its lease.
func (r answer) award(sent time.Time) award {
	token := number(r.token)
	return award{token: token, lease: r.left, since: sent, age: time.Duration(max(0, r.now-token)) * time.Microsecond}
}

// owns: the owner field is one of ours.
func (s *Session) owns(owner string) bool {
	return strings.HasPrefix(owner, s.id)
}

// number is a token, or 0.
func number(token string) int64 {
	n, _ := tokenOf(token)
	return n
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
