package quorum

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/wire"
)

// tally is the number of votes of each kind in a round (round.tally counts them).
type tally struct{ granted, accepted, refused, expired, undecided int }

// won: a majority has granted.
func (t tally) won(need int) bool { return t.granted >= need }

// lost: no majority can grant any more. A majority must also name the holder of the lock. And where a request for a vote had expired, as while
// a server's clock is not known yet, all are waited for.
func (t tally) lost(need int) bool {
	return t.granted+t.undecided < need && (t.undecided == 0 || t.granted+t.refused >= need && t.expired == 0)
}

// nth is the time that n of the votes come before.
func nth(votes []vote, n int, of func(*vote) time.Time) time.Time {
	times := make([]time.Time, len(votes))
	for i := range votes {
		times[i] = of(&votes[i])
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[n]
}

// replies is what members say to one request about a grant. The outcome is that of a majority, and is known as soon as
// no further reply can change it.
type replies struct {
	q     *Quorum
	ready chan struct{} // closed when o is the outcome: each that waits is woken once

	mu              sync.Mutex // guards what follows; a leaf
	yes, no, failed int
	absent          int     // of no: those that are not asked
	errs            []error // of those that failed
	o               wire.Outcome
	decided         bool
}

func (q *Quorum) replies(asked int) *replies {
	absent := len(q.members) - asked
	r := &replies{q: q, no: absent, absent: absent, o: wire.Outcome{Sent: time.Now()}, ready: make(chan struct{})}
	r.decide()
	return r
}

// add counts a reply: 'L' is a no.
func (r *replies) add(o wire.Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.decided {
		return
	}
	if o.Unanswered != nil {
		r.o.Unanswered = o.Unanswered
	}
	switch {
	case o.Err != nil:
		r.errs = append(r.errs, o.Err)
		r.failed++
	case strings.HasPrefix(o.Reply, "L"):
		r.no++
	default:
		r.o.Reply = o.Reply
		r.yes++
	}
	r.decide()
}

// decide: 'L' as soon as no majority can say anything else. mu held.
func (r *replies) decide() {
	all, need := len(r.q.members), r.q.need
	switch {
	case r.yes >= need:
		r.o.Err = nil
	case all-r.no < need:
		r.o.Reply, r.o.Err = "L", nil
	case all-r.no-r.failed < need:
		r.o.Err = r.q.noMajority(r.yes+r.no-r.absent, r.errs...)
	default:
		return
	}
	r.decided = true
	close(r.ready)
}

// outcome waits for a majority.
func (r *replies) outcome() wire.Outcome {
	<-r.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.o
}
