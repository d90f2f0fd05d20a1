package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// Config is what one acquisition can be told.
type Config struct {
	Lease   time.Duration // fixed, not renewed; 0: the session's, renewed
	Wait    time.Duration // at most; only if Bounded
	Bounded bool
	Named   bool // a loss is told with the lock's name: the context stands for several locks
}

// Check says what is wrong with it.
func (c Config) Check() error {
	if c.Lease != 0 {
		if err := checkLease("WithLease", c.Lease); err != nil {
			return err
		}
	}
	if c.Bounded && c.Wait < 0 {
		return fmt.Errorf("lockline: WaitAtMost: a negative wait: %v", c.Wait)
	}
	return nil
}

// NewConfig applies options, of rlock's type, to what an acquisition starts from.
func NewConfig[O any](c Config, options []O) Config {
	for _, o := range options {
		if o, ok := any(o).(interface{ Apply(*Config) }); ok {
			o.Apply(&c)
		}
	}
	return c
}

// Mutex is one lock's name in a session, and its kind. It holds no state of any acquisition.
type Mutex struct {
	s    *Session
	p    *Protocol
	keys *Keys
	cfg  Config
	err  error // of New, told by every use
}

func NewMutex(s *Session, p *Protocol, name string, cfg Config) Mutex {
	m := Mutex{s: s, p: p, cfg: cfg}
	switch {
	case s == nil:
		m.err = errors.New("lockline: the session is nil")
	case s.Redisson && p.queues():
		m.err = errors.New("lockline: RedissonKeys: there are no fair locks with it: Redisson's queue is another")
	case s.Redisson:
		m.keys, m.err = redissonKeys(name)
	case p.queues():
		m.keys, m.err = newKeys(s.Prefix, p.Kind, name, ":q", ":a", ":d")
		if m.err == nil {
			m.keys.channel = s.channels
		}
	default:
		m.keys, m.err = newKeys(s.Prefix, p.Kind, name)
	}
	return m
}

// BadMutex tells err by every use.
func BadMutex(err error) Mutex { return Mutex{err: err} }

var errZeroMutex = errors.New("lockline: a zero Mutex; make one with New")

func (m *Mutex) check(ctx context.Context) error {
	switch {
	case m == nil || m.s == nil && m.err == nil:
		return errZeroMutex
	case m.err != nil:
		return m.err
	case ctx == nil:
		return &nameError{name: m.keys.Name, err: errNilContext}
	}
	return nil
}

func (m *Mutex) Name() string {
	if m == nil || m.keys == nil {
		return ""
	}
	return m.keys.Name
}

// Default is the configuration that an acquisition starts from.
func (m *Mutex) Default() (c Config) {
	if m != nil {
		c = m.cfg
	}
	return c
}

// acquisition is one call of Lock or TryLock.
type acquisition struct {
	ctx   context.Context
	l     *lock
	cfg   Config
	try   bool
	as    *Owner
	begun time.Time

	// The attempt in Redis. Its owner field is never used for another.
	grant
	notAfter int64 // of the last copy sent

	expired   <-chan time.Time // when the wait that cfg allows is over
	losses    int              // votes lost in a row
	answered  bool             // Redis has answered once: from then on an outage only lengthens the wait
	waited    bool
	contested bool // others had the lock while this one waited

	led        bool // by another one, whose confirmation covers it
	confirming bool // the request under way is for the replicas, too

	with *company // to be taken by the same request
}

// Acquire returns the hold and the context to go on with.
func (m *Mutex) Acquire(ctx context.Context, cfg Config, try bool) (context.Context, *Hold, error) {
	h, err := m.acquire(ctx, cfg, try, nil)
	if err != nil {
		return ctx, nil, err
	}
	hd := h.handle().returned()
	return hd.context(), hd, nil
}

