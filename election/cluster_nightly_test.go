//go:build nightly

package election_test

import (
	"fmt"
	"testing"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/internal/testing/testredis"
)

// Proves: election
func TestOnAClusterCandidatesLeadInOrderAndObserversFollow(t *testing.T) {
	t.Parallel()
	rdb := testredis.StartCluster(t, 3, 0).Client(t)
	for _, name := range []string{"a", "b", "c", "}{"} { // these keys are in several slots
		e := election.New(testlock.NewSession(t, rdb), name)
		w := observe(t, election.New(testlock.NewSession(t, rdb), name))
		w.seesAtLast(0, "")
		all := newLine(t)
		for i := range 3 {
			all.join(election.New(testlock.NewSession(t, rdb), name), i, fmt.Sprint("node ", i))
		}
		last := int64(0)
		for i := range 3 {
			n := all.next()
			if n.who != i || n.Token() <= last {
				t.Errorf("leader %d is candidate %d, token %d after %d", i, n.who, n.Token(), last)
			}
			last = n.Token()
			wantLeader(t, e, last, fmt.Sprint("node ", i))
			w.seesAtLast(last, fmt.Sprint("node ", i))
			testlock.Must(t, n.Proclaim(bg, "again"))
			w.seesAtLast(last, "again")
			resign(t, n.Leadership)
		}
		w.seesAtLast(0, "")
	}
}
