package testlock

import (
	"net"
	"testing"

	"github.com/lockline/lockline/internal/testing/faultproxy"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// An Endpoint is an address that leads to a master, and after Move to another master.
type Endpoint struct {
	*faultproxy.Proxy
	Old, Promoted *testredis.Server
}

// NewEndpoint starts a master, a replica of it, and an endpoint that leads to the master.
func NewEndpoint(t testing.TB) *Endpoint {
	t.Helper()
	old := testredis.Start(t)
	return &Endpoint{faultproxy.New(t, old.Addr), old, old.StartReplica(t)}
}

// Move promotes the replica, and lets new connections lead to it. The old master becomes a replica without a
// master, and keeps its connections. If servesStale is true, the old master answers with its old data.
// Otherwise the old master replies MASTERDOWN.
func (e *Endpoint) Move(t testing.TB, servesStale bool) {
	t.Helper()
	old, promoted := e.Old.Client(t), e.Promoted.Client(t)
	Eventually(t, "the replica has it all", func() bool {
		return old.DBSize(bg).Val() == promoted.DBSize(bg).Val()
	})
	Must(t, promoted.Do(bg, "REPLICAOF", "NO", "ONE").Err())
	if !servesStale {
		Must(t, old.ConfigSet(bg, "replica-serve-stale-data", "no").Err())
	}
	Must(t, old.Do(bg, "REPLICAOF", "127.0.0.1", "1").Err()) // no server has this address
	e.LeadTo(func() (net.Conn, error) { return net.Dial("tcp", e.Promoted.Addr) })
}