func (m *Mutex) acquire(ctx context.Context, cfg Config, try bool, with *company) (*hold, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	fail := func(err error) (*hold, error) { return nil, &nameError{name: m.keys.Name, err: err} }
	if err := cfg.Check(); err != nil {
		return fail(err)
	}
	if cfg.Lease != 0 {
		if err := m.s.Replicas.Fits(cfg.Lease); err != nil {
			return fail(err)
		}
	}
	if ctx.Err() != nil {
		return fail(ctxErr(ctx))
	}
	l, err := m.s.enter(m.keys, m.p)
	if err != nil {
		return fail(err)
	}
	defer l.leave()
	a := &acquisition{ctx: ctx, l: l, cfg: cfg, try: try || cfg.Bounded && cfg.Wait == 0, begun: time.Now(), with: with}
	a.as = OwnerOf(ctx)
	if cfg.Bounded && cfg.Wait > 0 {
		t := time.NewTimer(cfg.Wait)
		defer t.Stop()
		a.expired = t.C
	}
	h, err := a.run()
	if err != nil {
		l.observe(ctx, Event{Kind: EventNotAcquired, Wait: time.Since(a.begun), Err: err})
		return nil, err
	}
	return h, nil
}

// lease is what this acquisition asks of Redis.
func (a *acquisition) lease() time.Duration {
	if a.cfg.Lease != 0 {
		return a.cfg.Lease
	}
	return a.l.s.Lease
}

func (l *lock) fail(err error) error { return &nameError{name: l.keys.Name, err: err} }

func (a *acquisition) fail(err error) error { return a.l.fail(err) }

// tooLate is the error of an attempt whose requests come too late all the time.
func tooLate(lease time.Duration) error {
	return fmt.Errorf("requests need longer than %v to reach Redis", patience(lease))
}

// run: find the slot to enter, stand in its queue, and once inside nest under
// the hold that the slot is of, or compete for the lock.
func (a *acquisition) run() (*hold, error) {
	l := a.l
	for {
		l.mu.Lock()
		outer, err := a.descent()
		if err == nil && a.as.hasLost(l) {
			err = ErrLost
		}
		if err != nil {
			l.mu.Unlock()
			return nil, a.fail(err)
		}
		sl := l.slotOf(outer)
		st := l.streak
		if l.p.queues() && outer == nil && (st == nil || a.as == nil || a.as != l.root.owner) {
			if a.try && st == nil {
				l.mu.Unlock()
				return a.tryQueued()
			}
			if !a.try {
				t := newTurn(a)
				g := l.queue(t)
				l.mu.Unlock()
				if g != nil && a.uncancelable() {
					g.fly()
				} else if g != nil {
					go g.fly()
				}
				ad, err := a.stand(t, sl, nil)
				if err != nil {
					return nil, err
				}
				if !ad.in {
					continue
				}
				if h, err := a.inherit(ad); h != nil || err != nil {
					return h, err
				}
				continue
			}
		}
		if sl.enter(a.as, st != nil) {
			if st != nil {
				st.n++
				st.seq++
			}
			l.mu.Unlock()
		} else if a.try {
			err := a.lockedHere()
			l.mu.Unlock()
			return nil, Public(err)
		} else {
			t := newTurn(a)
			sl.queue.push(t)
			l.mu.Unlock()
			a.sayWaiting()
			ad, err := a.stand(t, sl, outer)
			if err != nil {
				return nil, err
			}
			if !ad.in {
				continue
			}
			if ad.st != nil {
				if h, err := a.inherit(ad); h != nil || err != nil {
					return h, err
				}
				continue
			}
			if sl == &l.root {
				st = nil
			}
		}
		if st != nil {
			return a.nest(st, outer)
		}
		if h, err := a.compete(); h != nil || err != nil {
			return h, err
		}
	}
}

// descent finds the nearest live hold of this lock that ctx descends from; nil
// for a newcomer, and ErrLost if what it descends from was lost. mu held.
func (a *acquisition) descent() (*hold, error) {
	var err error
	h, _ := a.ctx.Value(holdKey{}).(*hold)
	for ; h != nil; h = h.up {
		if k := h.st.lock; k.s != a.l.s || k.keys.lock() != a.l.keys.lock() {
			continue
		}
		switch state(h.state.Load()) {
		case held:
			return h, nil
		case lost:
			err = ErrLost
		}
	}
	return nil, err
}

