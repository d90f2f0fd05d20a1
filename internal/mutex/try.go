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

// lockedThere is the error of a lock that Redis has given to another.
func (l *Lock) lockedThere(r protocol.Answer) error {
	locked := r.Locked(l.Keys.Name)
	if l.S().Holds(r.Holder) {
		locked.Hint = failure.SelfHint
	}
	return failure.Public(locked)
}
