package election_test

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/rlock"
)

// Proves: failover
func TestADemotedServerShowsNoLeader(t *testing.T) {
	t.Parallel()
	at := testlock.NewEndpoint(t)
	observed := newElection(t, at.Client(t), rlock.WithWatchdogTimeout(5*time.Second))
	w := observe(t, observed)
	w.seesAtLast(0, "")
	asked := newElection(t, at.Client(t))
	if _, ok, err := asked.Leader(bg); ok || err != nil {
		t.Errorf("Leader before: %v, %v", ok, err)
	}
	at.Move(t, true)
	_, l := lead(t, newElection(t, at.Promoted.Client(t)), "one")
	if leader, _, err := asked.Leader(bg); err != nil || leader.Token != l.Token() {
		t.Errorf("Leader: %+v, %v", leader, err)
	}
	w.seesAtLast(l.Token(), "one")
	resign(t, l)
}
