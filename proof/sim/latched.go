package sim

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// latched has the rules of a latch. It is a model of the latch in memory, which executes the same requests as
// the server.
type latched struct {
	*lock
	state   counting               // state in Redis after the last request
	ran     map[string]bool        // ids of the requests that Redis remembers
	past    []moment               // all states of the count, in the order of time
	runs    map[string]*run        // all runs so far, by id
	members map[string]*member     // all parties that have joined, by id
	found   map[string][]finding   // results of the requests of a process, by its name
	tallies map[string]*tally      // tallies by process and call
	ever    map[string]bool        // ids of all requests that were executed
	awaited map[*awaiting]struct{} // calls of Wait
	joined  map[*joined]struct{}   // parties that consider their lease valid
	joining map[string]*joining    // calls of Join by process and party
	void    map[string]bool        // requests that came too late, by the arguments ID and NOT-AFTER
	revived bool                   // a request that was void ran after a step of the clock
}

// counting is the state of a latch in Redis.
type counting struct {
	run     string            // id of the run; "": there is none
	n, q    int64             // the count, and the number of parties that have not counted
	leases  map[string]leased // leases, by the name of the party
	counted map[string]bool   // ids of the parties that have counted
	ended   map[string]byte   // Z (the count was 0) or D (deleted), by id of the run
}

// A leased is the lease of a party.
type leased struct {
	till int64 // end of the lease by the server's clock in µs
	id   string
}

func (c counting) clone() counting {
	c.leases, c.counted, c.ended = maps.Clone(c.leases), maps.Clone(c.counted), maps.Clone(c.ended)
	return c
}

func (c counting) String() string {
	var parties []string
	for name, l := range c.leases {
		parties = append(parties, fmt.Sprintf("%s is %s until %d", name, short(l.id), l.till))
	}
	return fmt.Sprintf("%d in run %s, %d parties: %s; %d have counted",
		c.n, short(c.run), c.q, strings.Join(parties, "; "), len(c.counted))
}

// ends returns the time at which the first of the leases ends. It returns 0 if there are none.
func (c counting) ends() (least int64) {
	for _, p := range c.leases {
		if least == 0 || p.till < least {
			least = p.till
		}
	}
	return least
}

// A moment is a change of the count.
type moment struct {
	at  time.Time
	run string
	n   int64
}

// A run is one run of a latch.
type run struct {
	how  map[byte]bool // the ways in which the run has ended; there can be two if Redis forgot the first
	over time.Time     // end of the run; zero: it has not ended
}

// A member is a party of a run, as the server saw it.
type member struct {
	run      string
	from     string    // name of the process
	at       time.Time // time at which it joined
	returned bool      // Join has returned the party to its process
	replaced bool      // the party has replaced a dead one
	counted  bool
	died     bool // the lease has expired, or the party has left
}

// A finding is the result of a request of a process.
type finding struct {
	at   time.Time
	what string // look, count or death; for a join, the reply J, T, F or X
	run  string // id of the present run, for look and count
	name string // name of the party, for joins and death
	id   string // id of the party, for joins
}

// A tally compares the calls of a process with their effects.
type tally struct {
	yes     int // calls that have returned success
	unknown int // calls whose outcome the caller does not know
	under   int // calls that have not returned yet
	done    int // requests that took effect
}

func newLatched(l *lock) *latched {
	r := &latched{lock: l, ran: map[string]bool{}, void: map[string]bool{}, runs: map[string]*run{},
		members: map[string]*member{}, found: map[string][]finding{}, tallies: map[string]*tally{},
		ever:    map[string]bool{},
		awaited: map[*awaiting]struct{}{}, joined: map[*joined]struct{}{}, joining: map[string]*joining{}}
	r.state, _ = r.read()
	return r
}

// read returns the state of the latch in Redis, and the ids of the requests that Redis remembers.
func (l *latched) read() (st counting, ran map[string]bool) {
	s := l.on[0]
	s.tick()
	st, ran = counting{leases: map[string]leased{}, counted: map[string]bool{}, ended: map[string]byte{}},
		map[string]bool{}
	fields, _ := s.HKeys(l.key)
	for _, f := range fields {
		value := s.HGet(l.key, f)
		kind, rest, _ := strings.Cut(f, ":")
		first, last, _ := strings.Cut(value, " ")
		switch kind {
		case "r":
			st.run = value
		case "n":
			st.n = number(value)
		case "q":
			st.q = number(value)
		case "p":
			st.leases[rest] = leased{number(first), strings.TrimSuffix(last, " R")}
		case "c":
			st.counted[rest] = true
		case "e":
			st.ended[rest] = last[0]
		case "i":
			ran[rest] = true
		}
	}
	return st, ran
}

