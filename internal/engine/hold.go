package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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

// hold is one entry. It must not refer to its Hold, which its user may forget.
type hold struct {
	context.Context // ends with the hold; what the user has is the Hold's
	cancel          context.CancelCauseFunc
	st              *streak
	outer           *hold // the hold it is nested in
	up              *hold // the next hold on the way up its context, of any lock
	as              *Owner
	fence           int64 // the token
	fixed           bool  // a lease of its own choice, not renewed
	named           bool  // tell its loss with the lock's name
	state           atomic.Uint32
	// Guarded by lock.mu:
	unlocked   bool // or forgotten: nobody will unlock it
	slot       slot // who nests under this one
	prev, next *hold
}

type holdKey struct{}
type ownerKey struct{}

// heldContext is the context that Lock returns. It is the Hold by another type, and so the same
// allocation: as long as either can be reached, the collector forgets neither.
type heldContext Hold

func (hd *Hold) context() context.Context { return (*heldContext)(hd) }

func (c *heldContext) hold() *hold { return (*hold)(c.of.(*entry)) }

func (c *heldContext) Deadline() (time.Time, bool) { return c.hold().Context.Deadline() }
func (c *heldContext) Done() <-chan struct{}       { return c.hold().Done() }
func (c *heldContext) Err() error                  { return c.hold().Context.Err() }

// Value makes the hold findable from whatever descends from it.
func (c *heldContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold()
	}
	return c.hold().Context.Value(key)
}

func (c *heldContext) String() string {
	return fmt.Sprintf("lockline.Hold(%q)", c.hold().st.lock.keys.Name)
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

// slotOf is where the stay of something nested under outer counts: outer's slot,
// or, where outer is over, what outer itself was nested in. mu held.
func (l *lock) slotOf(outer *hold) *slot {
	for ; outer != nil; outer = outer.outer {
		if state(outer.state.Load()) == held {
			return &outer.slot
		}
	}
	return &l.root
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
// request about the streak is as good as before. Who waits for several locks is
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
	return st.lock.keys.request(keepScript, st.owner, st.token, st.seq, st.n, lease, st.lock.s.memory, channel, message)
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
	return st.kept(st.lock.s.call(ctx, keepScript, &telling{st, lease}, wire.Tries, left), lease)
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

// entry is the hold as its handle sees it. (A hold is a context, too, whose methods have other meanings.)
type entry hold

func (h *hold) handle() *Hold { return NewHold((*entry)(h)) }

// returned is the Hold of a plain lock on its way to the user, who may forget it.
func (hd *Hold) returned() *Hold {
	if e, ok := hd.of.(*entry); ok && (!e.fixed || e.as != nil) { // a fixed lease may be meant to run out
		WhenForgotten(hd, e, (*entry).forgotten)
	}
	return hd
}

// errForgotten is the cause that contexts see that descend from one that nobody could reach any more.
var errForgotten = fmt.Errorf("%w: neither its Hold nor its context could be reached any more, so it was released", ErrNotHeld)

// forgotten releases a hold whose Hold was collected, and with it the context: nobody can use it, or unlock it.
func (e *entry) forgotten() {
	if e.fixed {
		(*hold)(e).forgive()
		return
	}
	go func() {
		if state(e.state.Load()) == held {
			e.st.lock.s.warn("a Hold and its context were forgotten without Unlock; releasing the lock", "lock", e.Name(), "token", e.fence)
			e.cancel(errForgotten)
		}
		_ = e.Unlock(context.Background())
	}()
}

// forgive clears the loss that the hold's owner remembers: nobody can act under that hold any more.
func (h *hold) forgive() {
	l := h.st.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	h.unlocked = true
	if state(h.state.Load()) == lost {
		h.as.lose(l, -1)
	}
}

func (e *entry) Name() string { return e.st.lock.keys.Name }

func (e *entry) Token() int64 { return e.fence }

func (e *entry) Deadline() time.Time { return e.st.deadline() }

func (e *entry) Parts() []*Hold { return nil }

func (e *entry) Err() error {
	if err := state(e.state.Load()).err(); err != nil {
		return err
	}
	// The timer may be late, in a process that was stopped for a while.
	if !time.Now().Before(e.st.deadline()) {
		return ErrLost
	}
	return nil
}

func (e *entry) Extend(ctx context.Context, d time.Duration) error {
	s := e.st.lock.s
	if !s.begin() {
		return &nameError{name: e.Name(), err: ErrClosed}
	}
	done := make(chan error, 1)
	go func() {
		defer s.end()
		done <- e.st.tell(ctx, d, nil).Err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return &nameError{name: e.Name(), err: ctxErr(ctx)}
	}
}

// unlockWait bounds Unlock's wait where its context is done already.
const unlockWait = 5 * time.Second

func (e *entry) Unlock(ctx context.Context) error { return (*hold)(e).unlock(ctx) }

func (h *hold) unlock(ctx context.Context) error {
	u, err := h.leave(ctx, nil)
	if u.st == nil {
		return err
	}
	sending := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		return u.send(sending)
	}
	done := make(chan error, 1)
	go func() { done <- u.send(sending) }()
	wait, cancel := unlockBound(ctx)
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-wait.Done():
		return h.st.lock.fail(ctxErr(wait))
	}
}

