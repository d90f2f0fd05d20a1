//go:build !race

// One goroutine explores, and the race detector makes that ten times slower.

package explore

import "testing"

// What the Go code of a RedLock might do wrong is found, by the rules that do it.
func TestARedLockThatIsWrongIsFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		broken quorumFault
		rules  quorumRules
	}{
		{"a majority less one", majorityLessOne, quorumRules{}},
		{"a grant counts whose token was not accepted", tokenNotAccepted, quorumRules{}},
		{"lost votes keep what they got", lossesKept, quorumRules{}},
		{"a release does not know of a request to join", joinForgotten, quorumRules{faults: Faults{Ticks: 1}}},
		{"a lease counts from the last vote", countedFromReply, quorumRules{faults: Faults{Ticks: 2}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rules.wants, c.rules.rounds = 1, 1
			for _, broken := range []quorumFault{correct, c.broken} {
				c.rules.broken = broken
				r, err := c.rules.world(c.name, "", true).Explore(root, nil, 100_000)
				if err != nil {
					t.Fatal(err)
				}
				if broken == correct {
					if r.Violation != nil {
						t.Errorf("without the fault:\n%s", r.Story())
					}
				} else if r.Violation == nil {
					t.Errorf("nothing is found in %v", r)
				} else {
					t.Logf("%v: %d steps and %d calm ones, %d states", r.Violation, len(r.Trace), r.InCalm, r.States)
				}
			}
		})
	}
}
