package drive

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/rlock"
)

// What is promised is checked here. The callers of all functions must hold run.mu.

// checkState checks what must be so in each state.
func (r *run) checkState() {
	sum := 0
	var who []string
	for _, a := range r.actors {
		switch {
		case a.lives():
			sum += a.takes()
			who = append(who, a.name)
			if !r.known(a) {
				r.fail("%s holds what Redis has not granted to its session", a.name)
			}
		case a.hold != nil && a.phase != unlocking && !a.p.closed && !r.excused(a.p):
			r.fail("%s has lost the lock: %w", a.name, a.hold.Err())
		}
	}
	if sum > r.world.kind.limit {
		r.fail("%s hold more than there is", strings.Join(who, " and "))
	}
	for _, a := range r.actors {
		if a.phase != locking {
			continue
		}
		for _, other := range r.actors {
			if other != a && other.phase != idle && other.phase != finished {
				a.contended = true
			}
		}
		if len(r.requests) > 1 || len(r.late) > 0 {
			a.contended = true
		}
	}
}

// excused reports whether a process may lose what it holds: it was cut off, or a reply to it took long.
func (r *run) excused(p *process) bool { return r.left.Cutoffs < r.world.Faults.Cutoffs || p.slow }

// known reports whether Redis has something that the actor's session holds, for as long as the hold says.
func (r *run) known(a *actor) bool {
	if a.p.closed {
		return true // its hold is about to end
	}
	space := r.data()
	until := a.hold.Deadline().UnixMicro()
	for _, key := range space.Keys() {
		hash, shares := space.Hash(key), space.Scores(key+":h")
		for field := range hash {
			owner, shared := strings.CutPrefix(field, "held ")
			if shared && mine(a, owner) && int64(shares[owner]) >= until {
				return true
			}
		}
		if mine(a, hash["owner"]) && int64(number(hash["ends"])) >= until {
			return true
		}
	}
	return false
}

// mine reports whether an owner field is one of the actor's session.
func mine(a *actor, owner string) bool { return strings.HasPrefix(owner, sessionName+a.p.letter+":") }

// takeTurn notes whose turn comes before that of a call that begins now.
func (r *run) takeTurn(a *actor) {
	a.after, a.contended = nil, len(r.requests)+len(r.late) > 0
	here := r.world.Options != nil // its session has the lock, or wants it: then it may come before others
	for _, other := range r.actors {
		if other != a && other.phase != idle && other.phase != finished {
			a.contended = true
			here = here || other.p == a.p
		}
	}
	if a.use().tries {
		return
	}
	for _, other := range r.actors {
		switch {
		case other == a || other.phase != locking || other.canceled || other.use().tries:
		case other.p == a.p:
			if other.use().letter == a.use().letter {
				a.after = append(a.after, other)
			}
		case r.queued(other) && (r.world.kind.fair || !here):
			a.after = append(a.after, other)
		}
	}
}

// queued reports whether the call of an actor surely has a place in the queue in Redis: it is the only one
// that waits in its session, and an attempt that began after the call is queued.
func (r *run) queued(a *actor) bool {
	for _, other := range r.actors {
		if other != a && other.p == a.p && other.phase != idle && other.phase != finished {
			return false
		}
	}
	for _, queue := range r.queues() {
		for _, owner := range queue {
			session, attempt, _ := strings.Cut(short(owner), ":")
			if session == a.p.letter && len(attempt) > 0 && number(attempt) > a.attempts {
				return true
			}
		}
	}
	return false
}

// queues are the owner fields in the queues of Redis.
func (r *run) queues() (all [][]string) {
	space := r.data()
	for _, key := range space.Keys() {
		if strings.HasSuffix(key, ":q") {
			all = append(all, space.Members(key))
		}
	}
	return all
}

func number(text string) (n int) {
	for _, c := range text {
		n = 10*n + int(c-'0')
	}
	return n
}

// checkEntry is called when an actor has got a hold.
func (r *run) checkEntry(a *actor) {
	if a.lives() {
		r.checkState()
	}
	token := a.hold.Token()
	exclusive := a.takes() == r.world.kind.limit && a.use().takes == 0
	switch {
	case !r.world.kind.fences:
	case exclusive && token <= r.token:
		r.fail("%s has a token that is not higher than all before", a.name)
	case token < r.excluded, token == r.excluded && token != r.shared:
		r.fail("%s has a token that is not higher than that of a holder which excluded it", a.name)
	}
	if r.token = max(r.token, token); exclusive {
		r.excluded = max(r.excluded, token)
	}
	f, had := r.left, r.world.Faults
	if f.Losses < had.Losses || f.Breaks < had.Breaks || f.Cutoffs < had.Cutoffs ||
		f.Closures < had.Closures || f.Cuts < had.Cuts {
		return // a waiter that cannot be notified is passed over, and a request that was cut comes later
	}
	for _, other := range a.after {
		if other.phase == locking && !other.canceled && a.takes()+other.takes() > r.world.kind.limit {
			r.fail("%s came after %s, and has the lock before", a.name, other.name)
		}
	}
}

