package session

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// A Lessee has a lease that the watchdog renews: the Owner of the watchdog.Lease. Its methods may take its
// own mutexes, and must not block.
type Lessee interface {
	// LeaseKey is the key by which the lease's server is found.
	LeaseKey() string
	// Renewal makes the request that renews the lease to the session's. A reply other than 'K' says that it
	// is gone.
	Renewal() (*wire.Script, wire.Request)
	// LeaseLost is called once: the deadline has passed, or the renewal found the lease gone.
	LeaseLost(deadlinePassed bool)
	// RenewalFailed reports a renewal that will be tried again.
	RenewalFailed(err error)
}

// keeper is the session as its watchdog sees it.
type keeper Session

// lesseeOf is what a lease belongs to.
func lesseeOf(l *watchdog.Lease) Lessee { return l.Owner.(Lessee) }

func (k *keeper) Server(l *watchdog.Lease) any { return k.Link.Server(lesseeOf(l).LeaseKey()) }

func (k *keeper) Renew(ctx context.Context, server any, leases []*watchdog.Lease) []watchdog.Result {
	results := make([]watchdog.Result, len(leases))
	sent := time.Now()
	k.Link.Batch(ctx, server.(wire.Client), len(leases), func(i int) (*wire.Script, wire.Request) {
		return lesseeOf(leases[i]).Renewal()
	}, func(i int, reply string, err error) {
		deadline := sent.Add(protocol.Valid(k.Lease))
		results[i] = watchdog.Result{Gone: err == nil && reply != "K", Err: err, Deadline: deadline}
	})
	return results
}

func (k *keeper) Lost(l *watchdog.Lease, deadlinePassed bool) { lesseeOf(l).LeaseLost(deadlinePassed) }

func (k *keeper) Failed(l *watchdog.Lease, err error) { lesseeOf(l).RenewalFailed(err) }