// less counts down by one.
func (c *counting) less() {
	if c.n--; c.n == 0 {
		c.finish('Z')
	}
}

func (c *counting) finish(how byte) {
	ended := c.ended
	ended[c.run] = how
	*c = counting{leases: map[string]leased{}, counted: map[string]bool{}, ended: ended}
}

// once reports whether a request that must take effect at most once may do so now. If so, it records the
// request.
func (l *latched) once(c *call, now int64) bool {
	id, late := c.argv[0], now > c.number(1)
	request := id + " " + c.argv[1]
	switch {
	case l.ran[id]:
		l.w.counts.Add("repeated")
		return false
	case late:
		l.w.counts.Add("too late")
		l.void[request] = true
		return false
	}
	l.ran[id] = true
	if l.void[request] {
		l.w.counts.Add("void requests revived")
		l.revived = true
	}
	return true
}

// after returns the state of the latch that a request should lead to.
func (l *latched) after(c *call, now int64) (st counting) {
	st = l.state.clone()
	switch id := c.argv[0]; c.name {
	case "set":
		if l.once(c, now) && st.run == "" {
			st.run, st.n = id, c.number(2)
		}
	case "count":
		if l.once(c, now) && st.run != "" {
			st.less()
		}
	case "delete":
		if l.once(c, now) && st.run != "" {
			st.finish('D')
		}
	case "join":
		l.join(c, &st, now)
	case "renew":
		if p := st.leases[c.argv[1]]; p.id == id && p.till > now {
			st.leases[c.argv[1]] = leased{now + c.number(2)*1000, id}
		}
	case "arrive":
		p := st.leases[c.argv[1]]
		if st.run == c.argv[2] && !st.counted[id] && p.id == id && p.till > now {
			delete(st.leases, c.argv[1])
			st.counted[id], st.q = true, max(st.q-1, 0)
			if m := l.members[id]; m != nil { // nil if the Join was void
				m.counted = true
			}
			l.w.counts.Add("parties counted")
			st.less()
		}
	case "leave":
		p := st.leases[c.argv[1]]
		mine := p.id == id
		if m := l.members[id]; mine && m != nil && !m.died { // nil if the Join was void
			l.w.counts.Add("parties died")
			m.died = true
		}
		if now <= c.number(2) {
			l.ran[id] = true
		}
		switch m := l.members[id]; {
		case !mine || p.till <= now:
		case c.argv[2] == "0":
			st.leases[c.argv[1]] = leased{now, id}
		case m != nil && m.replaced:
			l.w.counts.Add("canceled replacements")
			st.leases[c.argv[1]] = leased{now, id}
		default:
			delete(st.leases, c.argv[1])
			st.q = max(st.q-1, 0)
		}
	}
	return st
}

// join changes the state st by a request to join.
func (l *latched) join(c *call, st *counting, now int64) {
	id, name, from := c.argv[0], c.argv[2], c.from.Name
	p, any := st.leases[name]
	alive := leased{now + c.number(3)*1000, id}
	outcome := func(what string) {
		l.found[from] = append(l.found[from], finding{at: time.Now(), what: what, name: name, id: id})
	}
	switch {
	case p.id == id && p.till > now:
		st.leases[name] = alive
		outcome("J")
	case l.ran[id]:
		outcome("X")
	case now > c.number(1):
		l.w.counts.Add("too late")
	case any && p.till > now:
		outcome("T")
	case st.run == "" || !any && st.q >= st.n:
		outcome("F")
	default:
		l.ran[id], st.leases[name] = true, alive
		if l.w.counts.Add("parties"); any {
			l.w.counts.Add("parties replaced")
			st.q--
			l.members[p.id].died = true
		}
		st.q++
		l.members[id] = &member{run: st.run, from: from, at: time.Now(), replaced: any}
		outcome("J")
	}
}

