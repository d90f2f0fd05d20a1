package engine

import (
	"testing"
	"time"

	"github.com/lockline/lockline/internal/handle"
)

// heldAndAwaited returns the state of a lock that has a hold and a waiter, whose attempt is queued.
func heldAndAwaited() (*lockState, *lane, *Grant) {
	l := &lockState{kind: &Kind{Letter: "r"}, suspectAt: 10, timerAt: 10, timer: new(time.Timer)}
	ln := &lane{l: l, want: Exclusive, numGrants: 1, numQueued: 1}
	ln.waiters = []*waiter{{l: l, lane: ln, want: Exclusive}}
	ln.attempts = []*attempt{{lane: ln, state: queued, nextRequestAt: 10}}
	g := &Grant{l: l, lane: ln, permits: All, firstToken: int64(5), token: 5}
	g.numEntries, g.numWriters, g.numRenewed = 1, 1, 1
	e := &Entry{g: g, state: handle.Held, write: true}
	e.root, e.chain.holds, g.holds = e, 1, []*Entry{e}
	l.lanes, l.grants = []*lane{ln}, []*Grant{g}
	return l, ln, g
}

func TestABrokenInvariantIsReported(t *testing.T) {
	broken := func(l *lockState) error { return l.brokenInvariant(&effects{l: l, age: 1}) }
	if l, _, _ := heldAndAwaited(); broken(l) != nil {
		t.Fatalf("nothing is spoiled: %v", broken(l))
	}
	other := map[*Entry]struct{}{{}: {}}
	for name, spoil := range map[string]func(l *lockState, ln *lane, g *Grant){
		"two exclusive grants": func(l *lockState, _ *lane, g *Grant) { l.grants = append(l.grants, g) },
		"a try among waits":    func(_ *lockState, ln *lane, _ *Grant) { ln.noWait = true },
		"releases in flight":   func(l *lockState, _ *lane, _ *Grant) { l.numReleases = -1 },
		"pending attempts":     func(l *lockState, ln *lane, _ *Grant) { l.pending = ln.attempts },
		"no timer":             func(l *lockState, _ *lane, _ *Grant) { l.timer = nil },
		"a late timer":         func(l *lockState, _ *lane, _ *Grant) { l.suspectAt = 9 },
		"a late outage timer":  func(_ *lockState, ln *lane, _ *Grant) { ln.outageAt = 9 },
		"a late request timer": func(_ *lockState, ln *lane, _ *Grant) { ln.attempts[0].nextRequestAt = 9 },
		"a foreign attempt":    func(_ *lockState, ln *lane, _ *Grant) { ln.attempts[0].lane = nil },
		"an ended attempt":     func(_ *lockState, ln *lane, _ *Grant) { ln.attempts[0].state = done },
		"too many attempts":    func(_ *lockState, ln *lane, _ *Grant) { ln.waiters = nil },
		"queued attempts":      func(_ *lockState, ln *lane, _ *Grant) { ln.numQueued++ },
		"grants of a lane":     func(_ *lockState, ln *lane, _ *Grant) { ln.numGrants++ },
		"withdrawn attempts":   func(_ *lockState, ln *lane, _ *Grant) { ln.numWithdrawing-- },
		"an answered waiter":   func(_ *lockState, ln *lane, _ *Grant) { ln.waiters[0].answered = true },
		"a lost grant":         func(_ *lockState, _ *lane, g *Grant) { g.state = handle.Lost },
		"a reserved grant":     func(_ *lockState, ln *lane, g *Grant) { g.reservedFor = ln },
		"entries":              func(_ *lockState, _ *lane, g *Grant) { g.numEntries = 0 },
		"a grant without any": func(_ *lockState, _ *lane, g *Grant) {
			*g = Grant{l: g.l, lane: g.lane, permits: All, firstToken: int64(0)}
		},
		"writers": func(_ *lockState, _ *lane, g *Grant) { g.numWriters++ },
		"a late downgrade": func(_ *lockState, _ *lane, g *Grant) {
			g.holds[0].write, g.numWriters, g.allTakenUntil = false, 0, 9
		},
		"renewed holds":    func(_ *lockState, _ *lane, g *Grant) { g.numRenewed-- },
		"tokens":           func(_ *lockState, _ *lane, g *Grant) { g.token++ },
		"an ended hold":    func(_ *lockState, _ *lane, g *Grant) { g.holds[0].state = handle.Lost },
		"a chain of holds": func(_ *lockState, _ *lane, g *Grant) { g.holds[0].chain.holds++ },
		"an outer hold":    func(_ *lockState, _ *lane, g *Grant) { g.holds[0].outer = &Entry{} },
		"a nested hold":    func(_ *lockState, _ *lane, g *Grant) { g.holds[0].inner = other },
		"writers beside each other": func(_ *lockState, _ *lane, g *Grant) {
			e := g.holds[0]
			e.inner = map[*Entry]struct{}{}
			for range 2 {
				in := &Entry{g: g, state: handle.Held, write: true, outer: e, root: e}
				e.inner[in] = struct{}{}
				g.holds = append(g.holds, in)
			}
			e.chain.holds, g.numEntries, g.numWriters, g.numRenewed = 3, 3, 3, 3
		},
		"an unused lane": func(l *lockState, _ *lane, _ *Grant) { l.lanes = append(l.lanes, &lane{l: l}) },
		"a wait for nothing": func(l *lockState, ln *lane, _ *Grant) {
			ln.attempts, ln.numQueued, ln.numGrants, l.grants = nil, 0, 0, nil
		},
		"a forgotten lane": func(l *lockState, ln *lane, _ *Grant) {
			l.lanes, ln.numGrants = []*lane{{l: l, want: Exclusive, numWithdrawing: 1}}, 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ln, g := heldAndAwaited()
			spoil(l, ln, g)
			err := broken(l)
			if err == nil {
				t.Error("no invariant is broken")
			}
			t.Log(err)
		})
	}
}
