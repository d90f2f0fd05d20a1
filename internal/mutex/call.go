package mutex

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/wire"
)

// Exchange sends a request and waits for the answer as long as the acquisition may. If that ends first, the error says
// why, and another goroutine rolls back what comes of the request. That goroutine keeps the lock meanwhile, and the root gate
// if it was entered: so at most one abandoned request competes for a lock and session.
func (a *Acquisition) Exchange(r call.Request) (wire.Outcome, error) {
	var err error
	o, _ := call.Exchange(&a.Bounds, a.Lock.S(), r, func() (rolledBack func()) {
		err = a.WhyOver(false)
		a.Lock.Keep() // or the next Lock would not know of this one's request
		a.Unit.Keep()
		return a.Lock.Drop
	})
	return o, err
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