// stand waits for the answer to a turn.
func (a *acquisition) stand(t *turn, sl *slot, outer *hold) (admission, error) {
	for {
		select {
		case ad := <-t.ready:
			if ad.stood {
				a.sayWaiting()
				continue
			}
			if ad.err != nil && a.ended() {
				ad.err = a.over(true)
			}
			return ad, ad.err
		case <-a.ctx.Done():
		case <-a.expired:
		case <-a.l.s.closing:
		}
		break
	}
	l := a.l
	var gone <-chan struct{}
	l.mu.Lock()
	canceled := t.remove()
	if g := t.group; g != nil {
		a.answered = a.answered || g.queued
		if canceled {
			gone = g.desert()
		}
	}
	l.mu.Unlock()
	err := a.over(true)
	if !canceled {
		ad := <-t.ready
		if ad.stood {
			ad = <-t.ready
		}
		switch { // admitted in that instant: pass it on
		case ad.in && ad.st != nil:
			gone = a.disclaim(ad)
			ad.end()
		case ad.in && sl == &l.root:
			l.pass()
		case ad.in:
			outer.st.abandon(a.ctx, outer)
		}
	}
	a.awaitLeaving(gone)
	return admission{}, err
}

// leavingTime bounds how long a Lock that gave up waits for Redis to learn it.
const leavingTime = 100 * time.Millisecond

// awaitLeaving lets a waiter of a fair lock return only when it has left the queue, if Redis answers in time: it must
// not be granted the lock after its Lock has returned. The request itself goes on in the background. gone may be nil.
func (a *acquisition) awaitLeaving(gone <-chan struct{}) {
	if gone == nil || !a.l.p.queues() {
		return
	}
	t := time.NewTimer(leavingTime)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
	case <-a.l.s.closing:
	}
}

// pass lets the next one compete.
func (l *lock) pass() {
	l.mu.Lock()
	l.root.leave()
	l.mu.Unlock()
}

// nest turns a stay under a live streak into a hold.
func (a *acquisition) nest(st *streak, outer *hold) (*hold, error) {
	l := a.l
	err := a.confirm(st)
	if err == nil {
		var o wire.Outcome
		if o, err = a.exchange(st); err == nil {
			err = o.Err
		}
	}
	if err != nil {
		st.abandon(a.ctx, outer)
		return nil, err
	}
	h := a.newHold(new(hold), st)
	h.outer = outer
	l.mu.Lock()
	h.fence = st.fence
	if why := st.state; why != held || !time.Now().Before(st.deadline()) {
		l.mu.Unlock()
		if why == held { // the timer that ends it is late
			why = lost
			st.end(lost, errExpired)
		}
		h.cancel(why.err())
		return nil, a.fail(why.err())
	}
	st.link(h)
	depth := st.n
	l.mu.Unlock()
	l.observe(a.ctx, Event{Kind: EventAcquired, Wait: time.Since(a.begun), Depth: depth, Token: h.fence})
	return h, nil
}

