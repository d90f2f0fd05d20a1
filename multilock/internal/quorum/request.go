package quorum

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// request is one about a grant, to the members that may have granted it. It waits for the votes that are not in, so
// that it, a release above all, does not overtake their request.
type request struct {
	ctx       context.Context
	script    *wire.Script
	most      int // times that it is sent
	abandoned *atomic.Bool
	copyFor   func(i int) wire.Copier     // as it goes to one member
	answered  func(i int, o wire.Outcome) // before the reply is counted
	counted   func(i int, o wire.Outcome) // after that
	replies   *replies                    // set by mayHold, before the request is sent anywhere
}

// send sends a request to all that may hold the grant; to some of them later. It does not wait: replies.outcome does,
// for a majority.
func (b *round) send(r *request) *replies {
	for _, i := range b.mayHold(r) {
		r.start(b, i)
	}
	return r.replies
}

func (r *request) start(b *round, i int) { b.q.s.Go(func() { r.run(b, i) }) }

// run asks one member.
func (r *request) run(b *round, i int) {
	m := b.q.members[i]
	o := m.Link.Call(r.ctx, r.script, r.copyFor(i), r.most, r.abandoned)
	if o.Err != nil {
		o.Err = m.named(o.Err)
	}
	r.answered(i, o)
	r.replies.add(o)
	r.counted(i, o)
}

// mayHold finds the receivers of a request about the grant, and has the request, if there is one, expect their replies.
// They are the members that may have granted the attempt, as far as they have answered, or have not in time. The
// others get the request, if there is one, once they have voted.
func (b *round) mayHold(r *request) (at []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	later := 0
	for i := range b.votes {
		v := &b.votes[i]
		switch {
		case b.undecided(v):
			later++ // cast sends it there, or close
		case v.mayHold():
			at = append(at, i)
		}
	}
	if r != nil {
		r.replies = b.q.replies(len(at) + later)
		if later > 0 {
			b.later = append(b.later, r)
		}
	}
	return at
}

// release ends what the round was granted. It is sent again to those that do not answer, until the lease is over.
func (b *round) release(ctx context.Context, end *protocol.Release, most int) *replies {
	if used, ok := end.Used.(int64); ok {
		b.q.saw(used) // the next proposal is above what this hold has used
	}
	return b.send(&request{
		ctx: ctx, script: end.Script, most: most,
		copyFor:  func(i int) wire.Copier { return b.releaseAt(end, i) },
		answered: func(int, wire.Outcome) {},
		counted:  func(i int, o wire.Outcome) { b.releaseUntilDone(end, i, o) },
	})
}

// releaseAt is the release as it goes to one member. It says until when a late copy of the request for the vote could
// come there, and gives tokens back where they were accepted.
func (b *round) releaseAt(end *protocol.Release, i int) *protocol.Release {
	one := *end
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[i]
	if v.Status == protocol.None || v.late { // its request for the vote may still come
		one.Late = v.notAfter
	}
	one.Token = b.grant.Token // waiters know the grant by it
	if !v.accepted {
		one.Used = ""
	} else if one.Used == nil {
		one.Used = max(b.proposal, v.raised)
	}
	return &one
}

// releaseUntilDone releases what one member may have granted, after a first try with outcome o, until it answers or the
// lease is over.
func (b *round) releaseUntilDone(end *protocol.Release, i int, o wire.Outcome) {
	q := b.q
	until := time.Now().Add(b.lease)
	for try := 0; o.Err != nil && wire.Judge(o.Err).Again(q.s.Closing()); try++ {
		// The first repetition goes at once, also while the session closes: it may be the only one.
		if try > 0 && (time.Now().After(until) || wakeup.Closed(q.s.Closing()) || !wire.Pause(q.s.Ctx, wire.Backoff(try-1, 4*time.Millisecond, 2*time.Second))) {
			return
		}
		o = q.members[i].Link.Call(q.s.Ctx, end.Script, b.releaseAt(end, i), 1, nil)
	}
}
