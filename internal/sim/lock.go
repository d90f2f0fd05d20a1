package sim

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// lock is what the checkers know of one lock. Guarded by world.mu.
type lock struct {
	w    *world
	kind byte
	name string
	key  string
	on   []*server // the one that it is on; of a RedLock, all

	// What the servers did, told from the requests as they got them.
	owners  []string          // by server: the attempt that had it after the last request
	token   int64             // of the present grant; 0: free
	highest int64             // of all grants
	moved   time.Time         // when it was last granted
	grants  map[string]*grant // by attempt
	waiting map[string]*waiter
	asked   map[string]int64 // leases that attempts asked for, in milliseconds
	arrived int
	over    map[string]string // attempts that have left, or whose grant was noticed: nothing changes for them again

	// What the clients believe.
	believed map[*held]struct{}
	last     int64     // the highest token that anybody entered with whose hold was not void
	free     time.Time // when the last hold ended
}

// grant is what an attempt was granted.
type grant struct {
	token int64     // the first of its block; not known of a RedLock
	void  time.Time // when Redis forgot it, or an operator took it away: it is believed no longer than its lease; zero: neither
}

// waiter is an attempt in the queue.
type waiter struct {
	number int   // in the order of arrival
	alive  int64 // until then it is known to live, by the server's clock in microseconds
	ticket float64
}

// held is a hold that its holder believes in until it gives it up or is told.
type held struct {
	who     string
	ctx     context.Context
	hold    *rlock.Hold
	token   int64
	attempt string
	grant   *grant
	p       *process
	since   time.Time
	fixed   bool // it is not renewed
}

func (h *held) valid() bool { return h.hold.Err() == nil || h.ctx.Err() == nil }

func (h *held) void() bool { return !h.grant.void.IsZero() }

// ask is a call of Lock under way.
type ask struct {
	p     *process
	locks []*lock
	since time.Time
	ahead map[string]int // who entered meanwhile, how often
}

func (a *ask) of(l *lock) bool { return slices.Contains(a.locks, l) }

func newLock(w *world, p place) *lock {
	l := &lock{w: w, kind: p.kind, name: p.name, key: "lockline:" + string(p.kind) + ":{" + p.name + "}", on: w.servers[p.server : p.server+1],
		grants: map[string]*grant{}, waiting: map[string]*waiter{}, asked: map[string]int64{}, over: map[string]string{}, believed: map[*held]struct{}{}}
	if l.kind == 'q' {
		l.on = w.servers
	}
	l.owners = make([]string, len(l.on))
	return l
}

// grantOf is what is known of an attempt's grant.
func (l *lock) grantOf(attempt string) *grant {
	g := l.grants[attempt]
	if g == nil {
		g = &grant{}
		l.grants[attempt] = g
	}
	return g
}

// present is the grant on a server: 0 and "" if the lock is free there.
func (l *lock) present(s *server) (owner string, token int64) {
	s.tick()
	fields, err := s.HKeys(l.key)
	if err != nil {
		return "", 0
	}
	for _, f := range fields {
		if strings.Contains(f, ":") {
			owner = f
		}
	}
	return owner, number(s.HGet(l.key, "t"))
}

// endsFirst is the server where the lease ends first of an attempt that has the lock on all of them, if one does. What the last request
// found on a server is not asked: the lease may have run out since.
func (l *lock) endsFirst() (at int, ok bool) {
	var one string
	var least float64
	for i, s := range l.on {
		owner, _ := l.present(s)
		if owner == "" || i > 0 && owner != one {
			return 0, false
		}
		if left := float64(s.TTL(l.key)) / s.rate; i == 0 || left < least { // by one clock
			at, least = i, left
		}
		one = owner
	}
	return at, true
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// entry checks that whoever got in may be in. outer is the hold that it is nested in.
func (l *lock) entry(e, outer *held) {
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
		for a := range w.asking {
			if a.ahead[e.who]++; l.kind == 'f' && len(a.locks) == 1 && a.of(l) && w.well() && a.since.After(w.quiet) && !a.p.closing.Load() && a.ahead[e.who] > 4 {
				w.fail("%s overtook a waiter %d times", e.who, a.ahead[e.who])
			}
		}
	}
	for other := range l.believed {
		excused := other.attempt != e.attempt && (other.void() || e.void())
		if other.token != e.token && !excused && other.valid() {
			w.fail("%s entered %s with %d, and %s is inside with %d", e.who, l.name, e.token, other.who, other.token)
		}
	}
	w.kept = append(w.kept, e.hold)
	l.believed[e] = struct{}{}
	l.beliefs()
}

// granting checks an entry against what was granted.
func (l *lock) granting(e *held) {
	w := l.w
	if l.kind == 'q' {
		if slices.ContainsFunc(l.on, func(s *server) bool { // its first proposal was another
			owner, first := l.present(s)
			return owner == e.attempt && first != e.token && e.token-first >= protocol.Block
		}) {
			w.counts.Add("second rounds")
		}
		if s := l.stored(e.token); s == 0 {
			w.fail("%s has %d, which no server has stored", e.who, e.token)
		}
		return
	}
	first := e.grant.token
	if first == 0 {
		w.fail("%s: %s was never granted to %s", e.who, l.name, short(e.attempt))
	}
	if !e.void() && (e.token < first || e.token >= first+protocol.Block) { // old data may grant the same attempt again
		w.fail("%s: entered with %d, which is not in the block of its grant, %d", e.who, e.token, first)
	}
	for attempt, g := range l.grants {
		if g.token > first && e.token >= g.token {
			w.fail("%s: entered with %d of the grant %d, and %d was granted to %s", e.who, e.token, first, g.token, short(attempt))
		}
	}
	if e.token > first {
		w.counts.Add("handed in memory")
	}
	// Else a lease that it had unknown to its client ran out; or an old snapshot has it in the queue again.
	if l.over[e.attempt] == "" && (!e.void() || l.on[0].forgot.IsZero()) {
		l.over[e.attempt] = "it was entered"
	}
}

