package mutex

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// Tenure is one grant of Redis and what is held under it, term after term. First these are an outermost hold
// and those nested in it, and after them those of the next goroutine, to which the lock was passed on in
// memory.
type Tenure struct {
	// What follows never changes once the tenure has begun.
	Grant protocol.Grant
	Lock  *Lock
	begun time.Duration // age of the session

	first Entry // of the first term; saves an allocation

	lease watchdog.Lease // guarded by the watchdog

	// Lock.Mu guards the following.
	handover.Tenure
	since     time.Duration // age of the session when the present term began
	holds     *Entry        // live ones, linked
	renewed   int           // of these, how many want the lease renewed
	idle      bool          // renewal is switched off
	own       bool          // the lease is, or was made longer, as a holder chose
	warned    bool          // the log says that the session waits for itself
	awaited   time.Duration // age of the session since which its goroutines wait for this term; 0: none do
	contested bool          // others had the lock while the one that was granted it waited; does not change once it has begun
}

// ErrTooLate is why a grant did not begin a tenure: it came when its lease was over, or another grant has
// followed it.
var ErrTooLate = fmt.Errorf("%w: the grant took longer than its lease", failure.ErrLost)

// NewTenure is what Redis granted, before it begins. fixed: the lease is one that the caller chose.
func (l *Lock) NewTenure(g protocol.Grant, token int64, fixed bool) *Tenure {
	t := &Tenure{Grant: g, Lock: l, begun: l.S().Age(), own: fixed, idle: fixed}
	if g.Token == "" { // else the store has named the grant
		t.Grant.Token = token
	}
	t.Start(token)
	t.since = t.begun
	t.lease.Owner = t
	return t
}

// Begin makes what Redis granted the live tenure, with one entry in it. The lease counts from
// base. The caller must keep the lock for it, and release what could not begin.
//
// Lock.Mu is held, but not all the time: a former tenure, which Redis must have lost, ends first, and its end
// cancels contexts, which may call anything.
func (t *Tenure) Begin(base time.Time, lease time.Duration) error {
	l := t.Lock
	s := l.S()
	deadline := base.Add(protocol.Valid(lease))
	for old := l.tenure; old != nil && old.Token < t.Token; old = l.tenure {
		l.Mu.Unlock()
		old.end(handover.Lost, failure.ErrGone) // or Redis would not have granted again
		l.Mu.Lock()
	}
	switch {
	case wakeup.Closed(s.Closing()): // Shutdown has looked, or will look, for what is held
		return failure.ErrClosed
	case l.tenure != nil || !time.Now().Before(deadline):
		return ErrTooLate
	case t.Token == 0:
		return failure.ErrNoToken
	}
	l.tenure, l.seen = t, nil
	l.Root.Install()
	every := s.Lease / 3
	if t.idle {
		every = 0
	}
	s.Watchdog.Add(&t.lease, deadline, every)
	return nil
}

// Deadline is until when the tenure is valid.
func (t *Tenure) Deadline() time.Time { return t.Lock.S().Watchdog.Deadline(&t.lease) }

// Holds are linked, not in a map: a lock with one hold needs no more memory for it.

// link makes e a live hold of the tenure, which is renewed from now on if e wants it. Lock.Mu held.
func (t *Tenure) link(e *Entry) {
	if e.next = t.holds; e.next != nil {
		e.next.prev = e
	}
	t.holds = e
	t.Use()
	if e.fixed {
		return
	}
	t.renewed++
	if t.idle {
		t.idle = false
		t.Lock.S().Watchdog.SetInterval(&t.lease, t.Lock.S().Lease/3)
	}
}

// unlink ends that. Lock.Mu held.
func (t *Tenure) unlink(e *Entry) {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		t.holds = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	if !e.fixed {
		t.renewed--
	}
}

// term is what one goroutine had of a tenure; zero if it had gone before it held it.
type term struct {
	token int64
	held  time.Duration
}

// term is the present one. Lock.Mu held.
func (t *Tenure) term() term {
	if !t.Used() {
		return term{}
	}
	return term{t.Token, t.Lock.S().Age() - t.since}
}

// ended tells the observer.
func (r term) ended(ctx context.Context, l *Lock, err error) {
	if r != (term{}) {
		l.Observe(ctx, session.Event{Kind: session.EventReleased, Token: r.token, Held: r.held, Err: err})
	}
}

// end ends a tenure without an Unlock, for a reason if it was lost. It reports whether it was this call that
// ended it. Where the deadline has passed, the contexts are canceled before Redis can grant the lock to
// another holder. Where Redis does not have the tenure any more, another may have the lock already: what the
// lock protects must check the token.
func (t *Tenure) end(why handover.State, reason error) bool {
	l := t.Lock
	l.Mu.Lock()
	if !t.End(why) {
		l.Mu.Unlock()
		return false
	}
	holds, was := t.holds, t.term()
	for e := holds; e != nil; e = e.next {
		e.state.Store(uint32(why))
		e.gate.Waiters.Recheck()
	}
	t.gone()
	l.Root.Install()
	l.Root.Leave()
	l.Mu.Unlock()

	l.S().Watchdog.Remove(&t.lease)
	for e := holds; e != nil; e = e.next { // the list of a tenure that is over changes no more
		e.cancel(handle.ErrorOf(why))
	}
	if l.S().Begin() { // many may be lost at one instant: their contexts must not wait for a log
		go func() {
			defer l.S().End()
			t.report(was, reason)
		}()
	} else {
		t.report(was, reason)
	}
	l.Drop()
	return true
}

