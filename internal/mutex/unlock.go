package mutex

import (
	"context"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/wakeup"
)

// unlock ends the hold here and then tells Redis. The request is sent whatever becomes of ctx, which bounds only the wait
// for its answer. Where ctx cannot end, that needs no goroutine.
func (e *Entry) unlock(ctx context.Context) error {
	v, err := e.leave(ctx, nextInLine{})
	if v.t == nil {
		return err
	}
	sending := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		return v.Send(sending)
	}
	done := make(chan error, 1)
	go func() { done <- v.Send(sending) }()
	wait, cancel := handle.UnlockBound(ctx)
	defer cancel()
	err, answered := wakeup.Receive(wait, done)
	if !answered {
		return v.t.Lock.Fail(failure.OfContext(wait))
	}
	return err
}

// Leave ends the hold in this process; the tenure passes to the successor that to knows. What it returns Redis has to
// be told.
func Leave(ctx context.Context, hd *Hold, to Successor) (Leaving, error) {
	hd.Unwatch()
	return EntryOf(hd).leave(ctx, to)
}

// leave ends the hold in this process. From Begin on, the session's Shutdown waits for what comes of it.
func (e *Entry) leave(ctx context.Context, to Successor) (Leaving, error) {
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
		if !again && why == handover.Lost {
			e.owner.Lose(l.lostBy(), -1)
		}
		l.Mu.Unlock()
		return Leaving{}, e.tooLate(ctx, again, open, why)
	}
	e.state.Store(uint32(handover.Released))
	t.unlink(e)
	l.gateOf(e.outer).Inherit(&e.gate) // what is nested goes on without e
	e.gate.Waiters.Recheck(nil)
	left, was := t.depart(e.outer, to)
	l.Mu.Unlock()
	e.cancel(failure.ErrUnlocked)
	return t.departed(ctx, left, was), nil
}

// tooLate is the error of an Unlock that ends nothing. open: it is counted in the session's work.
func (e *Entry) tooLate(ctx context.Context, again, open bool, why handover.State) error {
	l := e.t.Lock
	s := l.S()
	switch {
	case again:
		if open {
			s.End()
		}
		return l.Fail(failure.ErrNotHeld)
	case why == handover.Closed || !open:
		if open {
			s.End()
		}
		e.cancel(errorOf(why))
		return l.Fail(errorOf(why))
	}
	// It is lost to us, but Redis may still count its lease: nobody need wait for that. With it goes what a late copy of
	// its request was granted since.
	go func() {
		defer s.End()
		l.ReleaseGrant(context.WithoutCancel(ctx), e.t.Grant.Unnamed(), 1)
	}()
	return l.Fail(failure.ErrLost)
}
