package sim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/proof/simnet"
)

// A call is one call of a script.
type call struct {
	from   *simnet.Host
	server *server
	name   string // name of the script
	argv   []string
}

func (c *call) number(i int) int64 { return number(c.argv[i]) }

// served passes calls of scripts to the rules of their locks, after the server has executed these calls. The
// message of a client can have several calls.
func (w *world) served(s *server, from *simnet.Host, message []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := s.tick()
	for _, c := range commands(message) {
		if len(c) < 3 || c[0] != "evalsha" && c[0] != "eval" {
			continue
		}
		w.counts.Add("requests")
		digest := c[1]
		if c[0] == "eval" {
			digest = redis.NewScript(c[1]).Hash()
			s.known[digest] = true
		}
		n, err := strconv.Atoi(c[2])
		if err != nil || !s.known[digest] { // the reply is NOSCRIPT
			continue
		}
		name := testlock.Script(digest)
		if name == "" {
			w.fail("an unknown script")
		}
		keys, argv := c[3:3+n], c[3+n:]
		for _, key := range keys {
			i := slices.IndexFunc(w.locks, func(l *lock) bool { return l.key == key })
			if i < 0 {
				if strings.HasPrefix(key, "lockline:t:") && strings.HasSuffix(key, "}") && name == "acquire" {
					w.counts.Add("stood in line")
				}
				continue
			}
			if w.locks[i].kind == 'j' {
				argv = asOfRlock(name, argv)
			}
			if name == "release" && len(argv) > 7 {
				name = "reduce"
			}
			w.locks[i].rules.executed(&call{from, s, name, argv}, now)
		}
	}
}

// asOfRlock returns the arguments of a script of redisson in the order of the script of rlock with the same
// name. It sets only the arguments that rules read.
func asOfRlock(name string, argv []string) []string {
	switch name {
	case "acquire": // for one goroutine, with a waiter timeout of 0, because there is no queue
		return []string{argv[0], "1", argv[1], argv[2], argv[3], argv[4], "0"}
	case "force":
		return []string{"", argv[0], argv[1]}
	}
	return argv
}

// asked has the arguments of a request for a lock.
type asked struct {
	attempt  string
	n        int64  // number of permits, or of goroutines behind the attempt
	until    int64  // Redis time in µs after which the request is void
	lease    int64  // requested lease in ms
	liveness int64  // waiter timeout in ms
	joins    string // attempt whose permits the request joins; "": none
}

// asked returns the arguments of a request for a lock. It returns nil for other calls.
func (c *call) asked() *asked {
	if c.name != "acquire" {
		return nil
	}
	q := &asked{attempt: c.argv[0], n: c.number(1), until: c.number(2), lease: c.number(3),
		liveness: c.number(6)}
	if len(c.argv) > 12 {
		q.joins = c.argv[12]
	}
	return q
}

// queued checks the effect of a request on the queue.
func (l *lock) queued(c *call, queue map[string]float64, now int64) {
	w := l.w
	switch c.name {
	case "acquire":
		q := c.asked()
		asking, alive := q.attempt, now+q.liveness*1000
		ticket, queued := queue[asking]
		e := l.waiting[asking]
		void := now > q.until
		switch {
		case queued && (e == nil || e.ticket != ticket):
			if over := l.past(asking); over != "" || void {
				w.fail("%s stands in the queue: it is too late (%v), %s", short(asking), void, over)
			}
			if e != nil && e.alive > now {
				w.fail("%s lost its place", short(asking))
			}
			l.arrived++
			l.waiting[asking] = &waiter{l.arrived, alive, ticket, q.n}
		case queued && !void && q.liveness > 0:
			e.alive = alive
		}
	case "release":
		if _, queued := queue[c.argv[0]]; queued {
			w.fail("%s is released and stands in the queue", short(c.argv[0]))
		}
	}
}

// dropped checks the attempts that are not in the queue any more.
func (l *lock) dropped(queue map[string]float64, now int64) {
	for attempt, e := range l.waiting {
		if _, queued := queue[attempt]; queued {
			continue
		}
		if l.rules.waits(e) {
			l.w.counts.Add("sent away")
		} else if e.alive > now {
			l.w.fail("%s was dropped from the queue, and is known to live for another %d us",
				short(attempt), e.alive-now)
		}
		l.w.counts.Add("dropped")
		delete(l.waiting, attempt)
	}
}

// past returns the reason for which an attempt must not be granted anything, or "" if there is none.
func (l *lock) past(attempt string) string {
	// After the entry of an attempt, a stale copy of its request may be granted. This can happen if the
	// network delays the release until the lease has ended or was forgotten.
	g := l.grants[attempt]
	if over := l.over[attempt].why; over != wasEntered || l.w.well() && (g == nil || g.void.IsZero()) {
		return over
	}
	l.w.counts.Add("revenants")
	return ""
}

// handedOver checks that the owner counts as alive, because the request of another attempt has granted it the
// lock.
func (l *lock) handedOver(owner string, now int64) {
	l.w.counts.Add("handed over")
	const slack = 1000 // now is a little later than the request
	if e := l.waiting[owner]; e != nil && e.alive < now-slack {
		l.w.fail("%s is granted %s, and was known to live until %d us ago", short(owner), l.name, now-e.alive)
	}
}

// turn checks that the owner may be granted the lock, and that no waiter should have been served before the
// owner.
func (l *lock) turn(owner string, token, now int64) {
	w := l.w
	if why := l.past(owner); why != "" {
		w.fail("%s is granted %s with %d, but %s", short(owner), l.name, token, why)
	}
	mine := l.waiting[owner]
	delete(l.waiting, owner)
	for attempt, e := range l.waiting {
		switch {
		case e.alive <= now || mine != nil && e.number > mine.number:
		case l.deaf(attempt):
			w.counts.Add("passed over")
		case l.rules.waits(e):
			w.counts.Add("let pass")
		default:
			w.fail("%s is granted %s with %d before its turn: %s came earlier",
				short(owner), l.name, token, short(attempt))
		}
	}
}

// deaf reports whether the session of an attempt had a subscription at the server, and has none now.
func (l *lock) deaf(attempt string) bool {
	s := l.on[0]
	session, _, _ := strings.Cut(attempt, ":")
	channel := "lockline:s:" + session
	return s.PubSubNumSub(channel)[channel] == 0 && l.entryOf(s, attempt).seen
}

// commands decodes a message of a client, which is a sequence of RESP arrays of bulk strings.
func commands(p []byte) (all [][]string) {
	number := func() int {
		line, rest, _ := bytes.Cut(p, []byte("\r\n"))
		p = rest
		n, err := strconv.Atoi(string(line[1:]))
		if err != nil {
			panic(err)
		}
		return n
	}
	for len(p) > 0 {
		c := make([]string, number())
		for i := range c {
			n := number()
			c[i], p = string(p[:n]), p[n+2:]
		}
		all = append(all, c)
	}
	return all
}
