package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// state is what became of a streak or a hold.
type state uint8

const (
	held state = iota
	released
	lost
	closed
)

func (s state) err() error { return [...]error{nil, ErrNotHeld, ErrLost, ErrClosed}[s] }

// streak is one grant of Redis and what is held under it: an outermost hold and
// those nested in it, and after them those of the next goroutine in line, to which
// the lock was handed in memory. Fields below the line are guarded by lock.mu.
type streak struct {
	grant
	lock  *lock
	lease watchdog.Lease
	begun time.Duration // after Session.born
	// ---
	fence     int64         // token of who holds it; those up to the block's end are its successors'
	last      int64         // the block's end
	since     time.Duration // when who holds it got it, after Session.born
	n         int           // stays: holds, and goroutines admitted to become one
	seq       int64         // number of the last change of n
	renewed   int           // holds that want the lease renewed
	holds     *hold         // live ones, linked
	state     state         // here, where it takes no room of its own: there are very many streaks
	entered   bool          // who got it has held it; else it may be gone before
	idle      bool          // renewal is switched off
	own       bool          // the lease is, or was made longer, as a holder chose
	warned    bool          // said that the session waits for itself
	contested bool          // others had the lock while who was granted it waited
	// Where replicas must confirm a grant:
	confirmed bool // they have
	refused   bool // they have not in time: it is not handed on
	first     hold // saves an allocation
}

func (st *streak) deadline() time.Time { return st.lock.s.dog.Deadline(&st.lease) }

// link makes h a live hold of the streak, which is renewed from now on if h wants it. mu held.
func (st *streak) link(h *hold) {
	if h.next = st.holds; h.next != nil {
		h.next.prev = h
	}
	st.holds, st.entered = h, true
	if h.fixed {
		return
	}
	st.renewed++
	if st.idle {
		st.idle = false
		st.lock.s.dog.SetInterval(&st.lease, st.lock.s.Lease/3)
	}
}

func (st *streak) unlink(h *hold) {
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		st.holds = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
	if !h.fixed {
		st.renewed--
	}
}

// reign is what one owner had of a streak; zero if it had gone before it held it.
type reign struct {
	fence int64
	held  time.Duration
}

// reign is the present owner's. mu held.
func (st *streak) reign() reign {
	if !st.entered {
		return reign{}
	}
	return reign{st.fence, st.lock.s.age() - st.since}
}

// ended tells the observer.
func (r reign) ended(ctx context.Context, l *lock, err error) {
	if r != (reign{}) {
		l.observe(ctx, Event{Kind: EventReleased, Token: r.fence, Held: r.held, Err: err})
	}
}

// departure says what the end of a stay was.
type departure uint8

const (
	oneOfMany departure = iota // the streak goes on as it was
	passedOn                   // the streak is the next goroutine's now
	theLast                    // the streak is over
)

// depart ends one stay under outer. If the streak is over, root stays occupied until
// Redis was told, if it is used to compete. to: whom the streak is for, if it can be handed
// on as one of several. mu held.
func (st *streak) depart(outer *hold, to *heir) (departure, reign) {
	st.seq++
	if st.n--; st.n > 0 {
		if sl := st.lock.slotOf(outer); sl.leave() {
			st.n++ // whoever was admitted
			if sl.owner != nil {
				sl.queue.turnAway(sl.owner) // who shares with it need not stand
			}
		}
		if st.renewed == 0 { // under mu, or it could follow the next hold's switching on
			st.idle = true
			st.lock.s.dog.SetInterval(&st.lease, 0)
		}
		return oneOfMany, reign{}
	}
	was := st.reign()
	if st.handOn(to) {
		return passedOn, was
	}
	st.state = released
	st.gone()
	if st.lock.p.queues() {
		st.lock.root.inside = 0 // nobody competes from there
		st.lock.root.queue.turnAway(nil)
		st.lock.unlocked(false)
	}
	return theLast, was
}

// gone takes the streak off the lock. Those who wait in this session remember it until they learn of
// another holder. mu held.
func (st *streak) gone() {
	l := st.lock
	l.streak = nil
	if l.root.queue.first != nil || l.line.waits() {
		now := time.Now()
		l.seen = &sighting{st.owner.(string), strings.TrimSpace(l.s.about.(string)), now, now}
	}
}

