package explore

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lockline/lockline/proof/explore/keyspace"
)

// sight is what a script did at one server.
type sight struct {
	taken string // owner that was granted it
	ended string // owner whose grant an operator ended
	wrong string // what no script may do
}

// Observe looks whether a holder lost its grant though it had not asked for that.
func (r *quorumRules) Observe(env keyspace.Env, p Packet, before *keyspace.Space, did keyspace.Effect) any {
	was, _ := holder(before)
	is, _ := holder(did.Space)
	argv := strings.Split(p.Argv, separator)
	switch {
	case p.Script == quorumLock && is == argv[0] && was != is && env.Now > integer(argv[2]):
		return sight{wrong: fmt.Sprintf("%s takes a server with a request that has expired", is)}
	case was == "" && is != "":
		return sight{taken: is}
	case was == "" || was == is:
	case p.Script == quorumRelease && argv[0] == was:
	case p.Script == quorumLock && sessionOf(argv[0]) == sessionOf(was) && serialOf(argv[0]) > serialOf(was) && (is == "" || is == argv[0]): // see succeeds
	case p.Script == quorumForce && (len(argv) < 3 || argv[2] == was):
		return sight{ended: was}
	default:
		return sight{wrong: fmt.Sprintf("%s lost a server that it did not give back, to %q by script %d of %s", was, is, p.Script, argv[0])}
	}
	return sight{}
}

func serialOf(owner string) int64 {
	_, serial, _ := strings.Cut(owner, ":")
	return integer(serial)
}

// heldBy counts the servers that an attempt has.
func (r *quorumRules) heldBy(v *View[voter], owner string) (n int) {
	for s := range quorumServers {
		if is, _ := holder(v.Space(s)); is == owner {
			n++
		}
	}
	return n
}

// Observed notes what an operator did: an attempt that has lost its majority by that may be one of two that believe to hold the lock.
func (r *quorumRules) Observed(v *View[voter], p Packet, seen any) {
	o := seen.(sight)
	if o.wrong != "" {
		v.Fail("%s", o.wrong)
	}
	if o.ended == "" && o.taken == "" {
		return
	}
	for i := range v.Actors {
		a := &v.Actors[i]
		owner := quorumOwner(i, a.Serial)
		if a.Stage < stageVoting || a.Stage > stageFreeing {
			continue
		}
		if owner == o.taken && a.Votes[p.Server].Forced && v.Notes[1] == 0 { // a server that came back empty has forgotten that
			v.Fail("%s takes a server again from which an operator has freed it", owner)
		}
		if owner == o.ended {
			a.Votes[p.Server].Forced = true
		}
		if owner == o.ended && r.heldBy(v, o.ended) < quorumServers/2+1 {
			a.Forced = true
		}
	}
}

// mayBeLost: an operator freed some of what it holds, or a server forgot it, so that a renewal or a release may fail.
func (a *voter) mayBeLost(v *View[voter]) bool {
	return v.Notes[1] != 0 || slices.ContainsFunc(a.Votes[:], func(o vote) bool { return o.Forced })
}

// Emptied notes that a server has come back without its data: holds on a bare majority are not what they were.
func (r *quorumRules) Emptied(v *View[voter]) { v.Notes[1] = 1 }

func (r *quorumRules) Check(v *View[voter]) error {
	var holders []string
	for i, a := range v.Actors {
		if a.Stage == stageLocked && !a.Forced && v.Now < a.Deadline {
			holders = append(holders, quorumOwner(i, a.Serial))
		}
	}
	if len(holders) > 1 {
		return fmt.Errorf("more than one holds the lock: %s", strings.Join(holders, " "))
	}
	return nil
}

func (r *quorumRules) Crashed(v *View[voter], session int) {
	if a := &v.Actors[session]; a.Stage != stageAbsent && a.Stage != stageServed {
		*a = voter{Stage: stageCrashed}
	} else {
		a.Former = [quorumServers]former{}
	}
}

func (r *quorumRules) Ticked(v *View[voter]) {
	for i := range v.Actors {
		a := &v.Actors[i]
		a.Renewed, a.Rested = false, false
		if a.Seen < r.clock(v, i) {
			a.Seen = 0
		}
		if a.Stage == stageLocked && v.Now >= a.Deadline {
			r.lost(v, i)
		}
	}
}

func (r *quorumRules) Calm(v *View[voter]) bool {
	for i, a := range v.Actors {
		for s, f := range a.Former {
			if f.Serial != 0 {
				r.giveUpFormer(v, i, s)
				return true
			}
		}
		switch {
		case a.Stage == stageVoting || a.Stage == stageRaising:
			r.timeOut(v, i)
		case a.Stage == stageLocked:
			r.unlock(v, i)
		case a.Stage == stageFreeing:
			for s, o := range a.Votes {
				if o.Out == outSent {
					r.releaseAgain(v, i, s)
				} else if o.Out == outAwaited {
					r.release(v, i, s)
				}
			}
		case a.Stage == stageResting && !a.Rested:
			r.vote(v, i)
		default:
			continue
		}
		return true
	}
	return false
}

// Over: all that wanted the lock had it, and no server has a grant. No session is to leave one behind unless it crashed.
func (r *quorumRules) Over(v *View[voter]) bool {
	for _, a := range v.Actors {
		if a.Stage >= stageResting && a.Stage < stageServed || a.Former != [quorumServers]former{} {
			return false
		}
	}
	for s := range quorumServers {
		if v.Space(s).Hash(quorumKeys[0]) == nil {
			continue
		}
		owner, _ := holder(v.Space(s))
		if i := int(owner[0] - 'A'); v.Crashed>>i&1 == 0 {
			v.Fail("%s has a server, and does not know it", owner)
		}
		return false // it ends with its lease
	}
	return true
}

// End: nothing is left but metadata, which end.
func (r *quorumRules) End(v *View[voter], servers []*keyspace.Space) error {
	for _, s := range servers {
		for _, key := range s.Keys() {
			if key != quorumKeys[1] {
				return fmt.Errorf("left in Redis: %q", s.Keys())
			}
		}
		if s.LastExpiry() == math.MaxInt64 {
			return fmt.Errorf("a key is left that never expires: %q", s.Keys())
		}
	}
	return nil
}