// succeed makes a hold of a streak whose only stay is ours. Neither a hold nor an
// error: the streak has ended meanwhile, look again.
func (a *acquisition) succeed(ad admission) (*hold, error) {
	l, st := a.l, ad.st
	passed := ad.fence != st.firstFence()
	h := &st.first
	if passed {
		h = new(hold)
	}
	err := a.confirm(st)
	h.fence = ad.fence
	a.newHold(h, st)
	l.mu.Lock()
	if why := st.state; why != held || !time.Now().Before(st.deadline()) {
		l.mu.Unlock()
		h.cancel(ErrLost)
		if why == held { // the timer that ends it is late
			st.end(lost, errExpired)
		}
		if why == closed {
			return nil, a.fail(ErrClosed)
		}
		g := st.grant
		g.token, g.used = "", "" // there is no Hold whose Unlock would tell Redis
		l.settle(g, st.deadline(), nil)
		return nil, nil
	}
	if err != nil {
		l.mu.Unlock()
		h.cancel(err)
		st.abandon(a.ctx, nil)
		return nil, err
	}
	st.link(h)
	l.mu.Unlock()
	l.observe(a.ctx, Event{Kind: EventAcquired, Wait: time.Since(a.begun), Depth: 1, Token: h.fence, HandedOver: passed})
	return h, nil
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

func (a *acquisition) newHold(h *hold, st *streak) *hold {
	h.st = st
	h.fixed, h.named, h.as = a.cfg.Lease != 0, a.cfg.Named, a.as
	h.up, _ = a.ctx.Value(holdKey{}).(*hold)
	h.Context, h.cancel = context.WithCancelCause(a.ctx)
	return h
}

// newAttempt begins a try for the lock in Redis, with an id that is never used again.
func (s *Session) newAttempt() grant {
	var id [64]byte
	owner := string(strconv.AppendInt(append(append(id[:0], s.id...), ':'), s.attempts.Add(1), 10))
	return grant{owner: owner, token: ""} // the token is not known until granted
}

// maxVoid bounds how often in a row a request may come too late.
const maxVoid = 8

// compete asks Redis until the lock is granted or the wait ends. Whoever
// competes occupies the root slot, and leaves it, or leaves it to the hold, or
// to the goroutine that gives back.
func (a *acquisition) compete() (*hold, error) {
	l := a.l
	s := l.s
	a.grant, a.notAfter = s.newAttempt(), 0
	var outage time.Time // since when Redis does not answer
	for try, void := 0, 0; ; {
		if err := a.letOthersFirst(); err != nil {
			a.leaveRoot()
			return nil, err
		}
		if err := a.with.gather(); err != nil {
			a.leaveRoot()
			return nil, err
		}
		o, err := a.exchange(nil)
		if err != nil {
			return nil, err // exchange's goroutine has the root slot now
		}
		r, _ := parse(o.Reply)
		switch {
		case o.Err != nil && a.ended():
			a.leaveRoot()
			return nil, a.over(false)
		case o.Err != nil:
			if outage.IsZero() {
				outage = o.Sent
			}
			if !a.answered || !wire.Judge(o.Err).Transient || time.Since(outage) > s.Lease {
				a.leaveRoot()
				return nil, l.keys.failed(o.Err)
			}
			try++
			if err := a.sleep(wire.Backoff(try, 20*time.Millisecond, time.Second)); err != nil {
				a.leaveRoot()
				return nil, err
			}
			continue
		case r.status == 'V':
			if void++; void > maxVoid {
				a.leaveRoot()
				return nil, a.fail(tooLate(a.lease()))
			}
			continue
		case r.status == 'S' && void < maxVoid: // granted, and forced before we heard of it
			void++
			a.grant, a.notAfter = s.newAttempt(), 0
			continue
		case r.status == 'G':
			h, begun, err := a.takeAll(o.Sent, r.token)
			if begun {
				return h, err
			}
			if err == errTooLate && void < maxVoid {
				void++
				a.grant, a.notAfter = s.newAttempt(), 0
				continue
			}
			l.pass()
			return nil, a.fail(err)
		case r.status == 'H' && a.with.another():
			err := a.with.locked(r)
			a.leaveRoot()
			return nil, Public(err)
		case r.status != 'H':
			if a.late == 0 { // whatever it says, it may have been granted
				a.settle()
			}
			a.leaveRoot()
			return nil, l.keys.failed(wire.Unexpected(o.Reply))
		}
		a.answered, outage, try, void = true, time.Time{}, 0, 0
		l.mu.Lock()
		l.refused(r)
		l.mu.Unlock()
		a.contested = true
		if a.try {
			a.leaveRoot()
			return nil, Public(r.locked(l.keys.Name))
		}
		if l.sub == nil {
			l.sub = s.subscribe(l.keys.channel.(string))
		}
		a.sayWaiting()
		if err := a.rest(r.left); err != nil {
			a.leaveRoot()
			return nil, err
		}
	}
}

// take makes a streak and a hold of what Redis granted, not before base. If it cannot
// begin, the grant is given back, and the root slot is still the caller's. Else, with
// neither a hold nor an error, it has ended already: look again.
func (a *acquisition) take(base time.Time, token string) (h *hold, begun bool, err error) {
	l := a.l
	st := l.newStreak(a.grant, token, a.cfg.Lease != 0)
	st.contested = a.contested
	l.keep()
	l.mu.Lock()
	err = st.begin(base.Add(valid(a.lease())), a.as)
	l.mu.Unlock()
	if err == nil {
		h, err = a.succeed(admission{st: st, fence: st.fence})
		return h, true, err
	}
	l.drop()
	l.settle(a.grant, time.Now().Add(a.lease()), nil)
	return nil, false, err
}

// restTime is by how much a session that had its turn lets those go first who were
// told that the lock is free: longer than their requests take in one data center.
const restTime = time.Millisecond

// restMemory is for how long that is remembered where nobody here waits.
const restMemory = 10 * restTime

// crowd is how many clients hear of a release, itself among them, without being too many to ask all at once. A session
// whose turn was a single hold may ask together with that few, or it would have a small share beside one with long turns.
const crowd = 2

// letOthersFirst takes what was heard of the lock, so that what comes from here on is news; and, where it is
// the turn of others, sleeps until they have had it, or seem not to want it.
func (a *acquisition) letOthersFirst() error {
	l := a.l
	for l.sub != nil {
		l.due -= len(l.sub.Take())
		if l.due <= 0 || a.try {
			break
		}
		heard, err := a.sleepFor(restTime, l.sub.ready)
		if err != nil || !heard {
			return err
		}
		a.contested = true
	}
	return nil
}

// rest waits until the lock may be free.
func (a *acquisition) rest(left time.Duration) error {
	if a.ballot != nil {
		return a.ballot.rest(a)
	}
	if left < 0 { // no expiry: not a lock of ours, look again now and then
		left = a.l.s.Lease
	}
	return a.sleep(min(left, maxRest) + time.Millisecond)
}

// sleep waits for news of the lock, at most for d. Its error says that the wait is over.
func (a *acquisition) sleep(d time.Duration) error {
	if a.l.sub != nil {
		_, err := a.sleepFor(d, a.l.sub.ready)
		return err
	}
	_, err := a.sleepFor(d, nil)
	return err
}

func (a *acquisition) sleepFor(d time.Duration, news <-chan struct{}) (heard bool, err error) {
	a.with.scatter()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-news:
		return true, nil
	case <-t.C:
		return false, nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-a.l.s.closing:
	}
	return false, a.over(false)
}

