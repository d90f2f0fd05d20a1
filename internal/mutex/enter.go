package mutex

import (
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Goroutines of the session that has the lock go before others, for as long as the session's Streak says.
// One goroutine of a session at a time is inside the root gate, and the others wait there. The one inside
// asks for the lock, and listens if it is not free.

// wanted notes whether other sessions want the lock. Mu held.
func (l *Lock) wanted(others bool) { l.others = others }

// admit has a newcomer wait for the lock. It blocks until the lock is held or the wait is over. Neither an
// entry nor an error: what it waited for has changed, look again. Mu is held; admit releases it.
func (l *Lock) admit(a *Acquisition) (*Entry, error) {
	if a.Try && a.Config.GivesWay && l.others {
		err := a.LockedHere()
		l.Mu.Unlock()
		return nil, failure.Public(err)
	}
	return l.enter(a)
}

// enter lets a newcomer into the root gate, or has it wait there. Mu is held; enter releases it.
func (l *Lock) enter(a *Acquisition) (*Entry, error) {
	if l.Root.Enter() {
		l.Mu.Unlock()
		return l.contend(a)
	}
	if a.Try {
		err := a.LockedHere()
		l.Mu.Unlock()
		return nil, failure.Public(err)
	}
	w := a.NewWaiter()
	l.Root.Waiters.Push(w)
	l.Mu.Unlock()
	a.Announce()
	h, err := l.wait(a, w)
	switch {
	case err != nil || !h.In:
		return nil, err
	case h.Passed():
		return a.Succeed(h)
	case l.othersWant(): // Redis has said so to the goroutine before it
		a.Advance(Refused)
	}
	return l.contend(a)
}

// othersWant reports whether other sessions want the lock, as far as is known.
func (l *Lock) othersWant() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.others
}

// askAtOnce asks for the lock, and does not stand in the queue. refused: another session has the lock, as r
// says, or Redis carries out no request. Then the root gate is still entered.
func (l *Lock) askAtOnce(a *Acquisition) (e *Entry, r protocol.Answer, refused bool, err error) {
	a.NewAttempt()
	for failed := 0; ; failed++ {
		o, err := a.Exchange((*inside)(a))
		if err != nil {
			return nil, r, false, err // another goroutine leaves the gates
		}
		r, err = protocol.Read(o)
		again := failed < protocol.MaxExpired
		outage := o.Err != nil && !a.Over() && !a.Try && wire.Judge(o.Err).Transient
		endures := outage && l.endures(a, o)
		switch {
		case o.Err != nil && a.Over():
			err = a.WhyOver(false)
		case outage:
			err = l.Keys.Failed(failure.Outage(o.Failing, o.Err)) // unless it endures
		case err != nil:
			err = l.Keys.Failed(err)
		case r.Status == protocol.Granted:
			e, begun, err := a.Take(o.Sent, r.Token)
			switch {
			case begun:
				return e, r, false, err
			case err == ErrTooLate && again:
				a.NewAttempt()
				continue
			}
			l.Pass()
			return nil, r, false, l.Fail(err)
		case r.Status == protocol.Queued:
			refused = true
		case r.Status == protocol.Expired && again:
			continue
		case r.Status == protocol.Expired:
			err = l.Fail(protocol.TooLate(a.Lease()))
		case again: // it was granted, and forced before the answer came
			a.NewAttempt()
			continue
		default:
			err = l.Fail(protocol.ErrOver)
		}
		if protocol.MayHold(&a.Grant, o, r) {
			a.ReleaseUntilDone()
		}
		if endures {
			return nil, r, true, nil
		}
		if refused {
			err = l.lockedThere(r)
			l.Mu.Lock()
			l.wanted(true)
			l.Saw(r)
			l.Mu.Unlock()
			a.Advance(Refused)
			if !a.Try {
				return nil, r, true, nil
			}
		}
		l.Pass()
		return nil, r, false, err
	}
}

func (l *Lock) endures(a *Acquisition, o wire.Outcome) bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return a.Endures(o.Failing, o.Err)
}

// inside is trying of a goroutine that is inside the root gate.
type inside trying

func (r *inside) Send(most int, abandoned *atomic.Bool) wire.Outcome {
	return (*trying)(r).Send(most, abandoned)
}

// RollBack releases what no goroutine waits for any more, and then leaves the gate.
func (r *inside) RollBack(o wire.Outcome) {
	a := (*Acquisition)(r)
	answer, _ := protocol.Read(o)
	a.RollBack(answer.Status == protocol.Granted || a.Grant.Late != 0)
}

// memory is how long a session that has handed a lock over remembers that other sessions want it. A goroutine
// that comes back at once then stands in the queue by its first request.
const memory = 10 * time.Millisecond

// remember keeps what is known of a lock for that long. The caller still needs the lock, and is inside the
// root gate.
func (l *Lock) remember(t *Tenure, o wire.Outcome) {
	l.leaveToOthers(t, o)
	if l.othersWant() {
		l.Keep()
		time.AfterFunc(memory, l.Drop)
	}
}

// wait waits for the answer to w.
func (l *Lock) wait(a *Acquisition, w *Waiter) (Handoff, error) {
	var gone <-chan struct{}
	h, err := a.Wait(w, func(bool) {}, func(h Handoff) {
		if h.Passed() {
			gone = h.Tenure.Decline(a.Ctx, nil)
		} else {
			l.Pass()
		}
	})
	wakeup.AwaitLeaving(gone, l.S().Closing())
	return h, err
}
