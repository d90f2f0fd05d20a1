package engine

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/lockline/lockline/internal/wire"
)

// inherit is succeed for all that was handed over: the company's first, as in takeAll.
func (a *acquisition) inherit(ad admission) (*hold, error) {
	if a.with == nil {
		return a.succeed(ad)
	}
	defer ad.end()
	ctx, taken := a.ctx, []*companion(nil)
	for i := range ad.with {
		m := &a.with.all[i]
		m.ctx, m.led = a.ctx, !m.beside
		got, err := m.succeed(ad.with[i])
		if got == nil {
			a.ctx, ad.with = ctx, ad.with[i+1:]
			giveBack(taken)
			a.disclaim(ad)
			return nil, err
		}
		m.got = got.handle()
		taken, a.ctx = append(taken, m), m.got.context()
	}
	h, err := a.succeed(ad)
	if h == nil {
		a.ctx = ctx
		giveBack(taken)
		return nil, err
	}
	for _, m := range taken {
		if m.led {
			m.confirmed()
		}
	}
	return h, nil
}

// disclaim passes on what was handed over to an acquisition that does not want it any more. It
// returns what abandon does for the lock that was waited for.
func (a *acquisition) disclaim(ad admission) (gone <-chan struct{}) {
	for _, c := range ad.with {
		c.st.abandon(a.ctx, nil)
	}
	return ad.st.abandon(a.ctx, nil)
}

// heir is who waits in this process for one of several locks that are unlocked together,
// and wants none but these along: it can be handed all of them in memory.
type heir struct {
	t    *turn
	ctx  context.Context // that it began to wait with
	lead int             // the lock that it waits for, among the holds
	with []admission     // to be: the streaks put aside for it, by companion
}

func heirOf(holds []*Hold) *heir {
	for i, hd := range holds {
		l := hd.lock()
		if l == nil {
			continue
		}
		to := heir{lead: i}
		l.mu.Lock()
		t := l.root.queue.first
		if t != nil {
			to.t, to.ctx = t, t.a.ctx // once it is out of the queue, its goroutine may change a
		}
		l.mu.Unlock()
		if t == nil || t.a.with.size() == 0 {
			continue
		}
		unwanted := func(l *lock) bool {
			return !slices.ContainsFunc(holds, func(hd *Hold) bool { return hd.lock() == l })
		}
		if locks := t.a.with.locks; !slices.ContainsFunc(locks, unwanted) {
			to.with = make([]admission, len(locks))
			return &to
		}
	}
	return nil
}

// lock is that of a plain hold.
func (hd *Hold) lock() *lock {
	if hd != nil {
		if e, ok := hd.of.(*entry); ok {
			return e.st.lock
		}
	}
	return nil
}

// place is where l is in the company; -1: nowhere.
func (to *heir) place(l *lock) int {
	if to == nil {
		return -1
	}
	return slices.Index(to.t.a.with.locks, l)
}

// newcomer is what it is to l, of its company. l.mu held.
func (to *heir) newcomer(l *lock) bool {
	return (&acquisition{ctx: to.ctx, l: l, as: to.t.a.as}).newcomer()
}

// order is the index of the n-th of len holds to leave: the one that it waits for is the last.
func (to *heir) order(n, len int) int {
	switch {
	case to == nil || n < to.lead:
		return n
	case n < len-1:
		return n + 1
	}
	return to.lead
}

// complete: it is t, and all are put aside for it.
func (to *heir) complete(t *turn) bool {
	return to != nil && to.t == t && !slices.ContainsFunc(to.with, func(ad admission) bool { return ad.st == nil })
}

// end: what was put aside is counted in Session.work until it is inherited, or not.
func (ad admission) end() {
	for _, c := range ad.with {
		c.st.lock.s.end()
	}
}