// uncancelable: nothing but the answer, or the session's end, ends its wait. It need
// not be free to leave while a request is under way, which saves a goroutine.
func (a *acquisition) uncancelable() bool { return a.ctx.Done() == nil && a.expired == nil }

// flight is a request under way, in a goroutine of its own if it may be left behind.
type flight struct {
	done chan struct{} // closed when o is there
	o    wire.Outcome
	left atomic.Bool // whoever sets it first decides who takes care of the outcome
}

// exchange asks for the lock, or, to nest, tells a streak; and waits for the
// answer as long as the acquisition may. If that ends first, the flight's
// goroutine stays behind and undoes what comes of the request.
func (a *acquisition) exchange(st *streak) (wire.Outcome, error) {
	s := a.l.s
	if a.uncancelable() {
		f := &flight{}
		s.work.Add(1)
		a.fly(a.ctx, f, st, a.confirming)
		return f.o, nil
	}
	f := &flight{done: make(chan struct{})}
	s.work.Add(1)
	go a.fly(a.ctx, f, st, a.confirming) // whoever leaves it behind goes on with others
	select {
	case <-f.done:
		return f.o, nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-s.closing:
	}
	err := a.over(false)
	a.l.keep() // until undo: or the next Lock would not know of this one's request
	a.with.keep()
	if !f.left.CompareAndSwap(false, true) { // it came in that instant
		s.work.Add(1)
		go func() {
			defer s.end()
			<-f.done
			a.undo(f.o, st)
		}()
	}
	return wire.Outcome{}, err
}

func (a *acquisition) fly(ctx context.Context, f *flight, st *streak, confirming bool) {
	defer a.l.s.end()
	switch {
	case st == nil:
		f.o = a.ask(&f.left)
	case confirming:
		f.o = st.confirm(ctx, a.lease(), &f.left)
	default:
		f.o = st.tell(ctx, a.lease(), &f.left)
	}
	if f.left.CompareAndSwap(false, true) {
		if f.done != nil {
			close(f.done)
		}
		return
	}
	a.undo(f.o, st)
}

// ask sends the attempt's request.
func (a *acquisition) ask(left *atomic.Bool) wire.Outcome {
	s := a.l.s
	if s.quorum != nil {
		return s.quorum.ask(a, left)
	}
	o := a.with.numbered(s.call(a.ctx, a.with.script(a.l.p), a, wire.Tries, left))
	if o.Unanswered != nil {
		a.late = a.notAfter
	}
	if r, ok := parse(o.Reply); ok && o.Err == nil {
		s.clock.Heard(r.now, o.Sent)
	}
	return o
}