// unlockBound bounds the wait of an Unlock.
func unlockBound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), unlockWait)
}

// unlocking is an Unlock that Redis has to be told of, and counted in Session.work
// until it has been.
type unlocking struct {
	st   *streak
	last bool // the streak is over
	was  reign
}

func (u unlocking) send(ctx context.Context) error {
	l := u.st.lock
	defer l.s.end()
	if u.last {
		return l.release(ctx, u.st, u.was)
	}
	return u.st.tell(ctx, 0, nil).Err
}

// leave ends the hold in this process. Without a streak in what it returns, that is all.
func (h *hold) leave(ctx context.Context, to *heir) (unlocking, error) {
	st := h.st
	l := st.lock
	s := l.s
	fail := func(err error) (unlocking, error) { return unlocking{}, l.fail(err) }
	open := s.begin()
	l.mu.Lock()
	again := h.unlocked
	h.unlocked = true
	why := state(h.state.Load())
	if why == held && !open {
		why = closed // Shutdown is about to give it back
	}
	if again || why != held {
		if !again && why == lost {
			h.as.lose(l, -1)
		}
		l.mu.Unlock()
		if again || why == closed || !open {
			if open {
				s.end()
			}
			if again {
				return fail(ErrNotHeld)
			}
			h.cancel(why.err())
			return fail(why.err())
		}
		// Believed lost, but Redis may still count its lease: whoever waits need not.
		go func() {
			defer s.end()
			g := st.grant
			g.token, g.used = "", "" // and what a late copy of its request was granted since
			l.giveBack(context.WithoutCancel(ctx), g, 1)
		}()
		return fail(ErrLost)
	}
	h.state.Store(uint32(released))
	st.unlink(h)
	if nested := h.slot.inside; nested > 0 { // it goes on without h
		sl := l.slotOf(h.outer)
		if sl.inside == 1 { // only h
			sl.owner = h.slot.owner
		}
		sl.inside += nested
		h.slot.inside = 0
		if sl.owner != nil {
			sl.queue.turnAway(sl.owner)
		}
	}
	h.slot.queue.turnAway(nil)
	left, was := st.depart(h.outer, to)
	if left == theLast {
		s.dog.Remove(&st.lease)
	}
	l.mu.Unlock()
	h.cancel(errUnlocked)
	if left == passedOn {
		was.ended(ctx, l, nil)
		if to.place(l) < 0 { // else until it is inherited, or reclaimed
			s.end()
		}
		return unlocking{}, nil
	}
	return unlocking{st, left == theLast, was}, nil
}

// firstFence is the token that Redis granted; the rest of the block follows it.
func (st *streak) firstFence() int64 { return st.last - (block - 1) }

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

// release frees the lock in Redis and then lets the next goroutine of this
// session compete for it.
func (l *lock) release(ctx context.Context, st *streak, was reign) error {
	return l.released(ctx, st, was, l.giveBack(ctx, st.final(), wire.Tries))
}

// released is the end of a release, whose outcome is o.
func (l *lock) released(ctx context.Context, st *streak, was reign, o wire.Outcome) error {
	var err error
	switch {
	case o.Err != nil:
		err = l.keys.failed(o.Err)
		l.settle(st.final(), st.deadline(), nil)
	case !strings.HasPrefix(o.Reply, "R") && o.Unanswered != nil:
		// An unanswered copy may have released it, and somebody else lost it since.
		err = l.keys.failed(o.Unanswered)
	case !strings.HasPrefix(o.Reply, "R"):
		err = &nameError{name: l.keys.Name, err: ErrLost}
	}
	if l.p.queues() {
		l.mu.Lock()
		l.unlocked(true)
		l.mu.Unlock()
	} else {
		_, heard, _ := strings.Cut(o.Reply, " ")
		n, _ := strconv.Atoi(heard)
		l.due = 0
		if st.fence != st.firstFence() || st.contested && n > crowd {
			l.due = n
		}
		if l.due > 0 { // also for who comes back in a moment
			l.keep()
			time.AfterFunc(restMemory, l.drop)
		}
		l.pass()
	}
	l.drop()
	was.ended(ctx, l, err)
	return err
}

var errNilContext = errors.New("lockline: the context is nil")
