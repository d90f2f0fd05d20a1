package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// lock is what the checkers know of one lock. Guarded by world.mu.
type lock struct {
	w     *world
	rules rules
	kind  byte
	name  string
	key   string
	// The key of the metadata of permits, and of a lock of package redisson. Other locks have everything in
	// one hash.
	memory  string
	initial int64     // how many permits there are at first; 0: it is not about permits
	on      []*server // the one that it is on; of a RedLock, all

	// What the servers did, told from the requests as they got them.
	owners []string        // by server: the attempt that held the lock after the last request there
	forgot map[string]bool // attempts that one server has forgotten (forgetOne)
	// When forgetOne has last made a server forget the lock.
	forgotAt time.Time
	token    int64             // of the present grant; 0: free
	highest  int64             // of all grants
	stayed   string            // the owner field that has stayed taken last
	stays    time.Time         // until when it is taken though its last hold of that kind has ended
	left     time.Time         // when that hold ended
	excused  bool              // something else has freed it
	moved    time.Time         // when it was last granted
	known    int64             // the last token that Redis still knew after it last lost data; or 0
	wiped    time.Time         // when it was last deleted by hand
	evicted  time.Time         // when its queue, or the hash of the waiters, was last deleted alone
	fell     time.Time         // when tokens were last granted again, or lower ones
	grants   map[string]*grant // by attempt
	waiting  map[string]*waiter
	asked    map[string]int64 // leases that attempts asked for, in milliseconds
	arrived  int
	// Attempts that have left, or whose grant was noticed: nothing changes for them again.
	over map[string]ended

	// What the clients believe.
	considered map[*held]struct{}
	lost       map[string]bool        // attempts whose holds were considered valid, and then lost
	entered    map[*process]time.Time // when any goroutine of it last entered
	last       int64                  // the highest token that anybody entered with whose hold was not void
	free       time.Time              // when the last hold ended that somebody may have had to wait for
	first      string                 // the attempt that waits though it could be served
	stuck      time.Time              // since when it does
	blind      time.Time              // nobody need know before that time that the lock is free
}

// rules are what locks of a kind promise, and how Redis has them. world.mu is held while they are asked.
type rules interface {
	// executed takes in a script call that a server has just executed.
	executed(c *call, now int64)
	// entry checks that the holder of e, which got in, may be in. outer is the hold that e is nested in.
	entry(e, outer *held)
	// doubt is why Redis does not have the lock for one that believes so; "" if it has.
	doubt(e *held) string
	// busy reports whether a call may have to wait for what the holders have.
	busy() bool
	// stuck is the attempt that waits though Redis could serve it; "" if there is none.
	stuck() string
	// waits: the waiter's turn cannot come at present.
	waits(e *waiter) bool
	// forgotten is told that a server came back without its data, or with old data.
	forgotten(s *server)
	// lingering are keys that may still be there when all sessions have closed.
	lingering() []string
	// deleted is told that the lock was deleted by hand.
	deleted()
	// setBack takes in that the clock of a server was set back. A lease that has ended may continue then.
	setBack(s *server)
	// due checks what must have happened by now. It is asked while all is well.
	due()
}

// grant is what an attempt was granted.
type grant struct {
	token int64 // the first of its block; not known of a RedLock
	limit int64 // of permits: how many there were
	// When Redis forgot it, or an operator took it away: it is considered held no longer than its lease;
	// zero: neither.
	void time.Time
}

// ended is why and when an attempt was over.
type ended struct {
	why string
	at  time.Time
}

func (l *lock) end(attempt, why string) { l.over[attempt] = ended{why, time.Now()} }

// waiter is an attempt in the queue.
type waiter struct {
	number int   // in the order of arrival
	alive  int64 // until then it is known to live, by the server's clock in microseconds
	ticket float64
	n      int64 // permits
}

// claim is what a holder believes in: a hold, or a leadership.
type claim interface {
	Err() error
	Deadline() time.Time
}

// held is a hold that its holder believes in until it gives it up or is told.
type held struct {
	who     string
	ctx     context.Context
	hold    claim
	n       int64 // permits
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
	n     int64 // permits
	since time.Time
	ahead map[string]int // who entered meanwhile, how often
}

func (a *ask) of(l *lock) bool { return slices.Contains(a.locks, l) }

