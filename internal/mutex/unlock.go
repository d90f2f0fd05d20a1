package mutex

import (
	"context"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/wakeup"
)

// Unlock ends the hold here and then tells Redis. ctx bounds only the wait for the answer.
func (e *Entry) Unlock(ctx context.Context) error {
	v, err := e.leave(ctx)
	if v.t == nil {
		return err
	}
	l := v.t.Lock
	f := &farewell{Leaving: v, Bounds: wakeup.Bounds{Until: handle.UnlockContext(ctx)}}
	o, answered := call.Ask(&f.Bounds, l.S(), l.Silent(f.Until), f, handle.UnlockWait)
	if !answered {
		return l.Fail(handle.UnlockError(f.Until))
	}
	return v.Released(f.Until, o)
}

// Unlocking is closed when the session has released the lock; nil if that is not under way, or the session
// holds it. Mu held.
func (l *Lock) Unlocking() <-chan struct{} {
	if l.tenure != nil && l.tenure.holds != nil {
		return nil
	}
	return l.unlock.Over()
}

// leave ends the hold in this process. From finish on, the session's Shutdown waits for what comes of it.
func (e *Entry) leave(ctx context.Context) (Leaving, error) {
	if err := e.finish(ctx); err != nil {
		return Leaving{}, err
	}
	t := e.t
	left, was := t.depart(e.outer)
	t.Lock.Mu.Unlock()
	e.cancel(failure.ErrUnlocked)
	return t.departed(ctx, left, was), nil
}

// finish ends the hold for its user. If there is no error, the caller is counted in the session's work, and
// Lock.Mu is held.
func (e *Entry) finish(ctx context.Context) error {
	t := e.t
	l := t.Lock
	s := l.S()
	open := s.Begin()
	l.Mu.Lock()
	again := e.unlocked
	e.unlocked = true
	why := e.State()
	if why == handover.Held && !open {
		why = handover.Closed // Shutdown is about to give it back
	}
	if again || why != handover.Held {
		l.Mu.Unlock()
		return e.tooLate(ctx, again, open, why)
	}
	e.state.Store(uint32(handover.Released))
	t.unlink(e)
	l.gateOf(e.outer).Inherit(&e.gate) // what is nested goes on without e
	e.gate.Waiters.Recheck()
	return nil
}

// tooLate is the error of an Unlock that ends nothing. open: it is counted in the session's work.
func (e *Entry) tooLate(ctx context.Context, again, open bool, why handover.State) error {
	l := e.t.Lock
	s := l.S()
	if !again && open && why == handover.Lost {
		// It is lost to us, but Redis may still count its lease: no waiter need wait for that. The release
		// also ends what a late copy of its request was granted since.
		go func() {
			defer s.End()
			l.ReleaseGrant(context.WithoutCancel(ctx), e.t.unnamed(), 1)
		}()
		return l.Fail(failure.ErrLost)
	}
	if open {
		s.End()
	}
	if again {
		return l.Fail(failure.ErrNotHeld)
	}
	e.cancel(handle.ErrorOf(why))
	return l.Fail(handle.ErrorOf(why))
}