// Request makes a copy of the attempt's request. Without knowledge of the Redis
// clock it is void on arrival, but its reply brings the time.
func (a *acquisition) Request(now time.Time) wire.Request {
	s := a.l.s
	lease, ms := s.Lease, s.renew
	if a.cfg.Lease != 0 {
		lease, ms = a.cfg.Lease, a.cfg.Lease.Milliseconds()
	}
	queues := a.l.p.queues()
	if t := s.clock.Now(now); t != 0 {
		if queues {
			lease = min(lease, s.Liveness) // what is handed over expires that early
		}
		a.notAfter = max(a.notAfter, t+patience(lease).Microseconds())
	}
	if queues {
		return a.l.keys.request(a.l.p.Lock, a.owner, ms, a.notAfter, s.about, keepMemoryArg, "0", a.l.keys.channel, "0", "", "0")
	}
	if s.Fenced {
		return a.l.keys.request(a.l.p.Lock, a.owner, ms, a.notAfter, s.about, keepMemoryArg, "0")
	}
	return a.with.keys(a.l.keys).request(a.with.script(a.l.p), a.owner, ms, a.notAfter, s.about, keepMemoryArg)
}

// undo ends an attempt that nobody waits for any more, whatever came of it, and
// then leaves the root slot. A re-entry's count was put right by who gave it up.
func (a *acquisition) undo(o wire.Outcome, st *streak) {
	defer a.l.drop()
	if st != nil {
		return
	}
	r, _ := parse(o.Reply)
	granted := r.status == 'G' || a.late != 0
	if a.l.p.queues() {
		if granted {
			a.l.settle(a.grant, time.Now().Add(a.lease()), nil)
		}
		return
	}
	if a.with != nil {
		a.with.undo(a, granted)
		return
	}
	if granted {
		if g := a.l.giveBack(a.l.s.ctx, a.grant, 1); g.Err != nil && wire.Judge(g.Err).Unsettled() {
			a.l.settle(a.grant, time.Now().Add(a.lease()), nil)
		}
	}
	a.l.pass()
}

