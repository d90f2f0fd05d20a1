package mutex

import (
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// trying is TryLock's request: it does not stand in the queue.
type trying Acquisition

func (r *trying) Send(most int, abandoned *atomic.Bool) wire.Outcome {
	a := (*Acquisition)(r)
	o := a.Lock.S().Link.Call(a.Until, a.Lock.Kind.Acquire, r, most, abandoned)
	if o.Unanswered != nil {
		a.Grant.Late = a.NotAfter
	}
	if r, err := protocol.Read(o); err == nil {
		a.Lock.S().Clock.Heard(r.Now, o.Sent)
	}
	return o
}

// Request makes a copy.
func (r *trying) Request(now time.Time) wire.Request {
	a := (*Acquisition)(r)
	l := a.Lock
	notAfter := a.WelcomeUntil(now, min(a.Lease(), l.S().Liveness))
	args := &l.S().Args
	return l.Keys.Request(l.Kind.Acquire, a.Grant.Owner, "1", notAfter, a.LeaseArg(), args.About, args.Keep, "0",
		l.Keys.Channel)
}

// RollBack releases what no goroutine waits for any more.
func (r *trying) RollBack(o wire.Outcome) {
	a := (*Acquisition)(r)
	answer, _ := protocol.Read(o)
	if answer.Status == protocol.Granted || a.Grant.Late != 0 {
		a.ReleaseUntilDone()
	}
}

// try asks once, without standing in the queue.
func (l *Lock) try(a *Acquisition) (*Entry, error) {
	a.NewAttempt()
	for expired := 0; ; expired++ {
		o, err := a.Exchange((*trying)(a))
		if err != nil {
			return nil, err // its goroutine rolls back
		}
		r, err := protocol.Read(o)
		switch {
		case o.Err != nil && a.Over():
			err = a.WhyOver(true)
		case err != nil:
			err = l.Keys.Failed(err)
		case r.Status == protocol.Expired && expired < protocol.MaxExpired:
			continue
		case r.Status == protocol.Expired:
			err = l.Fail(protocol.TooLate(a.Lease()))
		case r.Status == protocol.Queued:
			err = l.lockedThere(o, r)
		case r.Status == protocol.Stale:
			err = l.Fail(protocol.ErrOver)
		default:
			return l.take(a, o, r)
		}
		if protocol.MayHold(&a.Grant, o, r) {
			a.ReleaseUntilDone()
		}
		return nil, err
	}
}

// lockedThere is the error of a lock that Redis has given to another.
func (l *Lock) lockedThere(o wire.Outcome, r protocol.Answer) error {
	l.deliver(r.Holder, awardOf(r, o.Sent)) // a free lock may have gone to an attempt of this session
	locked := r.Locked(l.Keys.Name)
	if l.S().Holds(r.Holder) {
		locked.Hint = failure.SelfHint
	}
	return failure.Public(locked)
}

// take makes a hold of what TryLock was granted.
func (l *Lock) take(a *Acquisition, o wire.Outcome, r protocol.Answer) (*Entry, error) {
	e, begun, err := a.Take(o.Sent, r.Token)
	switch {
	case e != nil || begun && err != nil:
		return e, err
	case begun: // lost at once
		return nil, l.Fail(ErrTooLate)
	case err == ErrTooLate:
		l.Mu.Lock()
		defer l.Mu.Unlock()
		if l.Tenure() != nil { // forced, and granted to another goroutine, before the answer came
			return nil, failure.Public(a.LockedHere())
		}
	}
	return nil, l.Fail(err)
}
