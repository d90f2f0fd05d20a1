package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/proof/keyspace"
)

// setBackBy is the time by which the clock of the server is set back.
const setBackBy = 5 * time.Second

// operator adds the steps of an operator, who changes the lock or the clock on the server without a session.
// Its argument add is the function of this name in run.faults. The caller must hold run.mu.
func (r *run) operator(add func(left *int, name string, do func())) {
	left := &r.left
	add(&left.ClockSets, "set the clock back", func() { r.setBack += setBackBy })
	if r.keys == nil { // no session has sent an acquire request yet
		return
	}
	data := r.data()
	if holders := r.holders(); len(holders) > 0 {
		s, which := holders[0], "r"
		if s.permits == protocol.All {
			which = ""
		}
		force := func(which string) *request {
			return r.command("force", r.channels, r.retention, which)
		}
		add(&left.Forces, "force", func() { r.execute(force(which)) })
		add(&left.Forces, "force this holder later", func() {
			r.late = append(r.late, force(decimal(s.token)))
		})
	}
	for _, limit := range []int64{1, 3} {
		add(&left.Limits, fmt.Sprintf("set the limit to %d", limit), func() {
			r.execute(r.command("limit", decimal(limit), "0", r.channels, r.retention, "limiter",
				decimal(r.now()+1e6)))
			r.limit = limit
		})
	}
	for i, key := range r.keys {
		if !slices.Contains(data.Keys(), key) {
			continue
		}
		what := [...]string{"hash", "queue", "hash of the waiters", "leases of further holders"}[i]
		add(&left.Deletions, "delete the "+what, func() {
			if i == 0 || i == 3 {
				r.lose(r.holders())
			}
			data := r.data()
			data.Delete(key)
			r.space = r.server.number(data)
		})
	}
}

// command returns a request of an operator. The caller must hold run.mu.
func (r *run) command(script string, argv ...string) *request {
	for digest, name := range names() {
		if name == "lock/"+script {
			return &request{label: script, commands: []*command{{digest: digest, keys: r.keys, argv: argv}}}
		}
	}
	panic(fmt.Sprintf("explore: there is no script %q", script))
}

// holders returns the shares of all holders in Redis, in the order of their tokens. The caller must hold
// run.mu.
func (r *run) holders() (all []share) {
	if r.keys == nil {
		return nil
	}
	m := newModel(keyspace.Env{Now: r.now()}, r.data(), r.keys[0])
	for _, s := range m.holders {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b share) int { return int(a.token - b.token) })
	return all
}

// A lostGrant is a grant that an operator has ended, or whose key an operator has deleted.
type lostGrant struct {
	share
	next int64 // token of the next grant; 0: there was none yet
}

// lose notes that the grants with these shares are lost. The caller must hold run.mu.
func (r *run) lose(shares []share) {
	for _, s := range shares {
		r.lost = append(r.lost, lostGrant{share: s})
	}
}

// excused reports whether an operator has ended the grant of an actor's hold. The session does not notice
// this before its next request. Until then, the session may also pass the lock on in memory, with further
// tokens of the same grant. The caller must hold run.mu.
func (r *run) excused(a *actor) bool {
	return a.hold != nil && slices.ContainsFunc(r.lost, func(s lostGrant) bool {
		block := int64(1)
		if s.permits == protocol.All {
			block = protocol.Block
		}
		return a.hold.Token() >= s.token && a.hold.Token() < s.token+block
	})
}

// checkRequest checks the verdict on a request. The caller must hold run.mu.
func (r *run) checkRequest(c *command, v verdict) {
	if v.wrong != "" && !r.world.withoutModel {
		r.fail("%s: %s", strings.Join(append([]string{c.name()}, c.argv...), " "), v.wrong)
	}
	r.lose(v.forced)
	for _, token := range v.granted {
		if token <= r.granted && !r.faulted(deletions) {
			r.fail("%s: a token that is granted is not higher than all before", c.name())
		}
		r.granted = max(r.granted, token)
		for i := range r.lost {
			r.lost[i].next = cmp.Or(r.lost[i].next, token)
		}
	}
}
