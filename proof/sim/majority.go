package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// majority has the rules of RedLocks. A holder is a process. The owner fields of a process begin in the same
// way on all servers.
type majority struct {
	*lock
	set   time.Time            // time at which lock.last was set
	taken map[string]time.Time // time at which an operator took or deleted the lock of a process
}

// holderOf returns the beginning of an owner field, which identifies the process.
func holderOf(owner string) string {
	id, _, _ := strings.Cut(owner, ":")
	return id[:max(0, len(id)-1)]
}

func (l *majority) need() int { return len(l.on)/2 + 1 }

func (l *majority) executed(c *call, now int64) {
	w := l.w
	at := slices.Index(l.on, c.server)
	owner, token := l.present(c.server)
	before := l.owners[at]
	l.owners[at] = owner
	switch {
	case c.name != "force" || before == "":
	case before == owner:
		w.counts.Add("forced too late") // another holder has the lock, and keeps it
	default:
		if w.counts.Add("forced"); c.argv[2] != "" {
			w.counts.Add("forced by token")
		}
		l.take(holderOf(before))
	}
	if c.name == "acquire" && c.number(2) > 0 && now > c.number(2) {
		w.counts.Add("too late")
	}
	asking := ""
	if c.name != "force" && c.name != "inspect" {
		asking = c.argv[0]
	}
	here := fmt.Sprint(asking, " on ", at)
	l.revivedAs(here, c, now)
	if c.name == "release" {
		l.end(here, "it has left")
	}
	if owner != "" && owner == asking && before != owner {
		if c.name == "acquire" && now > c.number(2) {
			w.fail("%s is granted %s by a request that is void", short(owner), l.name)
		}
		// A server that has lost the hash after that has lost the tombstone, too.
		if end := l.over[here]; end.why != "" && c.server.forgot.IsZero() &&
			!later(l.wiped, l.forgotAt).After(end.at) {
			w.fail("%s is granted by server %d, but %s", short(owner), c.server.number, end.why)
		}
		for e := range l.considered {
			if e.attempt == holderOf(owner) {
				w.counts.Add("servers joined")
				break
			}
		}
	}
	if owner != "" && before != owner && owner != asking {
		w.counts.Add("handed over")
	}
	if c.name == "renew" && c.argv[6] != "0" {
		w.counts.Add("tokens raised")
	}
	w.log("%s %d: %s %s %s: %s has it, %d",
		c.from.Name, c.server.number, c.name, l.name, short(asking), short(owner), token)
	l.stored(c.server)
	l.beliefs()
}

// take records that an operator took the lock from a process.
func (l *majority) take(holder string) {
	l.taken[holder] = time.Now()
	for e := range l.considered {
		if e.attempt == holder && e.grant.void.IsZero() {
			e.grant.void = time.Now()
		}
	}
}

func (l *majority) entry(e, outer *held) {
	w := l.w
	if robbed, ok := l.taken[e.attempt]; ok && (l.doubt(e) != "" || !l.onAll(e.hold)) &&
		time.Since(robbed) < longest && e.grant.void.IsZero() {
		e.grant.void = time.Now() // the operator took the lock just before this entry
	}
	if outer != nil {
		w.counts.Add("nested")
		if e.token != outer.token || e.attempt != outer.attempt {
			w.fail("%s: nested in %d of %s it got %d of %s",
				e.who, outer.token, outer.attempt, e.token, e.attempt)
		}
	} else {
		if e.token <= l.last && !e.void() && !l.forgot() {
			w.fail("%s: entered %s with %d after %d", e.who, l.name, e.token, l.last)
		}
		if !e.void() {
			l.last, l.set = e.token, time.Now()
			l.safe(e)
		}
		l.near(e)
	}
	for other := range l.considered {
		excused := other.grant != e.grant && (other.void() || e.void())
		if other.token != e.token && !excused && other.valid() {
			w.fail("%s entered %s with %d, and %s is inside with %d",
				e.who, l.name, e.token, other.who, other.token)
		}
	}
	w.kept = append(w.kept, e.hold)
	l.considered[e] = struct{}{}
	l.moved = time.Now()
	l.beliefs()
}

// safe checks that a majority of servers grants only tokens above the token of e, so all later holders have
// higher tokens. If a server has forgotten tokens, it is enough if one server grants only higher tokens.
func (l *majority) safe(e *held) {
	higher, forgot := 0, false
	for _, s := range l.on {
		last := l.lastKnown(s)
		if s.HGet(l.key, "token") != s.HGet(l.key, "released") { // the grant is not released
			last += protocol.Block - 1
		}
		if last >= e.token {
			higher++
		}
		forgot = forgot || !s.forgot.IsZero()
	}
	// Some parts may be older than the deletion of the lock.
	forgot = forgot || !l.wiped.IsZero() && time.Since(l.wiped) < longest
	if higher < l.need() && !forgot || higher == 0 {
		l.w.fail("%s entered %s with %d, and %d servers grant only higher ones",
			e.who, l.name, e.token, higher)
	}
}

// forgot reports whether a server has lost its data since the last holder entered, or whether the lock was
// deleted there by hand. After that, only the server's clock makes new tokens higher than earlier ones.
func (l *majority) forgot() bool {
	return later(l.wiped, l.forgotAt).After(l.set) ||
		slices.ContainsFunc(l.on, func(s *server) bool { return s.forgot.After(l.set) })
}

// near checks that the token is not far above the clocks. Otherwise, the token could be forgotten before the
// clocks have passed it.
func (l *majority) near(e *held) {
	var latest int64
	for _, s := range l.on {
		latest = max(latest, s.tick())
	}
	if ahead := time.Duration(e.token-latest) * time.Microsecond; ahead > time.Minute {
		l.w.fail("%s: entered %s with %d, which is %v above the clocks", e.who, l.name, e.token, ahead)
	}
}

func (l *majority) doubt(e *held) string {
	n := 0
	for _, s := range l.on {
		if owner, _ := l.present(s); holderOf(owner) == e.attempt {
			n++
		}
	}
	if n < l.need() {
		return fmt.Sprintf("it does so on %d of %d servers", n, len(l.on))
	}
	return ""
}

func (l *majority) busy() bool { return len(l.considered) > 0 }

// waits returns false, because no waiter can want too much.
func (*majority) waits(*waiter) bool { return false }

// stuck returns "", because busy is enough for locks with one holder.
func (*majority) stuck() string { return "" }

func (*majority) lingering() []string { return nil }

// forgotten makes no grant void, because the other servers have the data.
func (l *majority) forgotten(s *server) { l.setBack(s) }

func (l *majority) setBack(s *server) { l.owners[slices.Index(l.on, s)], _ = l.present(s) }

func (l *majority) deleted() {
	for at, owner := range l.owners {
		if owner != "" {
			l.take(holderOf(owner))
		}
		l.owners[at] = ""
	}
}
