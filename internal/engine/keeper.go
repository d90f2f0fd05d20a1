package engine

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// keeper is the session as its watchdog sees it.
type keeper Session

func streakOf(l *watchdog.Lease) *streak { return l.Owner.(*streak) }

func (k *keeper) Server(l *watchdog.Lease) any {
	s := (*Session)(k)
	if s.quorum != nil {
		return nil // a batch goes to all members
	}
	return s.link.Server(streakOf(l).lock.keys.lock())
}

func (k *keeper) Renew(ctx context.Context, server any, leases []*watchdog.Lease) []watchdog.Result {
	s := (*Session)(k)
	if s.quorum != nil {
		return s.quorum.renew(ctx, leases)
	}
	results := make([]watchdog.Result, len(leases))
	sent := time.Now()
	s.link.Batch(ctx, server.(wire.Server), len(leases), func(i int) (*wire.Script, wire.Request) {
		st := streakOf(leases[i])
		st.lock.mu.Lock()
		defer st.lock.mu.Unlock()
		return protocol.Keep, st.keepRequest(s.renew)
	}, func(i int, reply string, err error) {
		results[i] = watchdog.Result{Gone: err == nil && reply != "K", Err: err, Deadline: sent.Add(valid(s.Lease))}
	})
	return results
}

func (k *keeper) Lost(l *watchdog.Lease, deadlinePassed bool) {
	reason := errGone
	if deadlinePassed {
		reason = errExpired
	}
	streakOf(l).end(lost, reason)
}

func (k *keeper) Failed(l *watchdog.Lease, err error) {
	st := streakOf(l)
	s := (*Session)(k)
	st.lock.mu.Lock()
	fence := st.fence
	st.lock.mu.Unlock()
	st.lock.observe(s.ctx, Event{Kind: EventRenewFailed, Token: fence, Err: err})
}
