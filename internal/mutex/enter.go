package mutex

import (
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// Where the kind is not Ordered, goroutines of the session that has the lock go before the queue, for as long
// as passFor says. One goroutine of a session at a time is inside the root gate, and the others wait there.
// The one inside asks for the lock, and stands in the queue if it is not free. The gate stays entered while
// its attempt stands. Whatever ends the attempt leaves the gate (vacate), or makes it the tenure's.

// enter lets a newcomer into the root gate, or has it wait there. Mu is held; enter releases it.
func (l *Lock) enter(a *Acquisition) (*Entry, error) {
	if l.Root.Enter() {
		l.Mu.Unlock()
		return l.compete(a)
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
	return l.compete(a)
}

// compete asks for the lock, and stands in the queue if another session has it. The root gate is entered.
func (l *Lock) compete(a *Acquisition) (*Entry, error) {
	if l.Kind.Broadcast {
		return l.contend(a)
	}
	if a.Try || !a.Config.Stands && !l.othersWant() { // else one request is enough
		if e, _, refused, err := l.askAtOnce(a); !refused {
			return e, err
		}
	}
	l.Mu.Lock()
	if l.line == nil {
		l.line = &line{}
	}
	return l.stand(a)
}

// othersWant reports whether other sessions want the lock, as far as is known.
func (l *Lock) othersWant() bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.line != nil && l.others
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
			err = l.lockedThere(o, r)
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

// takeIn has the next goroutine of the session inherit the place of an attempt that the last member has left.
// Mu held.
func (a *attempt) takeIn() bool {
	l := a.l
	w := l.Root.Waiters.First()
	if l.Kind.Ordered || a.state == over || w == nil || w.Fixed || a.lease != 0 {
		return false
	}
	w.Withdraw()
	w.Place = a
	a.members.Push(w)
	l.Root.Install()
	return true
}

// vacate leaves the root gate that an attempt has kept. Mu held.
func (l *Lock) vacate() {
	if !l.Kind.Ordered {
		l.Root.Install()
		l.Root.Leave()
	}
}

// memory is how long a session that has handed a lock over remembers that other sessions want it. A goroutine
// that comes back at once then stands in the queue by its first request.
const memory = 10 * time.Millisecond

// remember keeps what is known of a lock for that long. The caller still needs the lock, and is inside the
// root gate.
func (l *Lock) remember(t *Tenure, o wire.Outcome) {
	if l.Kind.Broadcast {
		l.leaveToOthers(t, o)
	}
	if l.othersWant() {
		l.Keep()
		time.AfterFunc(memory, l.Drop)
	}
}