// checkError judges the error of a Lock or a TryLock.
func (r *run) checkError(a *actor, err error) {
	f, had := r.left, r.world.Faults
	switch {
	case a.use().tries && errors.Is(err, rlock.ErrLocked):
		if !a.contended {
			r.fail("%s is refused what is free: %w", a.name, err)
		}
	case a.canceled && errors.Is(err, context.Canceled):
	case a.p.closed && errors.Is(err, rlock.ErrClosed):
	case f.Cutoffs < had.Cutoffs || f.Waits < had.Waits || f.Cuts < had.Cuts-1:
	case a.use().tries && f.Cuts < had.Cuts:
	default:
		r.fail("%s: Lock fails: %w", a.name, err)
	}
}

// checkNested judges the error of a nested Lock.
func (r *run) checkNested(a *actor, err error) {
	f, had := r.left, r.world.Faults
	if !a.p.closed && f.Cutoffs == had.Cutoffs && f.Waits == had.Waits && f.Cuts == had.Cuts {
		r.fail("%s: a nested Lock fails: %w", a.name, err)
	}
}

// checkUnlock judges the result of an Unlock. lived: the hold had not ended before.
func (r *run) checkUnlock(a *actor, err error, lived bool) {
	f, had := r.left, r.world.Faults
	if err != nil && !a.p.closed && (lived || f.Cutoffs == had.Cutoffs) && f.Waits == had.Waits &&
		f.Cutoffs == had.Cutoffs {
		r.fail("%s: Unlock fails: %w", a.name, err)
	}
}

// checkClose judges how a session has closed.
func (r *run) checkClose(p *process, err error, took time.Duration) {
	f, had := r.left, r.world.Faults
	if f.Cutoffs == had.Cutoffs && (err != nil || took > time.Second) {
		r.fail("Close of %s returns %v after %v", p.letter, err, took)
	}
}

// checkStall adds to the time that has passed because nothing else could happen, while a call waited.
func (r *run) checkStall(took time.Duration) {
	var waits []string
	for _, a := range r.actors {
		if a.phase != finished && !a.p.away {
			waits = append(waits, a.String())
		}
	}
	if len(waits) == 0 {
		return
	}
	r.stalled += took
	if most := r.patience(); r.stalled > most {
		r.fail("nothing happens for %v, at most %v is expected: %s", r.stalled, most, strings.Join(waits, ", "))
	}
}

// patience is the longest time for which nothing need happen, after the faults that there were.
func (r *run) patience() time.Duration {
	f, had := r.left, r.world.Faults
	for _, a := range r.actors {
		if slices.ContainsFunc(a.uses, func(u role) bool { return u.stays > 0 }) {
			return 15 * time.Second
		}
	}
	switch {
	case f.Cutoffs < had.Cutoffs: // its lease, and a first lease of its waiter
		return 45 * time.Second
	case f.Losses < had.Losses, f.Waits < had.Waits: // a heartbeat, and the read timeout
		return 12 * time.Second
	case f.Breaks < had.Breaks, f.Cuts < had.Cuts:
		return 3 * time.Second
	}
	return 300 * time.Millisecond
}

// checkRedis checks what is left in Redis after all have unlocked.
func (r *run) checkRedis() {
	if r.failure != nil {
		return
	}
	space := r.data()
	for _, key := range space.Keys() {
		hash := space.Hash(key)
		switch {
		case space.Expires(key) == 0:
			r.fail("the key %s is left, and never expires", key)
		case hash == nil || strings.HasSuffix(key, ":w"):
			r.fail("the key %s is left", key)
		case hash["owner"] != "" && int64(number(hash["ends"])) > now():
			r.fail("%s has the lock in Redis, after all have unlocked", short(hash["owner"]))
		case hash["shared"] != "" && hash["shared"] != "0":
			r.fail("further holders have permits in Redis, after all have unlocked")
		case hash["queued"] != "":
			r.fail("the hash says that there is a queue")
		}
	}
	if len(r.requests) > 0 {
		r.fail("a request is in flight after all have unlocked: %s", r.requests[0].label)
	}
}
