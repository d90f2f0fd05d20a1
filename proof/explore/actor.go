package explore

import (
	"context"
	"fmt"
	"time"

	"github.com/lockline/lockline/rlock"
)

// A phase is the state of an actor.
type phase uint8

const (
	idle phase = iota
	locking
	holding
	nesting // the actor is in a nested Lock
	nested
	unnesting // the actor is in the Unlock of the nested hold
	reducing  // the actor is in the Unlock of the outer hold, and the nested hold stays held
	unlocking
	finished
)

func (p phase) String() string {
	return [...]string{"idle", "in Lock", "holding", "in a nested Lock", "holding twice",
		"in a nested Unlock", "in Unlock of the outer hold", "in Unlock", "finished"}[p]
}

// An actor acts as one goroutine of a process. It uses the lock once for each of its roles, one after
// another.
type actor struct {
	name  string
	p     *process
	roles []role

	// run.mu guards the following.
	at        int // index of the present role
	phase     phase
	ctx       context.Context // context of the present call of Lock
	cancel    context.CancelFunc
	canceled  bool            // ctx was canceled while the call waited
	leftAt    time.Time       // time at which ctx was canceled
	hold      *rlock.Hold     // present hold; nil: the actor has none
	held      context.Context // context of hold
	inner     *rlock.Hold     // nested hold; nil: there is none
	below     context.Context // context of inner
	reduced   bool            // hold was nested in an outer hold, which reduce has unlocked or is unlocking
	after     []*actor        // waiting actors that must be served before this call
	attempts  int             // number of the last attempt of the session when the call began
	contended bool            // during the call, there was a reason to refuse it, see run.contended
}

// role returns the present role.
func (a *actor) role() role { return a.roles[a.at] }

// takes returns the number of permits that the actor has or wants.
func (a *actor) takes() int {
	if a.reduced {
		return 1
	}
	if n := a.role().takes; n > 0 {
		return n
	}
	return a.p.r.world.kind.limit
}

// busy reports whether the actor uses the lock, or wants to.
func (a *actor) busy() bool { return a.phase != idle && a.phase != finished }

// lives reports whether the actor has a hold that has not ended, and that the actor is not unlocking. The
// caller must hold run.mu.
func (a *actor) lives() bool {
	return a.hold != nil && a.phase != unlocking && a.held.Err() == nil && a.hold.Err() == nil
}

// lock calls Lock or TryLock in a new goroutine. The caller must hold run.mu.
func (a *actor) lock() {
	r, now := a.p.r, a.role()
	a.phase, a.canceled, a.attempts = locking, false, a.p.attempts
	a.ctx, a.cancel = context.WithCancel(context.Background())
	r.takeTurn(a)
	ctx := a.ctx
	l := r.world.kind.locker(a.p.session, now)
	call := l.Lock
	if now.tries {
		call = l.TryLock
	}
	var options []rlock.Option
	if now.stays > 0 {
		options = append(options, rlock.HoldAtLeast(now.stays))
	}
	if now.lease > 0 {
		options = append(options, rlock.WithLease(now.lease))
	}
	go func() {
		held, hold, err := call(ctx, options...)
		defer a.returned("Lock", err)()
		if err != nil {
			r.checkError(a, err)
			a.next()
			return
		}
		a.hold, a.held, a.phase = hold, held, holding
		r.checkEntry(a)
	}()
}

// returned notes that a call has returned. It locks run.mu, and returns the function that unlocks run.mu.
func (a *actor) returned(call string, err error) (unlock func()) {
	r := a.p.r
	r.mu.Lock()
	r.stalled = 0
	r.log("  %s: %s returns %v", a.name, call, err)
	return func() {
		r.happened()
		r.mu.Unlock()
	}
}

// next ends the present role. The caller must hold run.mu.
func (a *actor) next() {
	a.phase, a.hold, a.held, a.inner, a.after, a.reduced = idle, nil, nil, nil, nil, false
	a.cancel()
	if a.at++; a.at == len(a.roles) {
		a.phase = finished
	}
}

// nest locks again with the context of the hold, in a new goroutine. The caller must hold run.mu.
func (a *actor) nest() {
	r, now, held := a.p.r, a.role(), a.held
	now.reads = now.reduces
	a.phase = nesting
	go func() {
		below, hold, err := r.world.kind.locker(a.p.session, now).Lock(held)
		defer a.returned("a nested Lock", err)()
		a.phase = nested
		if err != nil {
			r.checkNested(a, err)
			return
		}
		a.inner, a.below = hold, below
		if hold.Token() != a.hold.Token() {
			r.fail("%s: the nested hold has another token", a.name)
		}
	}()
}

// unnest unlocks the nested hold, in a new goroutine. The caller must hold run.mu.
func (a *actor) unnest() {
	hold, lived := a.inner, a.lives()
	a.phase = unnesting
	go func() {
		err := hold.Unlock(context.Background())
		defer a.returned("a nested Unlock", err)()
		a.inner, a.phase = nil, nested
		a.p.r.checkUnlock(a, err, lived)
	}()
}

// reduce unlocks the outer hold of a writer, in a new goroutine. The nested hold, of a reader, stays held.
// The caller must hold run.mu.
func (a *actor) reduce() {
	hold, lived := a.hold, a.lives()
	a.p.r.shared = hold.Token()
	a.phase, a.hold, a.held, a.inner, a.reduced = reducing, a.inner, a.below, nil, true
	go func() {
		err := hold.Unlock(context.Background())
		defer a.returned("Unlock of the outer hold", err)()
		a.phase = nested
		a.p.r.checkUnlock(a, err, lived)
	}()
}

// unlock unlocks the hold, in a new goroutine. The caller must hold run.mu.
func (a *actor) unlock() {
	hold, lived := a.hold, a.lives()
	a.phase = unlocking
	go func() {
		err := hold.Unlock(context.Background())
		defer a.returned("Unlock", err)()
		a.p.r.checkUnlock(a, err, lived)
		a.next()
	}()
}

// steps returns the next step of the actor. It returns none while a call is in progress, and after the last
// role. An idle actor of a closed session becomes finished. The caller must hold run.mu.
func (a *actor) steps() []step {
	one := func(what string, do func()) []step { return []step{{name: a.name + ": " + what, do: do}} }
	switch now := a.phase; {
	case now == idle && a.p.closed:
		a.phase = finished
	case now == idle && a.role().tries:
		return one("TryLock", a.lock)
	case now == idle:
		return one("Lock", a.lock)
	case now == holding && (a.role().nests || a.role().reduces):
		return one("Lock again", a.nest)
	case now == nested && a.inner != nil && a.role().reduces:
		return one("Unlock the outer", a.reduce)
	case now == nested && a.inner != nil:
		return one("nested Unlock", a.unnest)
	case now == holding, now == nested:
		return one("Unlock", a.unlock)
	}
	return nil
}

func (a *actor) String() string { return fmt.Sprintf("%s is %v", a.name, a.phase) }
