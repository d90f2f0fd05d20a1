package explore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// This file checks the promises. The caller of each method of run in this file must hold run.mu.

// faulted reports whether a fault has happened in this run, among the faults that the function number counts.
func (r *run) faulted(number func(f Faults) int) bool {
	return number(r.left) < number(r.world.Faults)
}

func cuts(f Faults) int     { return f.Cuts }
func cutoffs(f Faults) int  { return f.Cutoffs }
func waits(f Faults) int    { return f.Waits }
func messages(f Faults) int { return f.Losses + f.Breaks }
func closures(f Faults) int { return f.Closures }

// operations counts the steps of operators.
func operations(f Faults) int { return f.Forces + f.Deletions + f.Limits + f.ClockSets }
func deletions(f Faults) int  { return f.Deletions }

// checkState checks that no more permits are held than there are, that Redis has the lock for each hold until
// its deadline, and that no hold is lost without a reason. It also notes which waiting calls are contended.
func (r *run) checkState() {
	held := 0
	var holders []string
	for _, a := range r.actors {
		switch {
		case r.excused(a):
		case a.lives():
			held += a.takes()
			holders = append(holders, a.name)
			if !r.known(a) {
				r.fail("%s holds what Redis has not granted to its session", a.name)
			}
		case a.hold == nil || a.phase == unlocking || a.role().lease > 0 && r.faulted(waits):
		case !a.p.closed && !r.faulted(cutoffs) && !a.p.slow:
			r.fail("%s has lost the lock: %w", a.name, a.hold.Err())
		}
	}
	var granted int64 // permits that are held in Redis; they can be more than a limit that was lowered
	for _, s := range r.holders() {
		granted += s.permits
	}
	if int64(held) > max(r.limit, min(granted, int64(r.world.kind.limit))) {
		r.fail("%s hold more than there is", strings.Join(holders, " and "))
	}
	for _, a := range r.actors {
		if a.phase == locking && r.contended(a) {
			a.contended = true
		}
	}
}

// checkRoom checks that no call waits for the end of a hold although there are enough permits for all holds
// and all waiting calls. All goroutines must have come to rest.
func (r *run) checkRoom() {
	held, wanted := 0, 0
	var who []string
	for _, a := range r.actors {
		switch {
		case a.lives():
			held += a.takes()
		case a.phase == locking:
			wanted += a.takes()
			who = append(who, a.name)
		}
	}
	if wanted > 0 && held > 0 && held+wanted <= r.world.kind.limit && r.still() {
		r.fail("there is room for all that wait: %s", strings.Join(who, " and "))
	}
}

// still reports whether no fault has happened, nothing is in flight, and each actor waits for the lock, holds
// it or does not use it. In a world with Lingers, it returns false.
func (r *run) still() bool {
	for _, a := range r.actors {
		if a.busy() && a.phase != locking && !a.lives() {
			return false
		}
	}
	for _, p := range r.processes {
		if c := p.subscription; c != nil && len(c.queue)+len(c.wanted) > 0 {
			return false
		}
	}
	return len(r.requests) == 0 && r.left == r.world.Faults && !r.world.Lingers
}

// contended reports whether a call of TryLock may be refused. That is so if another actor uses or wants the
// lock, or if a request that does not serve this call is in flight or late.
func (r *run) contended(a *actor) bool {
	own := func(q *request) bool { return q.p == a.p && a.phase == locking }
	return len(r.late) > 0 ||
		slices.ContainsFunc(r.actors, func(other *actor) bool { return other != a && other.busy() }) ||
		slices.ContainsFunc(r.requests, func(q *request) bool { return !own(q) })
}

// known reports whether Redis has a grant of the actor's session that lasts until the deadline of the actor's
// hold.
func (r *run) known(a *actor) bool {
	if a.p.closed {
		return true // the session releases its grants, and is about to end the hold
	}
	space, until := r.data(), a.hold.Deadline().Add(-r.setBack).UnixMicro()
	mine := func(owner string) bool { return strings.HasPrefix(owner, sessionName+a.p.letter+":") }
	for _, key := range space.Keys() {
		hash, shares := space.Hash(key), space.Scores(key+":h")
		if mine(hash["owner"]) && number(hash["ends"]) >= until {
			return true
		}
		for field := range hash {
			owner, shared := strings.CutPrefix(field, "held ")
			if shared && mine(owner) && int64(shares[owner]) >= until {
				return true
			}
		}
	}
	return false
}