// stored is how many servers have stored a token at least as high.
func (l *lock) stored(token int64) (n int) {
	for _, s := range l.on {
		s.tick()
		if number(s.HGet(l.key+":t", "t")) >= token {
			n++
		}
	}
	return n
}

// beliefs checks that Redis holds the lock for whoever believes so: the stronger
// half of mutual exclusion, for it needs nobody else who got in.
func (l *lock) beliefs() {
	w := l.w
	for e := range l.believed {
		switch {
		case !e.valid():
			w.counts.Add("lost")
			w.log("%s: %s, %d is lost", e.who, l.name, e.token)
			if w.well() && e.since.After(w.quiet) && !e.fixed && !e.void() && !e.p.over() {
				w.fail("%s has lost %s, %d, and all is well", e.who, l.name, e.token)
			}
			delete(l.believed, e)
			l.free = time.Now()
		case e.void():
			if _, present := l.present(l.on[0]); l.kind != 'q' && present == e.grant.token {
				e.grant.void = time.Now() // the old data has it, too
			} else if since := time.Since(e.grant.void); since > longest {
				w.fail("%s believes to hold %s with %d, for %v since it was taken away", e.who, l.name, e.token, since)
			}
		case l.kind == 'q':
			n := 0
			for _, s := range l.on {
				if owner, _ := l.present(s); owner == e.attempt {
					n++
				}
			}
			if n <= len(l.on)/2 {
				w.fail("%s believes to hold %d until %v; it does so on %d of %d servers", e.who, e.token, e.hold.Deadline().Sub(w.start), n, len(l.on))
			}
			if l.stored(e.token) == 0 {
				w.fail("%s has %d, which no server has stored", e.who, e.token)
			}
		default:
			if _, present := l.present(l.on[0]); present != e.grant.token {
				w.fail("%s believes to hold %s with %d until %v; in Redis it is %d", e.who, l.name, e.token, e.hold.Deadline().Sub(w.start), present)
			}
		}
	}
	if len(l.believed) > 0 {
		l.free = time.Now()
	}
}

// progress checks that nobody waits for locks that nobody has. mu held.
func (w *world) progress() {
	for _, l := range w.locks {
		l.beliefs()
	}
	if !w.well() {
		return
	}
	gap := w.gap
	if w.deaf {
		gap = w.deafGap
	}
	for a := range w.asking {
		since, moved, busy := slices.MaxFunc([]time.Time{a.since, w.quiet}, time.Time.Compare), time.Time{}, false
		for _, l := range a.locks {
			busy = busy || len(l.believed) > 0
			since = slices.MaxFunc([]time.Time{since, l.free}, time.Time.Compare)
			moved = slices.MaxFunc([]time.Time{moved, l.moved}, time.Time.Compare)
		}
		if busy || a.p.over() {
			continue
		}
		idle := time.Since(since)
		if len(a.locks) == 1 { // it may be granted to some who have gone
			idle = min(idle, time.Since(moved))
		}
		if idle > gap || time.Since(since) > 6*gap {
			w.fail("for %v nobody has had the lock, and %s waits", time.Since(since), a.p.name)
		}
	}
}

// forgotten is told that a server came back without its data, or with old data.
func (l *lock) forgotten(s *server) {
	at := slices.Index(l.on, s)
	l.owners[at], _ = l.present(s)
	if l.kind == 'q' {
		return // the others remember
	}
	_, l.token = l.present(s)
	for _, g := range l.grants {
		if g.void.IsZero() {
			g.void = time.Now()
		}
	}
	// What had left, and what late copies must find, may be forgotten; who waits, too, or they wait again.
	l.over, l.waiting = map[string]string{}, map[string]*waiter{}
	queue := s.scores(l.key + ":q")
	alive := s.scores(l.key + ":a")
	var order []string
	for attempt := range queue {
		order = append(order, attempt)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Compare(queue[a], queue[b]) })
	for _, attempt := range order {
		l.arrived++
		l.waiting[attempt] = &waiter{l.arrived, int64(alive[attempt]), queue[attempt]}
	}
}

// deleted is what an operator does who deletes the lock by hand, with nobody's connection broken.
func (l *lock) deleted() {
	w := l.w
	for at, s := range l.on {
		s.tick()
		s.Del(l.key)
		if l.owners[at] != "" {
			_ = l.grantOf(l.owners[at]) // of a RedLock, it may not have a majority yet
		}
		l.owners[at] = ""
	}
	l.token = 0
	for _, g := range l.grants {
		if g.void.IsZero() {
			g.void = time.Now()
		}
	}
	w.counts.Add("deleted by hand")
	w.log("%s is deleted by hand", l.name)
}

// newHeld is what a Lock has brought, or a part of it.
func (a *actor) newHeld(ctx context.Context, hold *rlock.Hold, l *lock, fixed bool) *held {
	attempt := mutex.OwnerField((*mutex.Hold)(hold))
	return &held{who: a.name, ctx: ctx, hold: hold, token: hold.Token(), attempt: attempt, grant: l.grantOf(attempt), p: a.p, since: time.Now(), fixed: fixed}
}

func short(attempt string) string {
	at := max(4, strings.IndexByte(attempt, ':'))
	return attempt[:min(4, len(attempt))] + attempt[min(at, len(attempt)):]
}