// gone takes the tenure off the lock. The waiters of this session remember it until they learn of another
// holder. Lock.Mu held.
func (t *Tenure) gone() {
	l := t.Lock
	l.tenure = nil
	if l.Root.Waiters.First() != nil {
		now := time.Now()
		l.seen = &failure.Sighting{Holder: t.Grant.Owner.(string), About: l.S().About(), At: now, Until: now}
	}
}

// report tells operators and observers of an end without an Unlock.
func (t *Tenure) report(was term, reason error) {
	l := t.Lock
	if reason == nil || was == (term{}) {
		was.ended(l.S().Ctx, l, nil)
		return
	}
	l.S().Warn("lock lost", "lock", l.Keys.Name, "token", was.token, "held", was.held, "reason", reason)
	l.Observe(l.S().Ctx, session.Event{Kind: session.EventLost, Token: was.token, Held: was.held, Err: fmt.Errorf("%w: %w", failure.ErrLost, reason)})
}

// Request makes the request that tells Redis the present count, and a lease in milliseconds. It takes
// Lock.Mu.
func (t *Tenure) Request(leaseArg any) wire.Request {
	l := t.Lock
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.Keys.RequestAlone(l.Kind.Keep, t.Grant.Owner, t.Grant.Token, t.Change, t.Entries, leaseArg,
		l.S().Args.Keep, "0", l.Keys.Channel)
}

// Update is a request with what is true when a copy of it leaves, and a lease. It sets and never adds, so a
// copy that comes twice, or after a later one, changes nothing.
type Update struct {
	T     *Tenure
	Lease time.Duration
}

// Request makes a copy.
func (u *Update) Request(time.Time) wire.Request { return u.T.Request(u.Lease.Milliseconds()) }

// Update brings Redis up to date with the hold count, and the lease to at least lease. It blocks for the
// answer.
func (t *Tenure) Update(ctx context.Context, lease time.Duration, most int, abandoned *atomic.Bool) wire.Outcome {
	l := t.Lock
	return t.kept(l.S().Link.Call(ctx, l.Kind.Keep, &Update{t, lease}, most, abandoned), lease)
}

// kept handles the reply to any request that updates the tenure. lease is what the request asked for; 0
// leaves it as it is.
func (t *Tenure) kept(o wire.Outcome, lease time.Duration) wire.Outcome {
	l := t.Lock
	switch {
	case o.Err != nil:
		o.Err = l.Keys.Failed(o.Err)
	case o.Reply != "K":
		t.end(handover.Lost, failure.ErrGone)
		if why := t.lockedState(); why != handover.Released { // else the last Unlock overtook this
			o.Err = l.Fail(handle.ErrorOf(why))
		}
	case lease > 0:
		if lease > l.S().Lease {
			l.Mu.Lock()
			t.own = true
			l.Mu.Unlock()
		}
		l.S().Watchdog.Extend(&t.lease, o.Sent.Add(protocol.Valid(lease)))
	}
	return o
}

// lockedState is State for a caller that does not hold Lock.Mu.
func (t *Tenure) lockedState() handover.State {
	t.Lock.Mu.Lock()
	defer t.Lock.Mu.Unlock()
	return t.State()
}

// A tenure is a session.Lessee.

// LeaseKey is the lock's key.
func (t *Tenure) LeaseKey() string { return t.Lock.Keys.Lock() }

// Renewal is the request that renews it to the session's lease.
func (t *Tenure) Renewal() (*wire.Script, wire.Request) {
	t.warnOfItself()
	return t.Lock.Kind.Keep, t.Request(t.Lock.S().Args.Lease)
}

// longWait is after which time a wait for the session's own holder is logged: it may be one without end.
const longWait = 10 * time.Second

// warnOfItself logs, once, that goroutines have waited for long for a holder of their own session. It is
// called with each renewal, so that no wait costs a timer.
func (t *Tenure) warnOfItself() {
	l := t.Lock
	s := l.S()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	switch {
	case l.Root.Waiters.First() == nil:
		t.awaited = 0
	case t.awaited == 0:
		t.awaited = s.Age()
	case !t.warned && s.Age()-t.awaited >= longWait && s.Begin():
		t.warned = true
		go func() { // loggers run under no mutex
			defer s.End()
			s.Warn("goroutines have waited for 10 s for a holder of this same session; "+passIt, "lock", l.Keys.Name)
		}()
	}
}

// LeaseLost ends it.
func (t *Tenure) LeaseLost(deadlinePassed bool) {
	t.end(handover.Lost, failure.LossReason(deadlinePassed))
}

// RenewalFailed tells the observer.
func (t *Tenure) RenewalFailed(err error) {
	l := t.Lock
	l.Mu.Lock()
	token := t.Token
	l.Mu.Unlock()
	l.Observe(l.S().Ctx, session.Event{Kind: session.EventRenewFailed, Token: token, Err: err})
}
