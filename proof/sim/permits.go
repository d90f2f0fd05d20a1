package sim

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
)

// permits has the rules of a semaphore or a read-write lock. A reader takes one permit, and a writer takes
// all.
type permits struct {
	*lock
	limit   int64              // present limit; All for a read-write lock
	holders map[string]holding // holders after the last request, by attempt
	set     string             // id of the last SetLimit
	sets    map[string]bool    // ids of all calls of SetLimit
	written *held              // the last entry of a writer whose hold was not void
}

// A holding is a holder in Redis.
type holding struct {
	n, token int64
	till     int64 // end of the lease by the server's clock in µs
}

// in reports whether the lease has not ended at the time now.
func (h holding) in(now int64) bool { return h.till > now }

// read returns all holders on the server. The first holder has fields of its own in the hash, and each
// further holder has one field. counted is the number of permits of all further holders by the hash, and used
// is the sum of their fields.
func (l *permits) read() (all map[string]holding, counted, used int64) {
	s := l.on[0]
	ends := s.scores(l.key + ":h")
	all = map[string]holding{}
	if owner := s.HGet(l.key, "owner"); owner != "" {
		n, token, till := s.HGet(l.key, "permits"), s.HGet(l.key, "token"), s.HGet(l.key, "ends")
		all[owner] = holding{number(n), number(token), number(till)}
	}
	if s.HGet(l.key, "lingers") != "" || s.HGet(l.key, "lingerers") != "" {
		l.w.counts.Add("seen while sessions may keep permits")
	}
	fields, _ := s.HKeys(l.key)
	for _, f := range fields {
		owner, further := strings.CutPrefix(f, "held ")
		if !further {
			continue
		}
		words := strings.Fields(s.HGet(l.key, f))
		used += number(words[0])
		if end, ok := ends[owner]; ok {
			all[owner] = holding{number(words[0]), number(words[1]), int64(end)}
		}
	}
	return all, number(s.HGet(l.key, "shared")), used
}

// inForce returns the limit on the server.
func (l *permits) inForce() int64 {
	return cmp.Or(number(l.on[0].HGet(l.key, "limit")), l.initial)
}

// sum returns the number of permits that are held.
func sum(all map[string]holding, now int64) (n int64) {
	for _, h := range all {
		if h.in(now) {
			n += h.n
		}
	}
	return n
}

func (l *permits) executed(c *call, now int64) {
	w := l.w
	l.revived(c, now)
	before, limit := l.holders, l.limit
	after, counted, used := l.read()
	l.holders = after
	l.limit = l.inForce()
	if c.name != "limit" && l.limit != limit && l.limit != l.initial {
		w.fail("%s changed the limit of %s from %d to %d", c.name, l.name, limit, l.limit)
	}
	if counted != used {
		w.fail("%s of %s: Redis counts %d permits as used, and its holders have %d",
			c.name, l.name, counted, used)
	}
	asking, forced := "", false
	switch c.name {
	case "acquire", "release", "renew", "reduce":
		asking = c.argv[0]
	case "force":
		forced = l.forced(c.argv[2], before, now)
	case "limit":
		l.limited(c, limit, now)
	}
	queue := c.server.scores(l.key + ":q")
	if q := c.asked(); q != nil {
		l.asked[asking] = q.lease
		switch h, ok := after[q.joins]; {
		case now > q.until && q.until > 0:
			w.counts.Add("too late")
		case ok && h.till > before[q.joins].till:
			w.counts.Add("went on")
		}
		if _, ok := before[asking]; !ok && after[asking].in(now) && now > q.until {
			w.fail("%s is granted %s by a request that is void", short(asking), l.name)
		}
	}
	l.queued(c, queue, now)
	if c.name == "release" {
		l.end(asking, "it has left")
		delete(l.waiting, asking)
		if after[asking].in(now) {
			w.fail("%s is released and has %d permits of %s", short(asking), after[asking].n, l.name)
		}
	}
	for owner, h := range before {
		l.changed(c, owner, h, after, now)
	}
	granted := slices.DeleteFunc(slices.Collect(maps.Keys(after)), func(owner string) bool {
		return before[owner].token == after[owner].token
	})
	slices.SortFunc(granted, func(a, b string) int { return cmp.Compare(after[a].token, after[b].token) })
	for _, owner := range granted {
		if owner != asking {
			l.handedOver(owner, now)
		}
		l.granted(owner, after[owner], now)
	}
	if n := sum(after, now); len(granted) > 0 && n > l.limit {
		w.fail("%d permits of %s are held, and there are %d", n, l.name, l.limit)
	} else if len(granted) > 0 && n == l.limit {
		w.counts.Add("all permits held")
	}
	w.log("%s %d: %s %s %s: %s; %d wait",
		c.from.Name, c.server.number, c.name, l.name, short(asking), l.describe(after, now), len(queue))
	l.dropped(queue, now)
	if who := l.next(asking); who != "" && (c.name == "release" || forced ||
		c.name == "limit" && c.argv[1] == "0" && now <= c.number(5)) {
		w.fail("a request to %s leaves %s in the queue, and enough permits of %s are free",
			c.name, short(who), l.name)
	}
	l.beliefs()
}