func (l *latched) executed(c *call, now int64) {
	w, before := l.w, l.state
	want := l.after(c, now)
	after, _ := l.read()
	l.state = after
	same := want.run == after.run && want.n == after.n && want.q == after.q &&
		maps.Equal(want.counted, after.counted) && len(want.leases) == len(after.leases)
	for name, p := range want.leases {
		is := after.leases[name]
		same = same && is.id == p.id && max(is.till-p.till, p.till-is.till) < 5
	}
	if before.run != after.run && before.run != "" {
		same = same && want.ended[before.run] == after.ended[before.run]
	}
	if !same {
		w.fail("%s by %s made the latch %v, and not %v; it was %v",
			c.name, short(c.argv[0]), after, want, before)
	}
	w.log("%s: %s %s: %v", c.from.Name, c.name, short(c.argv[0]), after)
	l.note(c, before, now)
	l.believe(now)
}

// note records the results of a request.
func (l *latched) note(c *call, before counting, now int64) {
	w, from, at := l.w, c.from.Name, time.Now()
	first := !l.ever[c.argv[0]]
	switch c.name {
	case "look":
		if c.argv[0] == "" {
			l.found[from] = append(l.found[from], finding{at: at, what: "look", run: l.state.run})
		}
	case "count", "set", "delete":
		if !l.ran[c.argv[0]] {
			break // the request was void
		}
		l.ever[c.argv[0]] = true
		done := c.name == "count" || l.state.run != before.run
		if t := l.tally(from, c.name); first && done {
			if t.done++; t.done > t.yes+t.unknown+t.under {
				l.doubted("%s: %d calls to %s took effect, and it made %+v", from, t.done, c.name, *t)
			}
		}
		if c.name == "count" && first {
			l.found[from] = append(l.found[from], finding{at: at, what: "count", run: before.run})
		}
	}
	least := l.state.ends()
	for name, p := range l.state.leases {
		if m := l.members[p.id]; p.till <= now {
			if !m.died {
				w.counts.Add("parties died")
			}
			m.died = true
			if c.name == "look" && p.till == least {
				l.found[from] = append(l.found[from],
					finding{at: at, what: "death", run: l.state.run, name: name})
			}
		}
	}
	if old := l.runs[before.run]; old != nil && before.run != l.state.run {
		how := l.state.ended[before.run]
		old.over, old.how[how] = at, true
		w.counts.Add(map[byte]string{'Z': "runs at 0", 'D': "runs deleted"}[how])
	}
	l.mark()
}

// mark records a change of the count.
func (l *latched) mark() {
	st := l.state
	if n := len(l.past); n > 0 && l.past[n-1].run == st.run && l.past[n-1].n == st.n {
		return
	}
	l.past = append(l.past, moment{time.Now(), st.run, st.n})
	if st.run == "" {
		return
	}
	if r := l.runs[st.run]; r == nil {
		l.runs[st.run] = &run{how: map[byte]bool{}}
	} else {
		r.over = time.Time{} // old data may have brought the run back
	}
}

// doubted reports a broken promise, unless the server has forgotten data or carried out a request that had
// been void.
func (l *latched) doubted(format string, args ...any) {
	if l.on[0].forgot.IsZero() && !l.revived {
		l.w.fail(format, args...)
	}
}

func (l *latched) tally(process, what string) *tally {
	key := process + " " + what
	if l.tallies[key] == nil {
		l.tallies[key] = &tally{}
	}
	return l.tallies[key]
}

// was reports whether the latch was in a state that `so` accepts at the time since, or later.
func (l *latched) was(since time.Time, so func(moment) bool) bool {
	for i := len(l.past) - 1; i >= 0; i-- {
		if so(l.past[i]) {
			return true
		}
		if l.past[i].at.Before(since) {
			return false
		}
	}
	return so(moment{}) // the state before the first moment
}

// findings returns the findings of one sort that a process has had since a time.
func (l *latched) findings(p *process, since time.Time, what string) (all []finding) {
	from := l.found[p.name]
	for i := len(from) - 1; i >= 0 && !from[i].at.Before(since); i-- {
		if from[i].what == what {
			all = append(all, from[i])
		}
	}
	return all
}

func (l *latched) forgotten(*server) {
	before := l.state.run
	l.state, l.ran = l.read()
	for _, p := range l.state.leases {
		if m := l.members[p.id]; m != nil {
			m.counted = false
		}
	}
	if old := l.runs[before]; old != nil && before != l.state.run {
		old.over = time.Now()
	}
	l.mark()
}

// A latch has no holders, so nearly all of these rules do nothing.

func (*latched) entry(*held, *held)    {}
func (*latched) doubt(*held) string    { return "" }
func (*latched) busy() bool            { return false }
func (*latched) stuck() string         { return "" }
func (*latched) waits(*waiter) bool    { return false }
func (*latched) deleted()              {}
func (l *latched) lingering() []string { return []string{l.key} }
