package sim

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// exclusive are the rules of locks that one attempt has at a time: rlock, fairlock and RedLock.
type exclusive struct{ *lock }

func (l exclusive) executed(c *call, now int64) {
	w := l.w
	at := slices.Index(l.on, c.server)
	owner, token := l.present(c.server)
	before := l.owners[at]
	l.owners[at] = owner
	l.revived(c, now)
	switch {
	case c.name != "force" || before == "":
	case len(c.argv) > 2 && !(l.kind == 'q' && c.argv[2] == before || l.kind != 'q' && c.number(2) == l.token):
		w.counts.Add("forced too late") // another has it, whose hold stands
	default:
		if w.counts.Add("forced"); len(c.argv) > 2 {
			w.counts.Add("forced by token")
		}
		if g := l.grantOf(before); g.void.IsZero() {
			g.void = time.Now()
		}
	}
	if c.name == "lock" && c.number(2) > 0 && now > c.number(2) {
		w.counts.Add("too late")
	}
	if c.name == "lock" && now > c.number(2) && owner == c.argv[0] && before != owner {
		w.fail("%s is granted %s by a request that is void", short(owner), l.name)
	}
	asking := ""
	if c.name != "force" && c.name != "inspect" {
		asking = c.argv[0]
	}
	if c.name == "lock" {
		l.asked[asking] = c.number(1)
		if l.kind == 'q' && c.argv[8] == "1" && owner == asking && before != owner {
			w.counts.Add("servers joined")
		}
	}
	var queue map[string]float64
	if l.kind != 'q' {
		queue = c.server.scores(l.key + ":q")
		l.queued(c, queue, now)
	}
	here := here(asking, l.kind, at)
	if c.name == "release" {
		l.end(here, "it has left")
		delete(l.waiting, asking)
	}
	if l.kind != 'q' {
		if token != 0 && token != l.token {
			if owner != asking {
				w.counts.Add("handed over")
			}
			l.granted(owner, token, now)
		}
		l.token = token
	} else if owner != "" && owner == asking && before != owner && l.over[here].why != "" && c.server.forgot.IsZero() {
		w.fail("%s is granted by server %d, but %s", short(owner), c.server.number, l.over[here].why)
	}
	if owner != "" {
		w.log("%s %d: %s %s %s: %s has it, %d; %d wait", c.from.Name, c.server.number, c.name, l.name, short(asking), short(owner), token, len(queue))
	} else {
		w.log("%s %d: %s %s %s: free; %d wait", c.from.Name, c.server.number, c.name, l.name, short(asking), len(queue))
	}
	l.dropped(queue, now)
	l.beliefs()
}

// here is an attempt as lock.over names it. Of a RedLock, a member may learn of its end before another one has granted.
func here(attempt string, kind byte, at int) string {
	if kind == 'q' {
		return attempt + " on " + strconv.Itoa(at)
	}
	return attempt
}

// granted checks that it was owner's turn.
func (l exclusive) granted(owner string, token, now int64) {
	w := l.w
	if highest := max(l.highest, l.last); token <= highest && !l.fallen(token, now) {
		w.fail("%s is granted %s with %d after %d", short(owner), l.name, token, highest)
	}
	if lease := l.on[0].TTL(l.key); lease > time.Duration(l.asked[owner]+1)*time.Millisecond {
		w.fail("%s is granted %s for %v, and asked for %d ms", short(owner), l.name, lease, l.asked[owner])
	}
	l.highest, l.moved = token, time.Now()
	g := l.grantOf(owner)
	g.token = token
	if forgot := l.on[0].forgot; l.kind != 'q' && !forgot.IsZero() && time.Since(forgot) < liveness+l.on[0].setSince(w.start) && g.void.IsZero() {
		g.void = time.Now() // its session counts from a heartbeat that was forgotten
	}
	l.turn(owner, token, now)
}

func (l exclusive) entry(e, outer *held) {
	w := l.w
	if outer != nil {
		w.counts.Add("nested")
		if e.token != outer.token || e.attempt != outer.attempt {
			w.fail("%s: nested in %d of %s it got %d of %s", e.who, outer.token, outer.attempt, e.token, e.attempt)
		}
	} else {
		if e.token <= l.last && !e.void() {
			w.fail("%s: entered %s with %d after %d", e.who, l.name, e.token, l.last)
		}
		if !e.void() {
			l.last = e.token
		}
		l.granting(e)
		l.near(e)
		if l.kind == 'f' {
			l.overtaking(e, 4)
		}
	}
	for other := range l.considered {
		excused := other.attempt != e.attempt && (other.void() || e.void())
		if other.token != e.token && !excused && other.valid() {
			w.fail("%s entered %s with %d, and %s is inside with %d", e.who, l.name, e.token, other.who, other.token)
		}
	}
	w.kept = append(w.kept, e.hold)
	l.considered[e] = struct{}{}
	l.beliefs()
}

// near checks that the token of a RedLock is not far above the clocks, or it would be forgotten before these have passed it.
func (l exclusive) near(e *held) {
	if l.kind != 'q' {
		return
	}
	var latest int64
	for _, s := range l.on {
		latest = max(latest, s.tick())
	}
	if ahead := time.Duration(e.token-latest) * time.Microsecond; ahead > time.Minute {
		l.w.fail("%s: entered %s with %d, which is %v above the clocks", e.who, l.name, e.token, ahead)
	}
}

// doubt finds the lock in Redis, a RedLock on a majority of servers.
func (l exclusive) doubt(e *held) string {
	if l.kind != 'q' {
		if _, present := l.present(l.on[0]); present != e.grant.token {
			return fmt.Sprintf("in Redis it is %d", present)
		}
		return ""
	}
	n := 0
	for _, s := range l.on {
		if owner, _ := l.present(s); owner == e.attempt {
			n++
		}
	}
	switch {
	case n <= len(l.on)/2:
		return fmt.Sprintf("it does so on %d of %d servers", n, len(l.on))
	case l.stored(e.token) == 0:
		return "no server has stored that token"
	}
	return ""
}

func (l exclusive) busy() bool { return len(l.considered) > 0 }

// waits: no attempt waits for more than there is.
func (exclusive) waits(*waiter) bool { return false }

// stuck is for busy to tell: there is one holder.
func (exclusive) stuck() string { return "" }

func (exclusive) lingering() []string { return nil }

func (l exclusive) forgotten(s *server) {
	at := slices.Index(l.on, s)
	l.owners[at], _ = l.present(s)
	if l.kind == 'q' {
		return // the others remember
	}
	_, l.token = l.present(s)
	l.voided()
	l.requeued(s)
}

func (l exclusive) deleted() {
	for at := range l.on {
		if l.owners[at] != "" {
			_ = l.grantOf(l.owners[at]) // of a RedLock, it may not have a majority yet
		}
		l.owners[at] = ""
	}
	l.token = 0
}
