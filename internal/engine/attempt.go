package engine

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

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

// sayWaiting tells the observer once.
func (a *acquisition) sayWaiting() {
	if !a.waited {
		a.waited = true
		a.l.observe(a.ctx, Event{Kind: EventWaiting})
	}
}