func newLock(w *world, p place) *lock {
	l := &lock{w: w, kind: p.kind, name: p.name, key: "lockline:" + string(p.kind) + ":{" + p.name + "}",
		on:     w.servers[p.server : p.server+1],
		grants: map[string]*grant{}, waiting: map[string]*waiter{}, asked: map[string]int64{},
		over: map[string]ended{}, forgot: map[string]bool{}, considered: map[*held]struct{}{},
		lost: map[string]bool{}, entered: map[*process]time.Time{}}
	switch l.kind {
	case 'q':
		l.on = w.servers
	case 'j':
		l.key, l.memory = l.name, "lockline_lock_memory:{"+l.name+"}"
	}
	l.owners = make([]string, len(l.on))
	switch l.kind {
	case 'p':
		l.initial = 1 + w.rand(1<<35).Int64N(4)
	case 'w':
		l.initial = engine.All
	}
	switch {
	case l.initial != 0:
		l.rules = &permits{lock: l, limit: l.initial}
	case l.kind == 'l':
		l.rules = newLatched(l)
	case w.elects:
		l.rules = newElected(l)
	case l.kind == 'q':
		l.rules = &majority{lock: l, taken: map[string]time.Time{}}
	default:
		l.rules = exclusive{l}
	}
	return l
}

// due: of most locks, progress asks enough.
func (*lock) due() {}

func (*lock) setBack(*server) {}

// grantOf is what is known of an attempt's grant.
func (l *lock) grantOf(attempt string) *grant {
	g := l.grants[attempt]
	if g == nil {
		g = &grant{}
		l.grants[attempt] = g
	}
	return g
}

// present returns the owner and the token of the grant on a server: "" and 0 if the lock is free there.
func (l *lock) present(s *server) (owner string, token int64) {
	owner, token, _ = l.lease(s)
	return owner, token
}

// lease returns the results of present, and the rest of the lease by the server's clock. A lease may have
// ended although its owner is still in the hash.
func (l *lock) lease(s *server) (owner string, token int64, left time.Duration) {
	now := s.tick()
	if l.kind == 'j' {
		fields, _ := s.HKeys(l.key)
		for _, f := range fields {
			if strings.Contains(f, ":") {
				owner = f
			}
		}
		return owner, number(s.HGet(l.key, "t")), s.TTL(l.key)
	}
	ends := number(s.HGet(l.key, "ends"))
	owner = s.HGet(l.key, "owner")
	if owner == "" || ends <= now {
		return "", 0, 0
	}
	if s.HGet(l.key, "lingers") != "" {
		l.w.counts.Add("seen while its session may keep it")
	}
	return owner, number(s.HGet(l.key, "token")), time.Duration(ends-now) * time.Microsecond
}

// lastKnown returns the last token that a server knows.
func (l *lock) lastKnown(s *server) int64 {
	if l.memory != "" {
		return number(s.HGet(l.memory, "t"))
	}
	return max(number(s.HGet(l.key, "token")), number(s.HGet(l.key, "floor")))
}

// queueEntry is a server's entry of an attempt that waits.
type queueEntry struct {
	alive int64 // until then it is known to live, by the server's clock in microseconds
	n     int64 // permits, or how many goroutines wait with it
	seen  bool  // its session had a subscription at the server
}

// entryOf reads the entry of an attempt on a server.
func (l *lock) entryOf(s *server, attempt string) (e queueEntry) {
	words := strings.Fields(s.HGet(l.key+":w", attempt))
	if len(words) > 3 { // how long it is known to live, how many, the lease, and the nonce
		e.alive, e.n, e.seen = number(words[0]), number(words[1]), strings.HasSuffix(words[3], "+")
	}
	return e
}

// stored checks that a server keeps the keys of a lock for long enough, and not forever. The hash, with its
// tokens and tombstones, must outlive the lease, and each key must live for as long as the hash says. It also
// checks that the hash mentions a queue.
func (l *lock) stored(s *server) {
	w, now := l.w, s.tick()
	if l.memory != "" {
		return
	}
	for _, key := range []string{l.key, l.key + ":q", l.key + ":w", l.key + ":h"} {
		if s.Exists(key) && s.TTL(key) == 0 {
			w.fail("server %d keeps %s forever", s.number, key)
		}
	}
	const slack = 1000 // Redis counts in milliseconds
	till := now + s.TTL(l.key).Microseconds() + slack
	if owner, _, left := l.lease(s); owner != "" && till < now+(left+protocol.Retention).Microseconds() {
		w.fail("server %d forgets %s in %v, and its lease ends in %v", s.number, l.name, s.TTL(l.key), left)
	}
	if lives := number(s.HGet(l.key, "lives")); lives > till {
		w.fail("server %d forgets %s %d us before the time that it notes", s.number, l.name, lives-till)
	}
	queued := s.HGet(l.key, "queued")
	if s.Exists(l.key) && s.Exists(l.key+":q") && queued == "" {
		w.fail("%s has a queue on server %d, which its hash does not mention", l.name, s.number)
	}
	for _, key := range []string{l.key + ":q", l.key + ":w"} {
		if left := s.TTL(key).Microseconds() + slack; s.Exists(key) && number(queued) > now+left {
			w.fail("server %d forgets %s %d us before the time that it notes", s.number, key,
				number(queued)-now-left)
		}
	}
}