// number reads a number that a script wrote. It returns 0 for an empty text.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil && text != "" {
		panic(err)
	}
	return n
}

// takeTurn notes the waiting actors that must be served before the call that an actor begins now.
func (r *run) takeTurn(a *actor) {
	a.after, a.contended = nil, r.contended(a)
	if a.role().tries {
		return
	}
	// A session that has the lock, or waits for it, may serve its goroutines before other sessions. So may a
	// session that keeps an idle grant.
	first := r.world.Lingers
	for _, other := range r.actors {
		first = first || other != a && other.p == a.p && other.busy()
	}
	for _, other := range r.actors {
		switch {
		case other == a || other.phase != locking || other.canceled || other.role().tries:
		case other.p == a.p:
			if other.role().letter == a.role().letter { // otherwise the two wait in different lanes
				a.after = append(a.after, other)
			}
		case r.queued(other) && (r.world.kind.fair || !first):
			a.after = append(a.after, other)
		}
	}
}

// queued reports whether an actor certainly waits in the queue in Redis. This is certain if no other actor of
// the session uses or wants the lock, and an attempt is queued that began after the actor's call.
func (r *run) queued(a *actor) bool {
	for _, other := range r.actors {
		if other != a && other.p == a.p && other.busy() {
			return false
		}
	}
	space := r.data()
	for _, key := range space.Keys() {
		if !strings.HasSuffix(key, ":q") {
			continue
		}
		for _, owner := range space.Members(key) {
			session, attempt, _ := strings.Cut(short(owner), ":")
			if session == a.p.letter && number(attempt) > int64(a.attempts) {
				return true
			}
		}
	}
	return false
}

// checkEntry checks the token of an actor's new hold, and that it was the actor's turn.
func (r *run) checkEntry(a *actor) {
	r.checkState()
	token := a.hold.Token()
	if r.excused(a) { // the tokens of a lost grant must be lower than the token of the next grant
		for _, g := range r.lost {
			if token >= g.token && g.next > 0 && token >= g.next && !r.faulted(deletions) {
				r.fail("%s has lost the lock, and has a token as high as the next holder's", a.name)
			}
		}
		r.token = max(r.token, token)
		return
	}
	exclusive := a.role().takes == 0
	switch {
	case !r.world.kind.fences, r.faulted(deletions):
	case exclusive && token <= r.token:
		r.fail("%s has a token that is not higher than all before", a.name)
	case token < r.excluded, token == r.excluded && token != r.shared:
		r.fail("%s has a token that is not higher than the token of a holder which excluded it", a.name)
	}
	if r.token = max(r.token, token); exclusive {
		r.excluded = max(r.excluded, token)
	}
	if slices.ContainsFunc([]func(Faults) int{messages, cuts, cutoffs, closures, operations}, r.faulted) {
		return // faults change the order: a waiter without a subscription is passed over, for example
	}
	for _, other := range a.after {
		if other.phase == locking && !other.canceled && a.takes()+other.takes() > r.world.kind.limit {
			r.fail("%s came after %s, and has the lock before", a.name, other.name)
		}
	}
}

// checkError checks the error of a Lock or a TryLock. If a connection breaks, Lock must continue to wait, but
// TryLock may fail. Both may fail if a reply takes longer than the client waits.
func (r *run) checkError(a *actor, err error) {
	switch {
	case a.role().tries && errors.Is(err, rlock.ErrLocked):
		if !a.contended && !r.faulted(operations) {
			r.fail("%s is refused a free lock: %w", a.name, err)
		}
	case a.canceled && errors.Is(err, context.Canceled):
		// Only a lock with one holder is checked. If there are more permits, the call may have got some in
		// memory before it was canceled. Its attempt, which is not needed any more, may then still be leaving
		// the queue in the background.
		queued := r.world.kind.limit == 1 && time.Since(a.leftAt) < call.LeavingTime && r.queued(a)
		if queued && !r.faulted(cuts) && !r.faulted(cutoffs) {
			r.fail("%s has left, and is still queued", a.name)
		}
	case a.p.closed && errors.Is(err, rlock.ErrClosed):
	case r.faulted(cutoffs) || r.faulted(waits):
	case r.faulted(operations) && errors.As(err, new(*semaphore.LimitError)):
	case a.role().tries && r.faulted(cuts):
	default:
		r.fail("%s: Lock fails: %w", a.name, err)
	}
}

