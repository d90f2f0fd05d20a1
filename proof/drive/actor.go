package drive

import (
	"context"
	"fmt"

	"github.com/lockline/lockline/rlock"
)

// phase is what an actor is doing.
type phase uint8

const (
	idle phase = iota
	locking
	holding
	nesting // in a nested Lock
	nested
	unnesting
	reducing // in Unlock of the outer one of two holds
	unlocking
	finished
)

func (p phase) String() string {
	return [...]string{"idle", "in Lock", "holding", "in a nested Lock", "holding twice", "in a nested Unlock",
		"in Unlock of the outer hold", "in Unlock", "finished"}[p]
}

// An actor is a goroutine of a process that uses the lock.
type actor struct {
	name string
	p    *process
	uses []role

	// run.mu guards the following.
	at        int // which of uses
	phase     phase
	ctx       context.Context // of the present call
	cancel    context.CancelFunc
	canceled  bool
	hold      *rlock.Hold
	held      context.Context // of hold
	inner     *rlock.Hold     // nested in hold
	below     context.Context // of inner
	reduced   bool            // hold is the nested one, of a reader, and the outer one is unlocked
	after     []*actor        // those whose turn comes before this call's
	attempts  int             // of the session, when the call began
	contended bool            // another one used the lock during the call
}

func (a *actor) use() role { return a.uses[a.at] }

// takes is how much of the lock the present use takes.
func (a *actor) takes() int {
	if a.reduced {
		return 1
	}
	if n := a.use().takes; n > 0 {
		return n
	}
	return a.p.r.world.kind.limit
}

// lives reports whether the actor may believe that it has the lock. The caller must hold run.mu.
func (a *actor) lives() bool {
	return a.hold != nil && a.phase != unlocking && a.held.Err() == nil && a.hold.Err() == nil
}

// lock calls Lock or TryLock. The caller must hold run.mu.
func (a *actor) lock() {
	r := a.p.r
	u := a.use()
	a.phase, a.canceled, a.attempts = locking, false, a.p.attempts
	a.ctx, a.cancel = context.WithCancel(context.Background())
	r.takeTurn(a)
	ctx := a.ctx
	go func() {
		l := r.world.kind.locker(a.p.session, u)
		call := l.Lock
		if u.tries {
			call = l.TryLock
		}
		var options []rlock.Option
		if u.stays > 0 {
			options = append(options, rlock.HoldAtLeast(u.stays))
		}
		held, hold, err := call(ctx, options...)
		r.mu.Lock()
		defer r.mu.Unlock()
		defer r.happened()
		r.progress()
		r.log("  %s: Lock returns %v", a.name, err)
		if err != nil {
			r.checkError(a, err)
			a.next()
			return
		}
		a.hold, a.held, a.phase = hold, held, holding
		r.checkEntry(a)
	}()
}

// next is the end of a use. The caller must hold run.mu.
func (a *actor) next() {
	a.phase, a.hold, a.held, a.inner, a.after, a.reduced = idle, nil, nil, nil, nil, false
	a.cancel()
	if a.at++; a.at == len(a.uses) {
		a.phase = finished
	}
}

// nest locks again below the hold. The caller must hold run.mu.
func (a *actor) nest() {
	r := a.p.r
	u, held := a.use(), a.held
	u.reads = u.reduces
	a.phase = nesting
	go func() {
		below, hold, err := r.world.kind.locker(a.p.session, u).Lock(held)
		r.mu.Lock()
		defer r.mu.Unlock()
		defer r.happened()
		r.progress()
		r.log("  %s: a nested Lock returns %v", a.name, err)
		switch {
		case err != nil:
			a.phase = nested // to unlock the outer one next
			r.checkNested(a, err)
		default:
			a.phase, a.inner, a.below = nested, hold, below
			if hold.Token() != a.hold.Token() {
				r.fail("%s: the nested hold has another token", a.name)
			}
		}
	}()
}

// unnest unlocks the nested hold. The caller must hold run.mu.
func (a *actor) unnest() {
	r := a.p.r
	hold, live := a.inner, a.lives()
	a.phase = unnesting
	go func() {
		err := hold.Unlock(context.Background())
		r.mu.Lock()
		defer r.mu.Unlock()
		defer r.happened()
		r.progress()
		r.log("  %s: a nested Unlock returns %v", a.name, err)
		a.inner, a.phase = nil, nested
		r.checkUnlock(a, err, live)
	}()
}

// reduce unlocks the outer hold, of a writer, while the nested one, of a reader, stays held. The caller must
// hold run.mu.
func (a *actor) reduce() {
	r := a.p.r
	hold, live := a.hold, a.lives()
	r.shared = hold.Token()
	a.phase, a.hold, a.held, a.inner, a.reduced = reducing, a.inner, a.below, nil, true
	go func() {
		err := hold.Unlock(context.Background())
		r.mu.Lock()
		defer r.mu.Unlock()
		defer r.happened()
		r.progress()
		r.log("  %s: Unlock of the outer hold returns %v", a.name, err)
		a.phase = nested
		r.checkUnlock(a, err, live)
	}()
}

// unlock calls Unlock. The caller must hold run.mu.
func (a *actor) unlock() {
	r := a.p.r
	hold, live := a.hold, a.lives()
	a.phase = unlocking
	go func() {
		err := hold.Unlock(context.Background())
		r.mu.Lock()
		defer r.mu.Unlock()
		defer r.happened()
		r.progress()
		r.log("  %s: Unlock returns %v", a.name, err)
		r.checkUnlock(a, err, live)
		a.next()
	}()
}

// steps are what the actor may do next by itself. The caller must hold run.mu.
func (a *actor) steps() []step {
	one := func(what string, do func()) []step { return []step{{name: a.name + ": " + what, do: do}} }
	switch a.phase {
	case idle:
		if a.p.closed {
			a.phase = finished
			return nil
		}
		what := "Lock"
		if a.use().tries {
			what = "TryLock"
		}
		return one(what, a.lock)
	case holding:
		if a.use().nests || a.use().reduces {
			return one("Lock again", a.nest)
		}
		return one("Unlock", a.unlock)
	case nested:
		if a.inner != nil && a.use().reduces {
			return one("Unlock the outer", a.reduce)
		}
		if a.inner != nil {
			return one("nested Unlock", a.unnest)
		}
		return one("Unlock", a.unlock)
	}
	return nil
}

func (a *actor) String() string { return fmt.Sprintf("%s is %v", a.name, a.phase) }