// handOn hands the streak to the next goroutine in line, in memory, if it may have it.
// Redis is not told: to it, the session goes on holding what it was granted, and every
// request about the streak is as valid as before. An acquisition that waits for several locks is
// handed all of them or none: those of its company are put aside first. mu held.
func (st *streak) handOn(to *heir) bool {
	l := st.lock
	s := l.s
	t, aside := l.root.queue.first, to.place(l)
	if aside >= 0 {
		t = to.t
	}
	if t == nil || t.a.cfg.Lease != 0 || st.fence == st.last || st.refused || isClosed(s.closing) {
		return false
	}
	if st.own || !l.p.queues() && s.age()-st.begun >= s.Streak { // a queue's order needs no bound in time
		return false
	}
	if time.Until(st.deadline()) < min(s.Lease, s.Liveness)/4 {
		return false // it could not be renewed
	}
	ad := admission{in: true, st: st, fence: st.fence + 1}
	switch {
	case aside >= 0:
		if !to.newcomer(l) {
			return false
		}
		to.with[aside] = ad
	case t.a.with.size() > 0:
		if !to.complete(t) {
			return false
		}
		ad.with, to.with = to.with, nil
	}
	st.n, st.since, st.entered = 1, s.age(), false
	st.fence++
	l.root.inside, l.root.owner = 1, t.a.as
	if aside < 0 {
		t.answer(ad)
	}
	l.share(t.a.as)
	return true
}

// end is the end of a streak that nobody asked for, for a reason if it was lost. It reports
// whether it was this call that ended it.
func (st *streak) end(why state, reason error) bool {
	l := st.lock
	l.mu.Lock()
	if st.state != held {
		l.mu.Unlock()
		return false
	}
	st.state = why
	holds, was := st.holds, st.reign()
	for h := holds; h != nil; h = h.next {
		h.state.Store(uint32(why))
		h.slot.queue.turnAway(nil)
		if why == lost && !h.unlocked {
			h.as.lose(l, 1)
		}
	}
	st.gone()
	if l.p.queues() {
		l.root.queue.turnAway(nil)
		l.line.expect = 0 // who lost it does not come back with them
	}
	l.root.inside = 1
	l.root.leave()
	l.mu.Unlock()

	l.s.dog.Remove(&st.lease)
	for h := holds; h != nil; h = h.next { // a streak that is over is not linked any more
		err := why.err()
		if h.named {
			err = l.fail(err)
		}
		h.cancel(err)
	}
	if l.s.begin() { // many may be lost at one instant: their contexts must not wait for a log
		go func() {
			defer l.s.end()
			st.report(was, reason)
		}()
	} else {
		st.report(was, reason)
	}
	l.drop()
	return true
}

// report tells operators and observers of an end that nobody asked for.
func (st *streak) report(was reign, reason error) {
	l := st.lock
	if reason == nil || was == (reign{}) {
		was.ended(l.s.ctx, l, nil)
		return
	}
	l.s.warn("lock lost", "lock", l.keys.Name, "token", was.fence, "held", was.held, "reason", reason)
	l.observe(l.s.ctx, Event{Kind: EventLost, Token: was.fence, Held: was.held, Err: fmt.Errorf("%w: %w", ErrLost, reason)})
}

// keepRequest tells Redis the streak's present count. mu held.
func (st *streak) keepRequest(lease any) wire.Request {
	channel, message := any(""), any("0")
	switch {
	case st.lock.p.queues(): // those who wait look by themselves, with each heartbeat
	case st.ballot != nil:
		channel, message = st.lock.keys.channel, st.token.(string)+" 0"
	default:
		channel = st.lock.keys.channel
	}
	return st.lock.keys.request(protocol.Keep, st.owner, st.token, st.seq, st.n, lease, st.lock.s.memory, channel, message)
}

// telling is the request that keeps a streak, with what is true when it leaves.
type telling struct {
	st    *streak
	lease time.Duration
}

func (t *telling) Request(time.Time) wire.Request {
	t.st.lock.mu.Lock()
	defer t.st.lock.mu.Unlock()
	return t.st.keepRequest(t.lease.Milliseconds())
}