// reclaim takes back what was put aside of l and not handed over.
func (to *heir) reclaim(ctx context.Context, l *lock) (unlocking, error) {
	i := to.place(l)
	if i < 0 || to.with == nil || to.with[i].st == nil {
		return unlocking{}, nil
	}
	st := to.with[i].st
	to.with[i].st = nil
	l.mu.Lock()
	if why := st.state; why != held {
		l.mu.Unlock()
		l.s.end()
		return unlocking{}, l.fail(why.err())
	}
	left, was := st.depart(nil, nil)
	if left == theLast {
		l.s.dog.Remove(&st.lease)
	}
	l.mu.Unlock()
	if left == passedOn {
		was.ended(ctx, l, nil)
		l.s.end()
		return unlocking{}, nil
	}
	return unlocking{st, left == theLast, was}, nil
}

// UnlockAll is Unlock of many holds at once. Locks that one script can serve are
// released by one request. The errors are in the order of the holds; a hold may be nil.
func UnlockAll(ctx context.Context, holds []*Hold) []error {
	errs := make([]error, len(holds))
	type numbered struct {
		i   int
		err error
	}
	waiting, done := map[int]*lock{}, make(chan numbered, len(holds))
	groups := map[any][]int{}
	us := make([]unlocking, len(holds))
	var others sync.WaitGroup // they bound their wait themselves
	to := heirOf(holds)
	for n := range holds {
		i := to.order(n, len(holds))
		hd := holds[i]
		if hd == nil {
			continue
		}
		e, ok := hd.of.(*entry)
		if !ok {
			others.Go(func() { errs[i] = hd.Unlock(ctx) })
			continue
		}
		hd.cleanup.Stop()
		us[i], errs[i] = (*hold)(e).leave(ctx, to)
	}
	for i, hd := range holds {
		if l := hd.lock(); l != nil && us[i].st == nil && errs[i] == nil { // the errors of others are not there yet
			us[i], errs[i] = to.reclaim(ctx, l)
		}
		if us[i].st == nil {
			continue
		}
		l := us[i].st.lock
		waiting[i] = l
		if g := l.s.group(l.p, l.keys); g != nil && us[i].last {
			groups[*g] = append(groups[*g], i)
		} else {
			groups[i] = []int{i}
		}
	}
	for _, group := range groups {
		for some := range slices.Chunk(group, MaxSeveral) {
			go func() {
				var together []unlocking
				for _, i := range some {
					together = append(together, us[i])
				}
				for n, err := range sendAll(context.WithoutCancel(ctx), together) {
					done <- numbered{some[n], err}
				}
			}()
		}
	}
	wait, cancel := unlockBound(ctx)
	defer cancel()
	for len(waiting) > 0 && wait.Err() == nil {
		select {
		case n := <-done:
			errs[n.i] = n.err
			delete(waiting, n.i)
		case <-wait.Done():
		}
	}
	for i, l := range waiting {
		errs[i] = l.fail(ctxErr(wait))
	}
	others.Wait()
	return errs
}

// sendAll releases locks that one script can serve, or sends one unlocking.
func sendAll(ctx context.Context, us []unlocking) []error {
	if len(us) == 1 {
		return []error{us[0].send(ctx)}
	}
	all := &release{l: us[0].st.lock, grant: us[0].st.final()}
	for _, u := range us[1:] {
		all.more = append(all.more, release{l: u.st.lock, grant: u.st.final()})
	}
	s := all.l.s
	o := s.call(ctx, all.l.p.ReleaseSeveral, all, wire.Tries, nil)
	replies := strings.Split(o.Reply, ",")
	if o.Err == nil && len(replies) != len(us) {
		o.Err = wire.Unexpected(o.Reply)
	}
	errs := make([]error, len(us))
	for i, u := range us {
		one := o
		switch {
		case o.Err == nil:
			one.Reply = replies[i]
		case !wire.Judge(o.Err).Transient: // refused, perhaps on account of one of them
			if one = u.st.lock.giveBack(ctx, u.st.final(), 1); one.Unanswered == nil {
				one.Unanswered = o.Unanswered
			}
		}
		errs[i] = u.st.lock.released(ctx, u.st, u.was, one)
		s.end()
	}
	return errs
}