// describe returns a text about the holders for the log.
func (l *permits) describe(all map[string]holding, now int64) string {
	var s []string
	for owner, h := range all {
		s = append(s, fmt.Sprintf("%s has %d, %d, for %d ms", short(owner), h.n, h.token, (h.till-now)/1000))
	}
	return fmt.Sprint(len(s), " holders of ", l.limit, ": ", strings.Join(s, "; "))
}

// changed checks the effect of a request on the permits that an owner held before it.
func (l *permits) changed(c *call, owner string, was holding, after map[string]holding, now int64) {
	h, ok := after[owner]
	mine := len(c.argv) > 0 && c.argv[0] == owner
	switch {
	case !was.in(now):
	case !ok || h.token != was.token:
		if c.name != "force" && !(c.name == "release" && mine) {
			l.w.fail("%s had %d permits of %s for another %d us, which a request to %s took away",
				short(owner), was.n, l.name, was.till-now, c.name)
		}
	case c.name == "reduce" && mine && c.number(1) == was.token:
		if l.w.counts.Add("reduced"); h.n != 1 {
			l.w.fail("%s goes on as a reader, and has %d permits of %s", short(owner), h.n, l.name)
		}
	case h.n != was.n:
		l.w.fail("%s had %d permits of %s, of which a request to %s made %d",
			short(owner), was.n, l.name, c.name, h.n)
	}
}

// granted checks a new holder.
func (l *permits) granted(owner string, h holding, now int64) {
	w := l.w
	switch highest := max(l.highest, l.last); {
	case h.token > highest:
	case l.fallen(h.token, now):
		l.written = nil
	default:
		w.fail("%s is granted %s with %d after %d", short(owner), l.name, h.token, highest)
	}
	if lease := h.till - now; lease > (l.asked[owner]+1)*1000 {
		w.fail("%s is granted %s for %d us, and asked for %d ms", short(owner), l.name, lease, l.asked[owner])
	}
	l.highest, l.moved = h.token, time.Now()
	g := l.grantOf(owner)
	g.token, g.limit, g.at = h.token, l.limit, time.Now()
	l.turn(owner, h.token, now)
}

// forced records the owners from which an operator took permits, and reports whether there were any.
func (l *permits) forced(which string, before map[string]holding, now int64) (any bool) {
	w := l.w
	_, err := strconv.Atoi(which)
	byToken := err == nil
	for owner, h := range before {
		if !h.in(now) || !(which == "" && h.n == engine.All || which == "r" && h.n != engine.All ||
			byToken && number(which) == h.token) {
			continue
		}
		any = true
		if l.holders[owner].token == h.token {
			w.fail("%s is taken from %s, which still has it", l.name, short(owner))
		}
		if w.counts.Add("forced"); byToken {
			w.counts.Add("forced by token")
		}
		l.grantOf(owner).lost()
	}
	if byToken && !any {
		w.counts.Add("forced too late")
	}
	return any
}

