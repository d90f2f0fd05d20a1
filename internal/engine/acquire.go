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
)

// Config is what one acquisition can be told.
type Config struct {
	Lease   time.Duration // fixed, not renewed; 0: the session's, renewed
	Wait    time.Duration // at most; only if Bounded
	Bounded bool
}

// NewConfig applies options to what an acquisition starts from.
func NewConfig[O ~func(*Config)](c Config, options []O) Config {
	for _, o := range options {
		if o != nil {
			o(&c)
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

func NewMutex(s *Session, p *Protocol, name string, cfg Config) *Mutex {
	m := &Mutex{s: s, p: p, cfg: cfg}
	switch {
	case s == nil:
		m.err = errors.New("lockline: the session is nil")
	case s.Redisson && p.queues():
		m.err = errors.New("lockline: a session with RedissonKeys has no fair locks: Redisson's queue is another")
	case s.Redisson:
		m.keys, m.err = redissonKeys(name)
	case p.queues():
		m.keys, m.err = newKeys(s.Prefix, p.Kind, name, ":q", ":a", ":d")
		if m.err == nil {
			m.keys.channel = s.Prefix + ":s:"
		}
	default:
		m.keys, m.err = newKeys(s.Prefix, p.Kind, name)
	}
	return m
}

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
	w        *waiter

	expired  <-chan time.Time // when the wait that cfg allows is over
	answered bool             // Redis has answered once: from then on an outage only lengthens the wait
	waited   bool
}

// Acquire returns the hold, which is the context to go on with, too.
func (m *Mutex) Acquire(ctx context.Context, cfg Config, try bool) (context.Context, *Hold, error) {
	if err := m.check(ctx); err != nil {
		return ctx, nil, err
	}
	fail := func(err error) (context.Context, *Hold, error) {
		return ctx, nil, &nameError{name: m.keys.Name, err: err}
	}
	if cfg.Lease != 0 {
		if err := checkLease("WithLease", cfg.Lease); err != nil {
			return fail(err)
		}
	}
	if cfg.Bounded && cfg.Wait < 0 {
		return fail(fmt.Errorf("WaitAtMost: a negative wait: %v", cfg.Wait))
	}
	if ctx.Err() != nil {
		return fail(ctxErr(ctx))
	}
	l, err := m.s.enter(m.keys, m.p)
	if err != nil {
		return fail(err)
	}
	defer l.leave()
	a := &acquisition{ctx: ctx, l: l, cfg: cfg, try: try || cfg.Bounded && cfg.Wait == 0, begun: time.Now()}
	a.as, _ = ctx.Value(ownerKey{}).(*Owner)
	if cfg.Bounded && !a.try {
		t := time.NewTimer(cfg.Wait)
		defer t.Stop()
		a.expired = t.C
	}
	h, err := a.run()
	if err != nil {
		l.observe(ctx, Event{Kind: EventNotAcquired, Wait: time.Since(a.begun), Err: err})
		return ctx, nil, err
	}
	return h, h.handle(), nil
}

// lease is what this acquisition asks of Redis.
func (a *acquisition) lease() time.Duration {
	if a.cfg.Lease != 0 {
		return a.cfg.Lease
	}
	return a.l.s.Lease
}

func (a *acquisition) fail(err error) error { return &nameError{name: a.l.keys.Name, err: err} }

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
		if l.p.queues() && outer == nil && (st == nil || a.as == nil || a.as != l.root.owner) && !(a.try && st != nil) {
			l.mu.Unlock()
			h, look, err := a.competeQueued()
			if look {
				continue
			}
			return h, err
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
			return nil, err
		} else {
			t := sl.join(a.as)
			l.mu.Unlock()
			admitted, err := a.stand(sl, t, outer)
			if err != nil {
				return nil, err
			}
			if !admitted {
				continue
			}
			if sl == &l.root {
				st = nil
			}
		}
		if st != nil {
			return a.nest(st, outer)
		}
		return a.compete()
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

// stand waits for a turn. What it stood behind may have changed meanwhile: then
// it is not admitted and looks again.
func (a *acquisition) stand(sl *slot, t *turn, outer *hold) (admitted bool, err error) {
	a.sayWaiting()
	select {
	case admitted := <-t.ready:
		return admitted, nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-a.l.s.closing:
	}
	l := a.l
	err = a.over(true)
	l.mu.Lock()
	if sl.cancel(t) {
		l.mu.Unlock()
		return false, err
	}
	l.mu.Unlock()
	if !<-t.ready {
		return false, err
	}
	// Admitted in that instant: pass it on.
	if sl == &l.root {
		l.pass()
	} else {
		a.abandonStay(outer.st, outer)
	}
	return false, err
}

func (l *lock) setElsewhere(yes bool) {
	l.mu.Lock()
	l.elsewhere = yes
	l.mu.Unlock()
}

// pass lets the next one compete.
func (l *lock) pass() {
	l.mu.Lock()
	l.elsewhere = false // the next one asks
	l.root.leave()
	l.mu.Unlock()
}

// nest turns a stay under a live streak into a hold.
func (a *acquisition) nest(st *streak, outer *hold) (*hold, error) {
	l := a.l
	o, err := a.exchange(st)
	if err == nil {
		err = o.err
	}
	if err != nil {
		a.abandonStay(st, outer)
		return nil, err
	}
	h := a.newHold(new(hold), st)
	h.outer = outer
	l.mu.Lock()
	if why := st.state; why != held || !time.Now().Before(st.deadline()) {
		l.mu.Unlock()
		if why == held { // the timer that ends it is late
			why = lost
			st.end(lost)
		}
		h.cancel(why.err())
		return nil, a.fail(why.err())
	}
	st.link(h)
	depth := st.n
	if !h.fixed {
		l.s.dog.SetInterval(&st.lease, l.s.Lease/3)
	}
	l.mu.Unlock()
	l.observe(a.ctx, Event{Kind: EventAcquired, Wait: time.Since(a.begun), Depth: depth, Token: st.fence})
	return h, nil
}

// abandonStay ends a stay that became no hold, and tells Redis the count.
func (a *acquisition) abandonStay(st *streak, outer *hold) {
	l := a.l
	l.mu.Lock()
	if st.state != held {
		l.mu.Unlock()
		return
	}
	last := st.depart(outer)
	l.mu.Unlock()
	if last {
		l.s.dog.Remove(&st.lease)
	}
	l.s.work.Add(1)
	go func() {
		defer l.s.end()
		if last {
			_ = l.release(l.s.ctx, st)
		} else {
			st.tell(l.s.ctx, 0, nil)
		}
	}()
}

func (a *acquisition) newHold(h *hold, st *streak) *hold {
	h.st = st
	h.fixed, h.as = a.cfg.Lease != 0, a.as
	h.up, _ = a.ctx.Value(holdKey{}).(*hold)
	h.Context, h.cancel = context.WithCancelCause(a.ctx)
	return h
}

// newAttempt begins a try for the lock in Redis, with an id that is never used again.
func (a *acquisition) newAttempt() {
	s := a.l.s
	var id [64]byte
	owner := string(strconv.AppendInt(append(append(id[:0], s.id...), ':'), s.attempts.Add(1), 10))
	a.grant = grant{owner: owner, token: ""} // the token is not known until granted
	a.notAfter = 0
}

// maxVoid bounds how often in a row a request may come too late.
const maxVoid = 8

// compete asks Redis until the lock is granted or the wait ends. Whoever
// competes occupies the root slot, and leaves it, or leaves it to the hold, or
// to the goroutine that gives back.
func (a *acquisition) compete() (*hold, error) {
	l := a.l
	s := l.s
	a.newAttempt()
	var outage time.Time // since when Redis does not answer
	for try, void := 0, 0; ; {
		if l.sub != nil {
			l.sub.Take() // what comes from here on is news
		}
		o, err := a.exchange(nil)
		if err != nil {
			return nil, err // exchange's goroutine has the root slot now
		}
		r, _ := parse(o.reply)
		switch {
		case o.err != nil && a.ctx.Err() != nil:
			a.leaveRoot()
			return nil, a.over(false)
		case o.err != nil:
			if outage.IsZero() {
				outage = o.sent
			}
			if !a.answered || !judge(o.err).transient || time.Since(outage) > s.Lease {
				a.leaveRoot()
				return nil, l.keys.failed(o.err)
			}
			try++
			if err := a.sleep(backoff(try, 20*time.Millisecond, time.Second)); err != nil {
				a.leaveRoot()
				return nil, err
			}
			continue
		case r.status == 'V':
			if void++; void > maxVoid {
				a.leaveRoot()
				return nil, a.fail(fmt.Errorf("requests need longer than %v to reach Redis", patience(a.lease())))
			}
			continue
		case r.status == 'G':
			h, err := a.granted(o.sent, a.lease(), r.token)
			if errors.Is(err, errTooLate) && void < maxVoid {
				void++
				a.newAttempt()
				continue
			}
			if err != nil {
				l.pass()
			}
			return h, err
		case r.status != 'H':
			a.leaveRoot()
			return nil, a.fail(unexpected(o.reply))
		}
		a.answered, outage, try, void = true, time.Time{}, 0, 0
		l.setElsewhere(true)
		if a.try {
			a.leaveRoot()
			return nil, r.locked(l.keys.Name)
		}
		if l.sub == nil {
			l.sub = s.hub.Subscribe(l.keys.channel.(string))
		}
		a.sayWaiting()
		left := r.left
		if left < 0 { // no expiry: not a lock of ours, look again now and then
			left = s.Lease
		}
		if err := a.sleep(left + time.Millisecond); err != nil {
			a.leaveRoot()
			return nil, err
		}
	}
}

// sleep waits for news of the lock, at most for d. Its error says that the wait is over.
func (a *acquisition) sleep(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	var news <-chan struct{}
	if a.l.sub != nil {
		news = a.l.sub.C()
	}
	select {
	case <-news:
		return nil
	case <-t.C:
		return nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-a.l.s.closing:
	}
	return a.over(false)
}

// flight is a request under way in a goroutine of its own.
type flight struct {
	done chan struct{} // closed when o is there
	o    outcome
	left atomic.Bool // whoever sets it first decides who takes care of the outcome
}

// exchange asks for the lock, or, to nest, tells a streak; and waits for the
// answer as long as the acquisition may. If that ends first, the flight's
// goroutine stays behind and undoes what comes of the request.
func (a *acquisition) exchange(st *streak) (outcome, error) {
	f := &flight{done: make(chan struct{})}
	s := a.l.s
	s.work.Add(1)
	go a.fly(f, st)
	select {
	case <-f.done:
		return f.o, nil
	case <-a.ctx.Done():
	case <-a.expired:
	case <-s.closing:
	}
	err := a.over(false)
	a.l.keep()                               // until undo: or the next Lock would not know of this one's request
	if !f.left.CompareAndSwap(false, true) { // it came in that instant
		s.work.Add(1)
		go func() {
			defer s.end()
			<-f.done
			a.undo(f.o, st)
		}()
	}
	return outcome{}, err
}

func (a *acquisition) fly(f *flight, st *streak) {
	defer a.l.s.end()
	if st != nil {
		f.o = st.tell(a.ctx, a.lease(), &f.left)
	} else {
		f.o = a.ask(&f.left)
	}
	if f.left.CompareAndSwap(false, true) {
		close(f.done)
		return
	}
	a.undo(f.o, st)
}

// ask sends the attempt's request.
func (a *acquisition) ask(left *atomic.Bool) outcome {
	s := a.l.s
	o := s.call(a.ctx, a.l.p.Lock, a, tries, left)
	if o.unanswered != nil {
		a.late = a.notAfter
	}
	if r, ok := parse(o.reply); ok && o.err == nil {
		s.heardRedis(r.now, o.sent)
	}
	return o
}

// request makes a copy of the attempt's request. Without knowledge of the Redis
// clock it is void on arrival, but its reply brings the time.
func (a *acquisition) request(now time.Time) request {
	s := a.l.s
	lease, ms := s.Lease, s.renew
	if a.cfg.Lease != 0 {
		lease, ms = a.cfg.Lease, a.cfg.Lease.Milliseconds()
	}
	if t := s.redisNow(now); t != 0 {
		if a.l.p.queues() {
			lease = min(lease, s.Liveness) // what is handed over expires that early
		}
		a.notAfter = max(a.notAfter, t+patience(lease).Microseconds())
	}
	if a.l.p.queues() {
		liveness := s.Liveness.Milliseconds()
		if a.try {
			liveness = 0
		}
		return a.l.keys.request(a.l.p.Lock, a.owner, ms, a.notAfter, s.about, keepMemoryArg, liveness, a.l.keys.channel)
	}
	return a.l.keys.request(a.l.p.Lock, a.owner, ms, a.notAfter, s.about, keepMemoryArg)
}

// undo ends an attempt that nobody waits for any more, whatever came of it, and
// then leaves the root slot. A re-entry's count was put right by who gave it up.
func (a *acquisition) undo(o outcome, st *streak) {
	defer a.l.drop()
	if st != nil {
		return
	}
	if a.l.p.queues() {
		a.quit(o)
		return
	}
	if r, _ := parse(o.reply); r.status == 'G' || a.late != 0 {
		if g := a.l.giveBack(a.l.s.ctx, a.grant, 1); g.err != nil && judge(g.err).transient {
			a.l.settle(a.grant, time.Now().Add(a.lease()))
		}
	}
	a.l.pass()
}

// leaveRoot ends an attempt that was not granted.
func (a *acquisition) leaveRoot() {
	if a.late != 0 {
		a.l.settle(a.grant, time.Now().Add(a.lease()))
	}
	a.l.pass()
}

// errTooLate: a grant came when its lease was over, or another one has followed it.
var errTooLate = fmt.Errorf("%w: the grant took longer than its lease", ErrLost)

// granted makes a hold of what Redis granted, not before base and for at least
// lease. What cannot be used any more it gives back, and the caller asks anew.
func (a *acquisition) granted(base time.Time, lease time.Duration, token string) (*hold, error) {
	l := a.l
	s := l.s
	deadline := base.Add(valid(lease))
	st := &streak{grant: a.grant, lock: l, n: 1, since: time.Since(s.born)}
	st.token = token
	st.fence, _ = strconv.ParseInt(token, 10, 64)
	st.lease.Owner = st
	h := a.newHold(&st.first, st)
	every := time.Duration(0)
	if !h.fixed {
		every = s.Lease / 3
	}
	l.keep()
	l.mu.Lock()
	for old := l.streak; old != nil && old.fence < st.fence; old = l.streak {
		l.mu.Unlock()
		old.end(lost) // or Redis would not have granted again
		l.mu.Lock()
	}
	err := a.takeable(deadline)
	if err == nil {
		st.link(h)
		l.streak, l.elsewhere = st, false
		l.root.inside, l.root.owner = 1, a.as
		s.dog.Add(&st.lease, deadline, every)
		if a.as != nil { // they share it now
			l.root.turnAway(a.as)
		}
	}
	l.mu.Unlock()
	if err != nil {
		l.drop()
		h.cancel(err)
		l.settle(a.grant, time.Now().Add(lease))
		return nil, err
	}
	if a.as != nil && l.p.queues() {
		l.shareWith(a.as)
	}
	if h.fixed && lease != a.cfg.Lease { // handed over for the liveness time
		s.work.Add(1)
		go func() {
			defer s.end()
			st.tell(s.ctx, a.cfg.Lease, nil)
		}()
	}
	l.observe(a.ctx, Event{Kind: EventAcquired, Wait: time.Since(a.begun), Depth: 1, Token: st.fence})
	return h, nil
}

// takeable is nil if a grant can still be used. mu held.
func (a *acquisition) takeable(deadline time.Time) error {
	select {
	case <-a.l.s.closing: // Shutdown has looked, or will look, for what is held
		return a.fail(ErrClosed)
	default:
	}
	if a.l.streak != nil || !time.Now().Before(deadline) {
		return a.fail(errTooLate)
	}
	return nil
}

// over says why a wait ended without the lock. behind: it stood in a queue of
// this session.
func (a *acquisition) over(behind bool) error {
	l := a.l
	hint := ""
	l.mu.Lock()
	st := l.streak
	behind = behind || l.p.queues()
	warn := behind && st != nil && !st.warned
	if warn {
		st.warned = true
	}
	if behind && st != nil {
		hint = selfHint
	}
	l.mu.Unlock()
	if warn {
		l.s.warn("a wait ended while this same session held the lock; if the waiter was called by the holder, "+
			"it must be passed the context that the holder's Lock returned", "lock", l.keys.Name)
	}
	switch {
	case a.ctx.Err() != nil:
		return &nameError{name: l.keys.Name, err: ctxErr(a.ctx), hint: hint}
	case isClosed(l.s.closing):
		return a.fail(ErrClosed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !a.answered && l.streak == nil && !l.elsewhere {
		return a.fail(errNoAnswer)
	}
	err := a.lockedHere()
	err.Hint = hint
	return err
}

// errNoAnswer: the wait ran out, and nothing is known of a holder.
var errNoAnswer = fmt.Errorf("no answer from Redis in the time of WaitAtMost: %w", os.ErrDeadlineExceeded)

const selfHint = " (held by this same session: if the holder called this Lock, it must pass the context that its own Lock returned)"

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lockedHere describes the holder as far as this session knows. mu held.
func (a *acquisition) lockedHere() *LockedError {
	e := &LockedError{Name: a.l.keys.Name}
	if st := a.l.streak; st != nil {
		e.Holder, _ = st.owner.(string)
		e.About = strings.TrimSpace(a.l.s.about.(string))
		e.Remaining = max(0, time.Until(st.deadline()))
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
func (r answer) locked(name string) error {
	return &LockedError{Name: name, Holder: r.holder, About: strings.TrimSpace(r.about), Remaining: max(r.left, 0)}
}

func unexpected(reply string) error { return fmt.Errorf("unexpected reply %q", reply) }

// answer is a lock script's reply.
type answer struct {
	status byte
	now    int64 // Redis time, microseconds
	token  string
	left   time.Duration
	holder string
	about  string
}

// parse reads 'G NOW TOKEN', 'H NOW PTTL HOLDER TOKEN ABOUT', 'V NOW' or 'S NOW'.
func parse(reply string) (a answer, ok bool) {
	if len(reply) < 3 || reply[1] != ' ' {
		return a, false
	}
	now, rest, _ := strings.Cut(reply[2:], " ")
	var err error
	if a.now, err = strconv.ParseInt(now, 10, 64); err != nil {
		return a, false
	}
	switch reply[0] {
	case 'G':
		a.token = rest
	case 'H':
		left, rest, _ := strings.Cut(rest, " ")
		a.holder, rest, _ = strings.Cut(rest, " ")
		a.token, a.about, _ = strings.Cut(rest, " ")
		var ms int64
		ms, err = strconv.ParseInt(left, 10, 64)
		a.left = time.Duration(ms) * time.Millisecond
	}
	a.status = reply[0]
	return a, err == nil
}
