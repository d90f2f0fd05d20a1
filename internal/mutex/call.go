package mutex

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/wire"
)

// Exchange sends a request and waits for the answer as long as the acquisition may. If that ends first, the
// error says why, and another goroutine rolls back what comes of the request. That goroutine keeps the lock
// meanwhile, and the root gate if it was entered: so at most one abandoned request competes for a lock and
// session.
func (a *Acquisition) Exchange(r call.Request) (wire.Outcome, error) {
	var err error
	o, _ := call.Exchange(&a.Bounds, a.Lock.S(), a.Lock.Silent(a.Until), r, func() (rolledBack func()) {
		err = a.WhyOver(false)
		a.Lock.Keep() // or the next Lock would not know of this one's request
		return a.Lock.Drop
	})
	return o, err
}

// tell is Exchange of a request of which nothing has to be rolled back, and which needs nothing of the
// acquisition that may change once it is abandoned.
func (a *Acquisition) tell(send func(ctx context.Context, lease time.Duration, most int, abandoned *atomic.Bool) wire.Outcome) error {
	ctx, lease := a.Until, a.Lease()
	o, err := a.Exchange(call.Func(func(most int, abandoned *atomic.Bool) wire.Outcome { return send(ctx, lease, most, abandoned) }))
	if err == nil {
		err = o.Err
	}
	return err
}
