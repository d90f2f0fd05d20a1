package engine

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

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

// award is what is known of a grant.
type award struct {
	token int64
	lease time.Duration
	since time.Time     // not after the lease began, where an answer brought it
	at    int64         // the Redis time at which it began, in microseconds, where a message did
	age   time.Duration // for how long it had been held when the lease began
}

// maxGroup bounds a group, for its tokens must fit into a block.
const maxGroup = protocol.Block

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