// free reports whether a key is the hash of a lock that nobody holds or waits for, on this server.
func (s *server) free(key string) bool {
	now := s.tick()
	return s.Type(key) == "hash" && s.HGet(key, "lives") != "" && number(s.HGet(key, "queued")) <= now &&
		(s.HGet(key, "owner") == "" || number(s.HGet(key, "ends")) <= now)
}

// endsFirst is the server where the lease ends first of an attempt that has the lock on all of them, if one
// does. What the last request found on a server is not asked: the lease may have run out since.
func (l *lock) endsFirst() (at int, ok bool) {
	var one string
	var least float64
	for i, s := range l.on {
		owner, _, lease := l.lease(s)
		again := l.forgot[owner] // by a late copy of its request: its session does not know the token
		owner = holderOf(owner)
		if again || owner == "" || i > 0 && owner != one {
			return 0, false
		}
		if left := float64(lease) / s.rate; i == 0 || left < least { // by one clock
			at, least = i, left
		}
		one = owner
	}
	for e := range l.considered { // a server may not have said yet that it has it there
		if e.attempt == one && !l.onAll(e.hold) {
			return 0, false
		}
		for _, under := range []map[*ask]struct{}{l.w.asking, l.w.trying} {
			for a := range under {
				if a.p == e.p && e.attempt == one { // it may be about to nest
					return 0, false
				}
			}
		}
		ok = ok || e.attempt == one
	}
	return at, ok
}

// onAll reports whether a hold is on all servers, as far as it knows.
func (l *lock) onAll(hold claim) bool {
	one, ok := hold.(*rlock.Hold)
	if !ok {
		return true
	}
	of, ok := (*handle.Hold)(one).Of().(interface{ Servers() int })
	return !ok || of.Servers() == len(l.on)
}

func number(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// granting checks an entry against what was granted.
func (l *lock) granting(e *held) {
	w := l.w
	first := e.grant.token
	if first == 0 {
		w.fail("%s: %s was never granted to %s", e.who, l.name, short(e.attempt))
	}
	// Old data may grant the same attempt again.
	if !e.void() && (e.token < first || e.token >= first+protocol.Block) {
		w.fail("%s: entered with %d, which is not in the block of its grant, %d", e.who, e.token, first)
	}
	for attempt, g := range l.grants {
		// Old data may grant the same attempt again, and its session learns that by its next renewal.
		if g.token > first && e.token >= g.token && (g.void.IsZero() || !g.void.Before(l.fell)) &&
			!(e.void() && l.fellLately()) {
			w.fail("%s: entered with %d of the grant %d, and %d was granted to %s",
				e.who, e.token, first, g.token, short(attempt))
		}
	}
	if e.token > first {
		w.counts.Add("handed in memory")
	}
	// Else a lease that it had unknown to its client ran out; or an old snapshot has it in the queue again.
	if l.over[e.attempt].why == "" && (!e.void() || l.on[0].forgot.IsZero()) {
		l.end(e.attempt, wasEntered)
	}
}

const wasEntered = "it was entered"

// beliefs checks that Redis holds the lock for each holder that believes so. This is the
// stronger half of mutual exclusion, as it needs no other holder that got in.
func (l *lock) beliefs() {
	w := l.w
	for e := range l.considered {
		switch {
		case !e.valid():
			w.counts.Add("lost")
			w.log("%s: %s, %d is lost", e.who, l.name, e.token)
			if w.well() && e.since.After(w.quiet) && !e.fixed && !e.void() && !e.p.over() {
				w.fail("%s has lost %s, %d, and all is well", e.who, l.name, e.token)
			}
			delete(l.considered, e)
			l.lost[e.attempt] = true
			l.free = time.Now()
		case e.void():
			if l.rules.doubt(e) == "" {
				e.grant.void = time.Now() // the old data has it, too, or a majority of the servers
			} else if since := time.Since(e.grant.void); since > longest+w.setMost() {
				// A holder may learn from Redis how long its lease has become.
				w.fail("%s believes to hold %s with %d, for %v since it was taken away",
					e.who, l.name, e.token, since)
			}
		default:
			if why := l.rules.doubt(e); why != "" {
				w.fail("%s believes to hold %s with %d until %v; %s",
					e.who, l.name, e.token, e.hold.Deadline().Sub(w.start), why)
			}
		}
	}
	if l.rules.busy() {
		l.free = time.Now()
	}
}

// lastMoment has beliefs checked just before the hold's deadline: a lease that ends too early in Redis is
// over by then, however little too early.
func (l *lock) lastMoment(e *held) {
	const before = time.Microsecond
	time.AfterFunc(time.Until(e.hold.Deadline())-before, func() {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if _, ok := l.considered[e]; !ok {
			return
		}
		if time.Until(e.hold.Deadline()) > before { // renewed
			l.lastMoment(e)
			return
		}
		l.w.counts.Add("considered held to the end")
		l.beliefs()
	})
}

// progress checks that no call waits for locks that have no holder. mu held.
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
	for _, l := range w.locks {
		l.rules.due()
		if who := l.rules.stuck(); who != l.first || time.Now().Before(l.blind) {
			l.first, l.stuck = who, time.Now()
		} else if who != "" && time.Since(l.stuck) > gap {
			w.fail("for %v %s has been the first in line for %s, and enough of it is free",
				time.Since(l.stuck), short(who), l.name)
		}
	}
	for a := range w.asking {
		since, moved, busy := slices.MaxFunc([]time.Time{a.since, w.quiet}, time.Time.Compare),
			time.Time{}, false
		for _, l := range a.locks {
			busy = busy || l.rules.busy() || l.rules.waits(&waiter{n: a.n}) || time.Now().Before(l.blind)
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
			w.fail("for %v the lock was free, and %s waits", time.Since(since), a.p.name)
		}
	}
}