// tell brings Redis up to date with the hold count, and the lease to at least lease.
func (st *streak) tell(ctx context.Context, lease time.Duration, left *atomic.Bool) wire.Outcome {
	return st.kept(st.lock.s.call(ctx, protocol.Keep, &telling{st, lease}, wire.Tries, left), lease)
}

// kept takes in what Redis said of the streak, and of a lease of at least lease.
func (st *streak) kept(o wire.Outcome, lease time.Duration) wire.Outcome {
	l := st.lock
	switch {
	case o.Err != nil:
		o.Err = l.keys.failed(o.Err)
	case o.Reply != "K":
		st.end(lost, errGone)
		l.mu.Lock()
		why := st.state
		l.mu.Unlock()
		if why != released { // else the last Unlock overtook this
			o.Err = &nameError{name: l.keys.Name, err: why.err()}
		}
	case lease > 0:
		if lease > l.s.Lease {
			l.mu.Lock()
			st.own = true
			l.mu.Unlock()
		}
		l.s.dog.Extend(&st.lease, o.Sent.Add(valid(lease)))
	}
	return o
}

// firstFence is the token that Redis granted; the rest of the block follows it.
func (st *streak) firstFence() int64 { return st.last - (protocol.Block - 1) }

// final is the grant with the last token that was used of its block. Only once the
// streak has ended: no more may be used.
func (st *streak) final() grant {
	g := st.grant
	g.used = g.token
	if st.fence != st.firstFence() || g.ballot != nil {
		g.used = st.fence
	}
	return g
}

// abandon ends a stay that became no hold, and tells Redis the count. gone is closed when that is done; it is nil if there is nothing to tell.
func (st *streak) abandon(ctx context.Context, outer *hold) (gone <-chan struct{}) {
	l := st.lock
	l.mu.Lock()
	if st.state != held {
		l.mu.Unlock()
		return nil
	}
	left, was := st.depart(outer, nil)
	l.mu.Unlock()
	switch left {
	case passedOn:
		was.ended(ctx, l, nil)
		return nil
	case theLast:
		l.s.dog.Remove(&st.lease)
	}
	done := make(chan struct{})
	l.s.work.Add(1)
	go func() {
		defer l.s.end()
		defer close(done)
		if left == theLast {
			_ = l.release(l.s.ctx, st, was)
		} else {
			st.tell(l.s.ctx, 0, nil)
		}
	}()
	return done
}

// errTooLate: a grant came when its lease was over, or another one has followed it.
var errTooLate = fmt.Errorf("%w: the grant took longer than its lease", ErrLost)

// errNoToken: somebody took it out of the lock's hash.
var errNoToken = errors.New("granted, but without a token: the lock's keys were changed by hand")

func (l *lock) newStreak(g grant, token string, fixed bool) *streak {
	st := &streak{grant: g, lock: l, n: 1, begun: l.s.age(), own: fixed, idle: fixed}
	if g.ballot == nil { // else a proposal names the grant
		st.token = token
	}
	st.fence, _ = tokenOf(token)
	st.last = st.fence + protocol.Block - 1
	st.since = st.begun
	st.lease.Owner = st
	return st
}

// begin makes what Redis granted the live streak, with a stay of a goroutine of as
// in it. mu held; but not all the time. The caller must keep the lock for it, and give back
// what could not begin.
func (st *streak) begin(deadline time.Time, as *Owner) error {
	l := st.lock
	s := l.s
	for old := l.streak; old != nil && old.fence < st.fence; old = l.streak {
		l.mu.Unlock()
		old.end(lost, errGone) // or Redis would not have granted again
		l.mu.Lock()
	}
	switch {
	case isClosed(s.closing): // Shutdown has looked, or will look, for what is held
		return ErrClosed
	case l.streak != nil || !time.Now().Before(deadline):
		return errTooLate
	case st.fence == 0:
		return errNoToken
	}
	l.streak, l.seen = st, nil
	l.root.inside, l.root.owner = 1, as
	every := s.Lease / 3
	if st.idle {
		every = 0
	}
	s.dog.Add(&st.lease, deadline, every)
	l.share(as)
	return nil
}

// share has those who wait look again if they are of the owner who holds the lock
// now: they may enter. mu held.
func (l *lock) share(as *Owner) {
	if as == nil {
		return
	}
	l.root.queue.turnAway(as)
	if l.line != nil {
		l.line.turnAway(as)
	}
}