// limited checks the effect of a request that sets the limit.
func (l *permits) limited(c *call, before, now int64) {
	w := l.w
	if now > c.number(5) { // the request was void
		if l.limit != before {
			w.fail("the limit of %s was %d, and is %d by a request that came too late",
				l.name, before, l.limit)
		}
		return
	}
	if l.sets == nil {
		l.sets = map[string]bool{}
	}
	id := c.argv[4]
	if l.sets[id] && l.set != id && c.argv[1] == "0" {
		w.counts.Add("late copies of SetLimit")
	}
	l.sets[id], l.set = true, id
	if c.argv[1] == "0" && l.limit != c.number(0) {
		w.fail("the limit of %s was set to %s, and is %d", l.name, c.argv[0], l.limit)
	}
	switch {
	case l.limit < before:
		w.counts.Add("limit reduced")
	case l.limit > before:
		w.counts.Add("limit raised")
	}
	w.log("the limit of %s is %d, and was %d", l.name, l.limit, before)
}

func (l *permits) forgotten(s *server) {
	l.holders, _, _ = l.read()
	l.voided()
	l.requeued(s)
	for _, h := range l.holders {
		if h.n == engine.All { // a release frees unused tokens, so a new token can be lower
			l.known = min(l.known, h.token)
		}
	}
	l.limit = l.inForce()
}

func (l *permits) deleted() {
	l.holders, l.limit = nil, l.initial
	// No session is notified, so waiters find out with their heartbeats.
	l.blind = time.Now().Add(heartbeat)
}

// waits reports whether the waiter wants more permits than the limit.
func (l *permits) waits(e *waiter) bool { return e.n > l.limit }

func (l *permits) stuck() string { return l.next("") }

// next returns the first waiter in the queue if it could be served, and otherwise "". A waiter of the session
// of `asking` needs no subscription, because that session gets a reply.
func (l *permits) next(asking string) string {
	session, _, _ := strings.Cut(asking, ":")
	now := l.on[0].tick()
	if l.on[0].HGet(l.key, "limit") == "" { // the hash was deleted by hand
		return ""
	}
	all, _, _ := l.read()
	first, who := (*waiter)(nil), ""
	for attempt, e := range l.waiting {
		if e.alive > now && !l.waits(e) && (first == nil || e.number < first.number) &&
			(asking != "" && strings.HasPrefix(attempt, session+":") || !l.deaf(attempt)) {
			first, who = e, attempt
		}
	}
	if first == nil || first.n > l.limit-sum(all, now) {
		return ""
	}
	return who
}

// choose picks at random the number of permits that an actor wants. ways limits the ways to wait, see
// actor.enter.
func (l *permits) choose(rnd *rand.Rand, nested bool) (n int64, ways int) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	n, ways = 1, 8
	switch {
	case l.kind == 'w':
		if rnd.IntN(3) == 0 {
			n = engine.All
		}
	default:
		n = 1 + rnd.Int64N(l.limit+1)
		if nested || n > l.limit && rnd.IntN(4) != 0 { // the wait may last forever, so it has a limit
			ways = 5
		}
	}
	return n, ways
}

// lingering returns the keys of the lock if all leases in Redis belong to holds that were lost. These leases
// have ended by the clocks of their holders, but not yet in Redis.
func (l *permits) lingering() []string {
	l.on[0].tick()
	all, _, _ := l.read()
	for attempt := range all {
		if !l.lost[attempt] {
			return nil
		}
	}
	return []string{l.key, l.key + ":h"}
}
