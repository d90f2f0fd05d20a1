package mutex

import (
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
)

// Saw notes the lock's holder according to an answer of just now. Lock.Mu held.
func (l *Lock) Saw(r protocol.Answer) {
	now := time.Now()
	l.seen = &failure.Sighting{Holder: r.Holder, About: r.About, At: now, Until: now.Add(max(r.Left, 0))}
}

// NewWaiter is the acquisition's, in no list yet.
func (a *Acquisition) NewWaiter() *Waiter {
	w := handover.NewWaiter[*Tenure]()
	w.Fixed, w.For = a.Config.Lease != 0, a
	return w
}

// Wait waits for the answer to w. If the wait ends first, ended is called with Lock.Mu held, and is told
// whether w has left its list; the error says why the wait ended. If w was admitted at that instant, late
// gets the handoff, to pass it on.
func (a *Acquisition) Wait(w *Waiter, ended func(withdrawn bool), late func(Handoff)) (Handoff, error) {
	for {
		if a.Over() { // also where an answer is there, too
			return Handoff{}, a.giveUp(w, ended, late)
		}
		told, ok := wakeup.Await(&a.Bounds, w.Ready)
		switch {
		case !ok:
			continue
		case told == handover.Queued:
			a.Announce()
			continue
		}
		h := w.Handoff()
		if h.Err != nil && a.Over() {
			return h, a.WhyOver(true)
		}
		return h, h.Err
	}
}

// giveUp ends the wait of w. An answer and the end of the wait may come at one instant. Whichever took w out
// of its list first decides. If that was the answer, it is still in the channel, which has room for it.
func (a *Acquisition) giveUp(w *Waiter, ended func(withdrawn bool), late func(Handoff)) error {
	l := a.Lock
	l.Mu.Lock()
	withdrawn := w.Withdraw()
	ended(withdrawn)
	if withdrawn {
		k := a.known(true) // now: a tenure that ends once no goroutine waits is not remembered
		l.Mu.Unlock()
		return a.over(k)
	}
	l.Mu.Unlock()
	for <-w.Ready != handover.Answered {
	}
	h := w.Handoff()
	if h.Passed() && !h.Tenure.PassedOn() { // Redis granted it to this very waiter, so the holder is none that it stood behind
		late(h)
		a.Advance(Refused) // else it would say that Redis has not answered
		return a.WhyOver(true)
	}
	err := a.WhyOver(true)
	if h.In {
		late(h)
	}
	return err
}

// WhyOver is why a wait ended without the lock. behind: it stood behind others of this session. If one of
// them holds the lock then, the waiter may be code that the holder calls, which would wait for itself: the
// error and the log say how to avoid that.
func (a *Acquisition) WhyOver(behind bool) error {
	a.Lock.Mu.Lock()
	k := a.known(behind)
	a.Lock.Mu.Unlock()
	return a.over(k)
}

// known is what an acquisition knows at the end of its wait.
type known struct {
	holder *failure.LockedError // nil: none is known
	behind bool                 // it stood behind a tenure of its own session
	warn   bool                 // and is the first of that tenure

	trouble error // of the last request, if Redis carries out none
}

// known looks up the lock's holder. Lock.Mu held.
func (a *Acquisition) known(behind bool) known {
	t := a.Lock.tenure
	k := known{holder: a.holder(), behind: behind && t != nil, trouble: a.trouble}
	k.warn = k.behind && !t.warned
	if k.warn {
		t.warned = true
	}
	return k
}

const passIt = "if the waiter was called by the holder, " +
	"it must be passed the context that the holder's Lock returned"

// over is the error of a wait that has ended.
func (a *Acquisition) over(k known) error {
	l, holder := a.Lock, k.holder
	if holder == nil && a.progress == Refused {
		holder = &failure.LockedError{Name: l.Keys.Name}
	}
	if holder != nil && k.behind {
		holder.Hint = failure.SelfHint
	}
	if k.warn {
		l.S().Warn("a wait ended while this same session held the lock; "+passIt, "lock", l.Keys.Name)
	}
	err := failure.OfWait(a.Ctx, wakeup.Closed(a.Closing), l.Keys.Name, holder)
	if holder == nil {
		err = failure.Troubled(err, k.trouble)
	}
	return err
}

// holder is the lock's holder as far as this session knows; nil if none is known. Lock.Mu held.
func (a *Acquisition) holder() *failure.LockedError {
	l := a.Lock
	if t := l.tenure; t != nil {
		return &failure.LockedError{Name: l.Keys.Name, Holder: t.Grant.Owner.(string), About: l.S().About(), Remaining: max(0, time.Until(t.Deadline()))}
	}
	return l.seen.Locked(l.Keys.Name, a.Begun, nil)
}

// Endures reports whether the wait goes on in an outage that began at failing, in which the last request
// failed with err. Lock.Mu held.
func (a *Acquisition) Endures(failing time.Time, err error) bool {
	a.trouble = err
	return !a.Try && a.Bounds.Endures(failing, a.Begun, a.Lock.S().Lease)
}

// LockedHere is the error of an acquisition that does not wait, for a lock that this session has, or asks
// for. Lock.Mu held.
func (a *Acquisition) LockedHere() *failure.LockedError {
	e := a.holder()
	if e == nil {
		e = &failure.LockedError{Name: a.Lock.Keys.Name}
	}
	if a.Lock.tenure != nil {
		e.Hint = failure.SelfHint
	}
	return e
}
