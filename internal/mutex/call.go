package mutex

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// Request is a request of an acquisition, whose caller may leave before it is answered.
type Request interface {
	// Send sends it and blocks for the answer. abandoned says that the caller has left.
	Send(abandoned *atomic.Bool) wire.Outcome
	// RollBack ends what came of an abandoned request. The lock is kept until it returns.
	RollBack(o wire.Outcome)
}

// call is a request under way, in a goroutine of its own if it may be abandoned.
type call struct {
	done      chan struct{} // closed when o is there
	o         wire.Outcome
	abandoned atomic.Bool // set by the caller that leaves, or by the answer, whichever is first
}

// A request is never interrupted: go-redis reads on when a context ends, and what was sent may have run. So a caller that
// leaves abandons the call, whose goroutine rolls back what comes of it, and that goroutine keeps the
// root gate meanwhile, if it was entered: so at most one abandoned request competes for a lock and session.

// Exchange sends a request and waits for the answer as long as the acquisition may. If that ends first, the error says
// why, and the call's goroutine stays behind and rolls back what comes of the request.
func (a *Acquisition) Exchange(r Request) (wire.Outcome, error) {
	l := a.Lock
	s := l.S()
	if a.Unbounded() {
		c := &call{}
		return r.Send(&c.abandoned), nil
	}
	c := &call{done: make(chan struct{})}
	s.Add(1)
	go a.send(c, r)
	select {
	case <-c.done:
		return c.o, nil
	case <-a.Ctx.Done():
	case <-a.Expired:
	case <-a.Closing:
	}
	err := a.WhyOver(false)
	l.Keep() // or the next Lock would not know of this one's request
	a.Unit.Keep()
	if !c.abandoned.CompareAndSwap(false, true) { // it was answered in that instant
		s.Go(func() {
			<-c.done
			a.rollBack(c, r)
		})
	}
	return wire.Outcome{}, err
}

func (a *Acquisition) send(c *call, r Request) {
	defer a.Lock.S().End()
	c.o = r.Send(&c.abandoned)
	if c.abandoned.CompareAndSwap(false, true) {
		close(c.done)
		return
	}
	a.rollBack(c, r)
}

func (a *Acquisition) rollBack(c *call, r Request) {
	defer a.Lock.Drop()
	r.RollBack(c.o)
}

// updating is the request of an acquisition that nests. The count is put right by the entry's end, whatever came of it.
// An acquisition that abandons it may go on with others, so it has nothing of that which changes.
type updating struct {
	t     *Tenure
	ctx   context.Context
	lease time.Duration
}

func (u *updating) Send(abandoned *atomic.Bool) wire.Outcome {
	return u.t.Update(u.ctx, u.lease, abandoned)
}

func (*updating) RollBack(wire.Outcome) {}

// confirming is the request for the replicas to confirm a grant.
type confirming updating

func (c *confirming) Send(abandoned *atomic.Bool) wire.Outcome {
	return c.t.confirm(c.ctx, c.lease, abandoned)
}

func (*confirming) RollBack(wire.Outcome) {}

// unlockWait bounds Unlock's wait where its context is done already.
const unlockWait = 5 * time.Second

// UnlockBound bounds the wait of an Unlock.
func UnlockBound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), unlockWait)
}