// overtaking checks that no goroutine overtakes a waiting call more often than most.
func (l *lock) overtaking(e *held, most int) {
	w := l.w
	if time.Now().Before(l.blind) {
		return
	}
	for a := range w.asking {
		if l.rules.waits(&waiter{n: a.n}) {
			continue
		}
		if a.ahead[e.who]++; len(a.locks) == 1 && a.of(l) && w.well() && a.since.After(w.quiet) &&
			!a.p.closing.Load() && a.ahead[e.who] > most {
			w.fail("%s overtook a waiter %d times", e.who, a.ahead[e.who])
		}
	}
}

// voided is told that Redis has forgotten the grants there were.
func (l *lock) voided() {
	for _, g := range l.grants {
		if g.void.IsZero() {
			g.void = time.Now()
		}
	}
}

// requeued takes the queue as it is on a server that came back with other data.
func (l *lock) requeued(s *server) {
	// What had left, and what late copies must find, may be forgotten; who waits, too, or they wait again.
	l.over, l.waiting = map[string]ended{}, map[string]*waiter{}
	l.known = l.lastKnown(s)
	queue := s.scores(l.key + ":q")
	var order []string
	for attempt := range queue {
		order = append(order, attempt)
	}
	slices.SortFunc(order, func(a, b string) int { return cmp.Compare(queue[a], queue[b]) })
	for _, attempt := range order {
		l.arrived++
		e := l.entryOf(s, attempt)
		l.waiting[attempt] = &waiter{l.arrived, e.alive, queue[attempt], e.n}
	}
}

// deleted deletes the lock by hand, as an operator may, and breaks no connection.
func (l *lock) deleted() {
	for _, s := range l.on {
		s.tick()
		s.Del(l.key)
	}
	l.wiped = time.Now()
	if l.memory == "" { // tokens and tombstones were in the same hash
		l.known, l.over = 0, map[string]ended{}
	}
	l.rules.deleted()
	l.voided()
	l.w.counts.Add("deleted by hand")
	l.w.log("%s is deleted by hand", l.name)
}

// dequeued deletes the queue of the lock on a server by hand, or the hash of the waiters, and not the lock's
// hash. No second attempt gets the lock by that. Waiters have lost their places, or are known to live no
// more.
//
//	They are in the queue again as soon as they send their requests again, which they do before their
//
// time to live ends.
func (l *lock) dequeued(s *server, what string) {
	s.tick()
	if !s.Del(l.key + what) {
		return
	}
	l.evicted = time.Now()
	l.blind = later(l.blind, time.Now().Add(heartbeat))
	for attempt, e := range l.waiting {
		if what == ":q" {
			delete(l.waiting, attempt)
		} else {
			e.alive = 0
		}
	}
	l.w.counts.Add("deleted by hand: " + what)
	l.w.log("%s%s is deleted by hand on server %d", l.name, what, s.number)
}

// newHeld is what a Lock has brought, or a part of it.
func (a *actor) newHeld(ctx context.Context, hold *rlock.Hold, l *lock, h way) *held {
	attempt := engine.OwnerField((*handle.Hold)(hold))
	grant := attempt
	if l.kind == 'q' { // which knows holders by their processes
		grant = fmt.Sprint(attempt, " ", hold.Token())
	}
	return &held{who: a.name, ctx: ctx, hold: hold, n: h.n, token: hold.Token(), attempt: attempt,
		grant: l.grantOf(grant), p: a.p, since: time.Now(), fixed: h.lease != 0}
}

func short(attempt string) string {
	at := max(4, strings.IndexByte(attempt, ':'))
	return attempt[:min(4, len(attempt))] + attempt[min(at, len(attempt)):]
}
