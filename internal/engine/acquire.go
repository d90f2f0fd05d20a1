package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

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

func (a *acquisition) newHold(h *hold, st *streak) *hold {
	h.st = st
	h.fixed, h.named, h.as = a.cfg.Lease != 0, a.cfg.Named, a.as
	h.up, _ = a.ctx.Value(holdKey{}).(*hold)
	h.Context, h.cancel = context.WithCancelCause(a.ctx)
	return h
}
