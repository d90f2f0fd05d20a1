package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// exclusive has the rules of locks with one holder: of rlock, fairlock and redisson.
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
	case c.argv[2] != "" && c.number(2) != l.token:
		w.counts.Add("forced too late") // another holder has the lock, and keeps it
	default:
		if w.counts.Add("forced"); c.argv[2] != "" {
			w.counts.Add("forced by token")
		}
		l.grantOf(before).lost()
	}
	if c.name == "acquire" && c.number(2) > 0 && now > c.number(2) {
		w.counts.Add("too late")
	}
	if c.name == "acquire" && now > c.number(2) && owner == c.argv[0] && before != owner {
		w.fail("%s is granted %s by a request that is void", short(owner), l.name)
	}
	asking := ""
	if c.name != "force" && c.name != "inspect" {
		asking = c.argv[0]
	}
	if c.name == "acquire" {
		l.asked[asking] = c.number(3)
	}
	queue := c.server.scores(l.key + ":q")
	l.queued(c, queue, now)
	l.remains(c, owner, token)
	if c.name == "release" {
		l.end(asking, "it has left")
		delete(l.waiting, asking)
	}
	if token != 0 && token != l.token && !strings.HasSuffix(owner, "~") {
		if owner != asking {
			l.handedOver(owner, now)
		}
		l.granted(owner, token, now)
	}
	l.token = token
	if owner != "" {
		w.log("%s %d: %s %s %s: %s has it, %d; %d wait",
			c.from.Name, c.server.number, c.name, l.name, short(asking), short(owner), token, len(queue))
	} else {
		w.log("%s %d: %s %s %s: free; %d wait",
			c.from.Name, c.server.number, c.name, l.name, short(asking), len(queue))
	}
	l.dropped(queue, now)
	l.stored(c.server)
	l.beliefs()
}

// remains checks that a lock with HoldAtLeast stays taken for the right time after its hold.
func (l exclusive) remains(c *call, owner string, token int64) {
	w, s := l.w, l.on[0]
	switch {
	case c.name == "release" && len(c.argv) > 6 && owner == c.argv[0]+"~" &&
		token >= c.number(1) && token < c.number(1)+protocol.Block && // the block of the grant has the token
		(l.stayed != owner || l.excused): // otherwise this is a second copy, which changes nothing
		l.stayed = owner
		w.counts.Add("stays taken")
		left := float64(c.number(6)) * float64(time.Millisecond)
		l.left, l.stays, l.excused = time.Now(), time.Now().Add(time.Duration(left/s.rate)), false
	case c.name == "force" && owner != l.stayed: // otherwise the operator named another token
		l.excused = true
	}
	const slack = 50 * time.Millisecond // because clocks differ
	switch left := time.Until(l.stays); {
	case l.excused || s.setSince(l.left) != 0:
	case strings.HasSuffix(owner, "~"):
		_, _, lease := l.lease(s)
		if lease = time.Duration(float64(lease) / s.rate); lease > max(left, 0)+slack {
			w.fail("%s of %s stays taken %v long, and not %v", short(owner), l.name, lease, left)
		}
	case left > slack:
		w.fail("%s was to stay taken until in %v, and %q has it", l.name, left, short(owner))
	}
}

// granted checks the token and the lease of a grant, and that it was the owner's turn.
func (l exclusive) granted(owner string, token, now int64) {
	w := l.w
	if highest := max(l.highest, l.last); token <= highest && !l.fallen(token, now) {
		w.fail("%s is granted %s with %d after %d", short(owner), l.name, token, highest)
	}
	if _, _, lease := l.lease(l.on[0]); lease > time.Duration(l.asked[owner]+1)*time.Millisecond {
		w.fail("%s is granted %s for %v, and asked for %d ms", short(owner), l.name, lease, l.asked[owner])
	}
	l.highest, l.moved = token, time.Now()
	g := l.grantOf(owner)
	g.token, g.at = token, time.Now()
	if forgot := l.on[0].forgot; !forgot.IsZero() &&
		time.Since(forgot) < liveness+l.on[0].setSince(w.start) && g.void.IsZero() {
		g.void = time.Now() // the session may count on a heartbeat that Redis has forgotten
	}
	l.turn(owner, token, now)
}

func (l exclusive) entry(e, outer *held) {
	w := l.w
	if outer != nil {
		w.counts.Add("nested")
		if e.token != outer.token || e.attempt != outer.attempt {
			w.fail("%s: nested in %d of %s it got %d of %s",
				e.who, outer.token, outer.attempt, e.token, e.attempt)
		}
	} else {
		if e.token <= l.last && !e.void() {
			w.fail("%s: entered %s with %d after %d", e.who, l.name, e.token, l.last)
		}
		if !e.void() {
			l.last = e.token
		}
		l.granting(e)
		if l.kind == 'f' {
			l.overtaking(e, 4)
		}
	}
	for other := range l.considered {
		excused := other.attempt != e.attempt && (other.void() || e.void())
		if other.token != e.token && !excused && other.valid() {
			w.fail("%s entered %s with %d, and %s is inside with %d",
				e.who, l.name, e.token, other.who, other.token)
		}
	}
	w.kept = append(w.kept, e.hold)
	l.considered[e] = struct{}{}
	l.beliefs()
}

func (l exclusive) doubt(e *held) string {
	if owner, present := l.present(l.on[0]); present != e.grant.token || strings.HasSuffix(owner, "~") {
		return fmt.Sprintf("in Redis it is %d, of %q", present, owner)
	}
	return ""
}

func (l exclusive) busy() bool {
	// One waiter sends a request when the lock is not taken any more. If this waiter leaves, the next waiter
	// notices with its heartbeat.
	stays := time.Now().Before(l.stays.Add(l.on[0].setSince(l.left) + liveness))
	if stays {
		l.free = time.Now()
	}
	return stays || len(l.considered) > 0
}

// waits returns false, because no waiter can want too much.
func (exclusive) waits(*waiter) bool { return false }

// stuck returns "", because busy is enough for locks with one holder.
func (exclusive) stuck() string { return "" }

// lingering returns the key of a lock that stays taken.
func (l exclusive) lingering() []string {
	if l.busy() {
		return []string{l.key}
	}
	return nil
}

func (l exclusive) forgotten(s *server) {
	l.excused = true
	l.setBack(s)
	l.voided()
	l.requeued(s)
}

func (l exclusive) setBack(s *server) { l.owners[slices.Index(l.on, s)], l.token = l.present(s) }

func (l exclusive) deleted() {
	l.excused = true
	if l.kind == 'j' { // waiters notice the deletion when the lease would have ended
		l.blind = time.Now().Add(longest)
	}
	l.owners[0] = ""
	l.token = 0
}
