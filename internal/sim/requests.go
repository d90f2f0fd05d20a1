package sim

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/internal/simnet"
	"github.com/lockline/lockline/internal/testlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// scripts are the names of all scripts by their digests.
var scripts = func() map[string]string {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // is never used
	defer rdb.Close()
	s, err := rlock.NewSession(rdb)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	all := map[string]string{}
	for _, m := range []*rlock.Mutex{rlock.New(s, "x"), fairlock.New(s, "x"), multilock.NewRedLock("x", s)} {
		for digest, name := range testlock.Scripts(m) {
			all[digest] = name
		}
	}
	return all
}()

// call is one script call.
type call struct {
	from   *simnet.Host
	server *server
	name   string // of the script
	argv   []string
}

func (c *call) number(i int) int64 { return number(c.argv[i]) }

// served compares what a server made of a request with what it should have.
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
		if err != nil || !s.known[digest] { // else NOSCRIPT
			continue
		}
		keys, argv := c[3:3+n], c[3+n:]
		at := 0
		for _, key := range keys {
			i := slices.IndexFunc(w.locks, func(l *lock) bool { return l.key == key })
			if i < 0 {
				if strings.HasPrefix(key, "lockline:t:") && strings.HasSuffix(key, "}") && scripts[digest] == "lock" {
					w.counts.Add("stood in line")
				}
				continue
			}
			one := &call{from, s, scripts[digest], argv}
			switch one.name {
			case "":
				w.fail("an unknown script")
			case "lock several":
				one.name = "lock"
				if at == 1 {
					w.counts.Add("several by one request")
				}
			case "release several":
				one.name = "release"
				if at > 0 {
					one.argv = argv[6+4*(at-1):]
				}
			}
			w.locks[i].executed(one, now)
			at++
		}
	}
}

// executed is told of a script call that a server has executed, just now.
func (l *lock) executed(c *call, now int64) {
	w := l.w
	at := slices.Index(l.on, c.server)
	owner, token := l.present(c.server)
	before := l.owners[at]
	l.owners[at] = owner
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
	here := asking
	if l.kind == 'q' {
		here += " on " + strconv.Itoa(at) // a member may learn of the end before another has granted
	}
	if c.name == "release" {
		l.over[here] = "it has left"
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
	} else if owner != "" && owner == asking && before != owner && l.over[here] != "" && c.server.forgot.IsZero() {
		w.fail("%s is granted by server %d, but %s", short(owner), c.server.number, l.over[here])
	}
	if owner != "" {
		w.log("%s %d: %s %s %s: %s has it, %d; %d wait", c.from.Name, c.server.number, c.name, l.name, short(asking), short(owner), token, len(queue))
	} else {
		w.log("%s %d: %s %s %s: free; %d wait", c.from.Name, c.server.number, c.name, l.name, short(asking), len(queue))
	}
	for attempt, e := range l.waiting {
		if _, queued := queue[attempt]; queued {
			continue
		}
		if e.alive > now {
			w.fail("%s was dropped from the queue, and is known to live for another %d us", short(attempt), e.alive-now)
		}
		w.counts.Add("dropped")
		delete(l.waiting, attempt)
	}
	l.beliefs()
}

// queued checks what a request made of the queue.
func (l *lock) queued(c *call, queue map[string]float64, now int64) {
	w := l.w
	switch c.name {
	case "lock":
		asking := c.argv[0]
		ticket, queued := queue[asking]
		e := l.waiting[asking]
		void := now > c.number(2)
		behind := c.argv[8]
		place := l.waiting[behind]
		if _, still := queue[behind]; still || !queued || place != nil && place.ticket != ticket {
			place = nil
		}
		switch {
		case queued && e == nil && place != nil:
			if l.over[asking] != "" || void {
				w.fail("%s takes a place in the queue: it is too late (%v), %s", short(asking), void, l.over[asking])
			}
			for other, o := range l.waiting {
				if o.number > place.number && o.alive > now {
					w.fail("%s takes the place of %s and passes %s", short(asking), short(behind), short(other))
				}
			}
			w.counts.Add("places taken over")
			l.over[behind] = "another one has its place"
			delete(l.waiting, behind)
			l.waiting[asking] = &waiter{place.number, now + c.number(5)*1000, ticket}
		case queued && (e == nil || e.ticket != ticket):
			if l.over[asking] != "" || void {
				w.fail("%s stands in the queue: it is too late (%v), %s", short(asking), void, l.over[asking])
			}
			if e != nil && e.alive > now {
				w.fail("%s lost its place", short(asking))
			}
			l.arrived++
			l.waiting[asking] = &waiter{l.arrived, now + c.number(5)*1000, ticket}
		case queued && !void:
			e.alive = max(e.alive, now+c.number(5)*1000)
		}
	case "release":
		if _, queued := queue[c.argv[0]]; queued {
			w.fail("%s is released and stands in the queue", short(c.argv[0]))
		}
	case "heartbeat":
		for _, attempt := range c.argv[4:] {
			_, queued := queue[attempt] // or it comes too late, and revives nobody
			if e := l.waiting[attempt]; e != nil && queued {
				e.alive = now + c.number(1)*1000
			} else if queued {
				w.fail("a heartbeat put %s into the queue", short(attempt))
			}
		}
	}
}

// granted checks that it was owner's turn.
func (l *lock) granted(owner string, token, now int64) {
	w := l.w
	if highest := max(l.highest, l.last); token <= highest {
		w.fail("%s is granted %s with %d after %d", short(owner), l.name, token, highest)
	}
	if why := l.over[owner]; why != "" {
		w.fail("%s is granted %s with %d, but %s", short(owner), l.name, token, why)
	}
	if lease := l.on[0].TTL(l.key); lease > time.Duration(l.asked[owner]+1)*time.Millisecond {
		w.fail("%s is granted %s for %v, and asked for %d ms", short(owner), l.name, lease, l.asked[owner])
	}
	l.highest, l.moved = token, time.Now()
	g := l.grantOf(owner)
	g.token = token
	if forgot := l.on[0].forgot; l.kind != 'q' && !forgot.IsZero() && time.Since(forgot) < liveness && g.void.IsZero() {
		g.void = time.Now() // its session counts from a heartbeat that was forgotten
	}
	mine := l.waiting[owner]
	delete(l.waiting, owner)
	for attempt, e := range l.waiting {
		if e.alive > now && (mine == nil || e.number < mine.number) && l.deaf(attempt) {
			w.counts.Add("passed over")
		} else if e.alive > now && (mine == nil || e.number < mine.number) {
			w.fail("%s is granted %s with %d before its turn: %s came earlier", short(owner), l.name, token, short(attempt))
		}
	}
}

// deaf: the server has seen the attempt's session listen, and nobody listens to its channel.
func (l *lock) deaf(attempt string) bool {
	s := l.on[0]
	session, _, _ := strings.Cut(attempt, ":")
	channel := "lockline:s:" + session
	entry := strings.Fields(s.HGet(l.key+":d", attempt))
	return s.PubSubNumSub(channel)[channel] == 0 && len(entry) > 2 && strings.HasSuffix(entry[2], "+")
}

// commands reads RESP arrays of bulk strings, as clients send them.
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