// checkNested checks the error of a nested Lock.
func (r *run) checkNested(a *actor, err error) {
	if !a.p.closed && !r.excused(a) && !r.faulted(cutoffs) && !r.faulted(waits) && !r.faulted(cuts) {
		r.fail("%s: a nested Lock fails: %w", a.name, err)
	}
}

// checkUnlock checks the result of an Unlock. If lived is true, the hold had not ended before this Unlock.
func (r *run) checkUnlock(a *actor, err error, lived bool) {
	switch {
	case err == nil || a.p.closed || r.excused(a) || r.faulted(cutoffs) || r.faulted(waits):
	case lived:
		r.fail("%s: Unlock fails: %w", a.name, err)
	default:
		r.fail("%s: Unlock of a lost hold: %w", a.name, err)
	}
}

// checkClose checks the result of Close.
func (r *run) checkClose(p *process, err error, took time.Duration) {
	if !r.faulted(cutoffs) && (err != nil || took > time.Second) {
		r.fail("Close of %s returns %v after %v", p.letter, err, took)
	}
}

// checkStall checks that calls do not wait for long for a timer. took is the time that has just passed,
// because no other step was possible.
func (r *run) checkStall(took time.Duration) {
	var waiting []string
	for _, a := range r.actors {
		if a.phase != finished && !a.p.away {
			waiting = append(waiting, a.String())
		}
	}
	if len(waiting) == 0 {
		return
	}
	r.stalled += took
	if most := r.patience(); r.stalled > most {
		r.fail("no call returns for %v, which is more than %v: %s", r.stalled, most,
			strings.Join(waiting, ", "))
	}
}

// patience returns the longest time in which no call need return, if only a timer can end this time. The time
// depends on the faults that have happened.
func (r *run) patience() time.Duration {
	for _, a := range r.actors {
		for _, one := range a.roles {
			if one.stays > 0 {
				return 15 * time.Second
			}
		}
	}
	switch {
	case r.faulted(operations):
		return 45 * time.Second
	case r.faulted(cutoffs): // time for the session's lease, then the first lease of one of its waiters
		return 45 * time.Second
	case r.left.Losses < r.world.Faults.Losses, r.faulted(waits): // time for a heartbeat or a read timeout
		return 12 * time.Second
	case r.faulted(messages), r.faulted(cuts): // time for new connections
		return 3 * time.Second
	}
	return 300 * time.Millisecond
}

// checkRedis checks the data in Redis when all actors are done. Only the hash of a free lock may be left,
// unless an operator has deleted a key. Each key must expire.
func (r *run) checkRedis() {
	space := r.data()
	for _, key := range space.Keys() {
		hash := space.Hash(key)
		switch {
		case space.Expires(key) == 0:
			r.fail("the key %s is left, and never expires", key)
		case (hash == nil || strings.HasSuffix(key, ":w")) && !r.faulted(deletions):
			r.fail("the key %s is left", key)
		case hash["owner"] != "" && number(hash["ends"]) > r.now() && !r.faulted(deletions):
			r.fail("%s has the lock in Redis, after all have unlocked", short(hash["owner"]))
		case number(hash["shared"]) > 0 && !r.faulted(deletions):
			r.fail("further holders have permits in Redis, after all have unlocked")
		case hash["queued"] != "" && !r.faulted(deletions):
			r.fail("the hash has a queue, and there is none")
		}
	}
	if len(r.requests) > 0 {
		r.fail("a request is in flight after all have unlocked: %s", r.requests[0].label)
	}
}