// leaveRoot ends an attempt that was not granted.
func (a *acquisition) leaveRoot() {
	if a.late != 0 {
		a.settle()
	}
	a.l.pass()
	a.with.scatter()
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
	st.last = st.fence + block - 1
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

// ended: the context or the session has.
func (a *acquisition) ended() bool { return a.ctx.Err() != nil || isClosed(a.l.s.closing) }

// over is why a wait ended without the lock. behind: it stood in a queue of
// this session.
func (a *acquisition) over(behind bool) error {
	l := a.l
	l.mu.Lock()
	st, holder := l.streak, a.holder()
	behind = (behind || l.p.queues()) && st != nil
	warn := behind && !st.warned
	if warn {
		st.warned = true
	}
	l.mu.Unlock()
	if holder == nil && a.answered {
		holder = &LockedError{Name: l.keys.Name}
	}
	if holder != nil && behind {
		holder.Hint = selfHint
	}
	if warn {
		l.s.warn("a wait ended while this same session held the lock; if the waiter was called by the holder, "+
			"it must be passed the context that the holder's Lock returned", "lock", l.keys.Name)
	}
	switch {
	case a.ctx.Err() != nil && holder != nil:
		return EndedWait(a.ctx, holder)
	case a.ctx.Err() != nil:
		return a.fail(ctxErr(a.ctx))
	case isClosed(l.s.closing):
		return a.fail(ErrClosed)
	case holder == nil:
		return a.fail(errNoAnswer)
	}
	return Public(holder)
}

// errNoAnswer: the wait ran out, and nothing is known of a holder.
var errNoAnswer = fmt.Errorf("no answer from Redis before the wait was over: %w", os.ErrDeadlineExceeded)

const selfHint = " (held by this same session: if the holder called this Lock, it must pass the context that its own Lock returned)"

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// sighting is what was last learned of a holder other than the live streak: another session, or a former grant of this one.
type sighting struct {
	holder, about string
	at            time.Time // when that was learned
	until         time.Time // when the lease would have been over
}

// refused notes who holds the lock according to an answer of just now. mu held.
func (l *lock) refused(r answer) {
	now := time.Now()
	l.seen = &sighting{r.holder, strings.TrimSpace(r.about), now, now.Add(max(r.left, 0))}
}

// holder is who holds the lock as far as this session knows; nil if nobody is known to. What was learned before the
// acquisition began counts if the lease was not over then. mu held.
func (a *acquisition) holder() *LockedError {
	l := a.l
	if st := l.streak; st != nil {
		return &LockedError{Name: l.keys.Name, Holder: st.owner.(string), About: strings.TrimSpace(l.s.about.(string)), Remaining: max(0, time.Until(st.deadline()))}
	}
	if at := l.seen; at != nil && (!at.at.Before(a.begun) || a.begun.Before(at.until)) {
		return &LockedError{Name: l.keys.Name, Holder: at.holder, About: at.about, Remaining: max(0, time.Until(at.until))}
	}
	return nil
}

// lockedHere is the error of an acquisition that does not wait, for a lock that this session has, or asks for. mu held.
func (a *acquisition) lockedHere() *LockedError {
	e := a.holder()
	if e == nil {
		e = &LockedError{Name: a.l.keys.Name}
	}
	if a.l.streak != nil {
		e.Hint = selfHint
	}
	return e
}

// sayWaiting tells the observer once.
func (a *acquisition) sayWaiting() {
	if !a.waited {
		a.waited = true
		a.l.observe(a.ctx, Event{Kind: EventWaiting})
	}
}

// locked is the error of an acquisition that does not wait.
func (r answer) locked(name string) *LockedError {
	return &LockedError{Name: name, Holder: r.holder, About: strings.TrimSpace(r.about), Remaining: max(r.left, 0)}
}

// answer is a lock script's reply.
type answer struct {
	status byte
	now    int64 // Redis time, microseconds
	token  string
	left   time.Duration
	holder string
	about  string
	joined bool // it has the place of the attempt that it named
}

// parse reads 'G NOW TOKEN...', 'H NOW PTTL HOLDER TOKEN ABOUT', 'J...' as 'H...', 'V NOW' or 'S NOW'. Anything else
// is no answer: the zero one.
func parse(reply string) (a answer, ok bool) {
	if len(reply) < 3 || reply[1] != ' ' {
		return answer{}, false
	}
	now, rest, _ := strings.Cut(reply[2:], " ")
	var err error
	if a.now, err = strconv.ParseInt(now, 10, 64); err != nil {
		return answer{}, false
	}
	switch a.status = reply[0]; a.status {
	case 'G':
		a.token = rest
		ok = areTokens(rest)
	case 'H', 'J':
		a.status, a.joined = 'H', a.status == 'J'
		left, rest, _ := strings.Cut(rest, " ")
		a.holder, rest, _ = strings.Cut(rest, " ")
		a.token, a.about, _ = strings.Cut(rest, " ")
		var isToken bool
		_, isToken = tokenOf(a.token)
		a.left, ok = remaining(left)
		ok = ok && isToken
	case 'V', 'S':
		ok = true
	}
	if !ok {
		return answer{}, false
	}
	return a, true
}

// areTokens: one token or several, or one and the mark of a quorum's member.
func areTokens(words string) bool {
	word, rest, more := strings.Cut(words, " ")
	if _, ok := tokenOf(word); !ok {
		return false
	}
	return !more || rest == "+" || rest == "-" || areTokens(rest)
}

// tokenOf reads a token. Lua's numbers are exact that far.
func tokenOf(s string) (token int64, ok bool) {
	n, err := strconv.ParseUint(s, 10, 53)
	if err != nil {
		return 0, false
	}
	return int64(n), true
}

// Keys can be given any time to live. Until maxLeft it is told, and a waiter looks again after maxRest.
const (
	maxLeft = 100 * 365 * 24 * time.Hour
	maxRest = 24 * time.Hour
)

// remaining reads a time to live in milliseconds; it is negative where there is none.
func remaining(ms string) (left time.Duration, ok bool) {
	n, err := strconv.ParseInt(ms, 10, 64)
	return time.Duration(max(-1, min(n, maxLeft.Milliseconds()))) * time.Millisecond, err == nil
}
