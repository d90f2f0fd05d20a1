package queue

import (
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// Where the kind is not Ordered, goroutines of the session that has the lock go before the queue, for as long as PassFor
// says. One goroutine of a session at a time is inside the root gate, and the others wait there. The one inside asks for
// the lock, and stands in the queue if it is not free. The gate stays entered while its cohort stands. Whatever ends the
// cohort leaves the gate (vacate), or makes it the tenure's.

// enter lets a newcomer into the root gate, or has it wait there. Mu is held; enter releases it.
func (q *queue) enter(a *mutex.Acquisition) (*mutex.Entry, error) {
	if q.Root.Enter() {
		q.Mu.Unlock()
		return q.compete(a)
	}
	if a.Try {
		err := a.LockedHere()
		q.Mu.Unlock()
		return nil, failure.Public(err)
	}
	w := a.NewWaiter()
	q.Root.Waiters.Push(w)
	q.Mu.Unlock()
	a.Announce()
	h, err := q.wait(a, w)
	switch {
	case err != nil || !h.In:
		return nil, err
	case h.Passed():
		return a.Succeed(h)
	}
	return q.compete(a)
}

// compete asks for the lock, and stands in the queue if another session has it. The root gate is entered.
func (q *queue) compete(a *mutex.Acquisition) (*mutex.Entry, error) {
	if a.Try || !a.Config.Stands && !q.othersWant() { // else one request is enough
		if e, refused, err := q.askAtOnce(a); !refused {
			return e, err
		}
	}
	q.Mu.Lock()
	if q.line == nil {
		q.line = &line{}
	}
	return q.stand(a)
}

// othersWant reports whether other sessions want the lock, as far as is known.
func (q *queue) othersWant() bool {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return q.line != nil && q.others
}

// askAtOnce asks for the lock, and does not stand in the queue. refused: another session has the lock, and
// the root gate is still entered.
func (q *queue) askAtOnce(a *mutex.Acquisition) (e *mutex.Entry, refused bool, err error) {
	a.NewAttempt()
	for failed := 0; ; failed++ {
		o, err := a.Exchange((*inside)(a))
		if err != nil {
			return nil, false, err // another goroutine leaves the gates
		}
		r, err := protocol.Read(o)
		again := failed < protocol.MaxExpired
		endures := o.Err != nil && !a.Over() && wire.Judge(o.Err).Transient && q.endures(a, o) // an outage: its cohort asks on
		switch {
		case o.Err != nil && a.Over():
			err = a.WhyOver(false)
		case err != nil:
			err = q.Keys.Failed(err)
		case r.Status == protocol.Granted:
			e, begun, err := a.Take(o.Sent, r.Token)
			switch {
			case begun:
				return e, false, err
			case err == mutex.ErrTooLate && again:
				a.NewAttempt()
				continue
			}
			q.Pass()
			return nil, false, q.Fail(err)
		case r.Status == protocol.Held:
			refused = true
		case r.Status == protocol.Expired && again:
			continue
		case r.Status == protocol.Expired:
			err = q.Fail(protocol.TooLate(a.Lease()))
		case again: // it was granted, and forced before the answer came
			a.NewAttempt()
			continue
		default:
			err = q.Fail(protocol.ErrOver)
		}
		if protocol.MayHold(&a.Grant, o, r) {
			a.ReleaseUntilDone()
		}
		if endures {
			return nil, true, nil
		}
		if refused {
			err = q.lockedThere(o, r)
			q.Mu.Lock()
			q.wanted(true)
			q.Saw(r)
			q.Mu.Unlock()
			a.Advance(mutex.Refused)
			if !a.Try {
				return nil, true, nil
			}
		}
		q.Pass()
		return nil, false, err
	}
}

func (q *queue) endures(a *mutex.Acquisition, o wire.Outcome) bool {
	q.Mu.Lock()
	defer q.Mu.Unlock()
	return a.Endures(o.Failing, o.Err)
}

// inside is trying of a goroutine that is inside the root gate.
type inside trying

func (r *inside) Send(most int, abandoned *atomic.Bool) wire.Outcome {
	return (*trying)(r).Send(most, abandoned)
}

// RollBack releases what no goroutine waits for any more, and then leaves the gate.
func (r *inside) RollBack(o wire.Outcome) {
	a := (*mutex.Acquisition)(r)
	answer, _ := protocol.ParseAnswer(o.Reply)
	a.RollBack(answer.Status == protocol.Granted || a.Grant.Late != 0)
}

// takeIn has the next goroutine of the session inherit the place of a cohort that the last member has left. Mu held.
func (c *cohort) takeIn() bool {
	q := c.q
	w := q.Root.Waiters.First()
	if q.Kind.Ordered || c.state == over || w == nil || w.Fixed || c.lease != 0 {
		return false
	}
	w.Withdraw()
	w.Place = c
	c.members.Push(w)
	q.Root.Install()
	return true
}

// vacate leaves the root gate that a cohort has kept. Mu held.
func (q *queue) vacate() {
	if !q.Kind.Ordered {
		q.Root.Install()
		q.Root.Leave()
	}
}

// memory is how long a session that has handed a lock over remembers that other sessions want it. A goroutine that comes
// back at once then stands in the queue by its first request.
const memory = 10 * time.Millisecond

// remember keeps what is known of a lock for that long. The caller still needs the lock.
func (q *queue) remember() {
	if q.othersWant() {
		q.Keep()
		time.AfterFunc(memory, q.Drop)
	}
}
