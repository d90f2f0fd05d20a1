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

// A lock has all facts that the checkers know about one lock. It is guarded by world.mu.
type lock struct {
	w     *world
	rules rules
	kind  byte
	name  string
	key   string

	memory  string    // key of the metadata of a lock of package redisson; "": everything is in one hash
	initial int64     // number of permits at first; 0: the lock has no permits
	on      []*server // servers of the lock: all if it is a RedLock, otherwise one

	// The fields below describe the lock on the servers, after the requests that the servers have executed.
	owners   []string           // attempts that held the lock after the last request to each server
	forgot   map[string]bool    // attempts that one server has forgotten (forgetOne)
	forgotAt time.Time          // time of the last forgetOne
	token    int64              // token of the present grant; 0: the lock is free
	highest  int64              // highest token of all grants
	stayed   string             // owner field with which the lock last stayed taken (HoldAtLeast)
	stays    time.Time          // time until which the lock stays taken with this owner field
	left     time.Time          // time at which the hold with HoldAtLeast ended
	excused  bool               // since left, something else has freed the lock
	moved    time.Time          // time of the last grant
	known    int64              // last token that Redis still knew after its last loss of data, or 0
	wiped    time.Time          // time at which the lock was last deleted by hand
	evicted  time.Time          // time at which the queue or the hash of the waiters was last deleted
	fell     time.Time          // time at which tokens last became lower than before, see fallen
	grants   map[string]*grant  // grants of Redis, by attempt
	waiting  map[string]*waiter // attempts in the queue
	asked    map[string]int64   // leases that attempts have requested, in milliseconds
	arrived  int                // number of attempts that have come into the queue
	over     map[string]ended   // attempts that Redis must not grant again

	// The fields below describe the lock as the clients see it.
	considered map[*held]struct{}     // holds that their holders consider valid
	lost       map[string]bool        // attempts with holds that were considered valid and then lost
	entered    map[*process]time.Time // time of the last entry of a goroutine of a process
	last       int64                  // highest token of an entry whose hold was not void
	free       time.Time              // end of the last hold for which somebody may have had to wait
	first      string                 // attempt that waits although Redis could serve it; "": there is none
	stuck      time.Time              // time since which first has its value
	blind      time.Time              // time until which nobody need notice that the lock is free
}

// rules has the promises of a kind of lock, and reads its keys. The caller of each method must hold world.mu.
type rules interface {
	// executed is called after a server has executed a script.
	executed(c *call, now int64)
	// entry checks a new hold. outer is the hold in which e is nested, or nil.
	entry(e, outer *held)
	// doubt returns "" if Redis has the lock for a hold. Otherwise, it returns a text about the state in
	// Redis.
	doubt(e *held) string
	// busy reports whether a call may have to wait for the present holders.
	busy() bool
	// stuck returns an attempt that waits although Redis could serve it, or "" if there is none.
	stuck() string
	// waits reports whether the waiter could not be served at present even if the lock had no holder.
	waits(e *waiter) bool
	// forgotten is called when a server has come back without its data, or with old data.
	forgotten(s *server)
	// lingering returns keys that may still exist when all sessions have closed.
	lingering() []string
	// deleted is called when the lock was deleted by hand.
	deleted()
	// setBack is called when the clock of a server was set back, so that a lease that has ended may continue.
	setBack(s *server)
	// due checks that no event is late. It is called when there have been no faults for a while.
	due()
}

// A grant is a grant of the lock, or of permits, to an attempt.
type grant struct {
	token int64 // first token of the block of the grant; 0 for a RedLock
	limit int64 // limit of the lock at the time of the grant
	at    time.Time

	// void is the time at which Redis forgot the grant, or an operator took it away. The holder may consider
	// the grant valid for one more lease at most. Zero means that the grant is not void.
	void time.Time
}

// lost notes that Redis has forgotten the grant, or that an operator took it away. If the tombstone of the
// attempt is forgotten, too, the attempt can be granted the lock again.
func (g *grant) lost() {
	if g.void.IsZero() || g.void.Before(g.at) {
		g.void = time.Now()
	}
}

// An ended has the reason and the time of the end of an attempt.
type ended struct {
	why string
	at  time.Time
}

func (l *lock) end(attempt, why string) { l.over[attempt] = ended{why, time.Now()} }

// A waiter is an attempt in the queue.
type waiter struct {
	number int     // grows in the order of arrival
	alive  int64   // time until which the attempt counts as alive, by the server's clock in µs
	ticket float64 // score in the queue
	n      int64   // number of permits that the attempt wants
}

// A claim is a hold or a leadership.
type claim interface {
	Err() error
	Deadline() time.Time
}

// A held is a hold, as its holder sees it.
type held struct {
	who     string
	ctx     context.Context
	hold    claim
	n       int64 // number of permits
	token   int64
	attempt string
	grant   *grant
	p       *process
	since   time.Time
	fixed   bool // the lease is not renewed
}

func (h *held) valid() bool { return h.hold.Err() == nil || h.ctx.Err() == nil }

func (h *held) void() bool { return !h.grant.void.IsZero() }

// A lockCall is a call of Lock or TryLock that has not returned yet.
type lockCall struct {
	p     *process
	locks []*lock
	n     int64 // number of permits
	since time.Time
	ahead map[string]int // number of entries since the call began, by goroutine
}

func (a *lockCall) of(l *lock) bool { return slices.Contains(a.locks, l) }

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

// due checks nothing, because the checks of progress are enough for most kinds of locks.
func (*lock) due() {}

func (*lock) setBack(*server) {}

// grantOf returns the grant of an attempt. If the attempt has no grant, grantOf makes one.
func (l *lock) grantOf(attempt string) *grant {
	g := l.grants[attempt]
	if g == nil {
		g = &grant{}
		l.grants[attempt] = g
	}
	return g
}

// present returns the owner and the token of the grant on a server. It returns "" and 0 if the lock is free
// there.
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

// A queueEntry is the entry of a waiting attempt on a server.
type queueEntry struct {
	alive int64 // time until which the attempt counts as alive, by the server's clock in µs
	n     int64 // number of permits that the attempt wants, or of goroutines behind the attempt
	seen  bool  // the session had a subscription at the server
}

// entryOf returns the entry of an attempt on a server.
func (l *lock) entryOf(s *server, attempt string) (e queueEntry) {
	words := strings.Fields(s.HGet(l.key+":w", attempt))
	if len(words) > 3 { // words are ALIVE SIZE LEASE NONCE, see queue.lua
		e.alive, e.n, e.seen = number(words[0]), number(words[1]), strings.HasSuffix(words[3], "+")
	}
	return e
}

// stored checks that a server keeps the keys of a lock for long enough, and not forever. The hash, with its
// tokens and tombstones, must outlive the lease, and each key must live for as long as the hash says. If
// there is a queue, the hash must say so.
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

// free reports whether a key on this server is the hash of a lock without holders and waiters.
func (s *server) free(key string) bool {
	now := s.tick()
	return s.Type(key) == "hash" && s.HGet(key, "lives") != "" && number(s.HGet(key, "queued")) <= now &&
		(s.HGet(key, "owner") == "" || number(s.HGet(key, "ends")) <= now)
}

// endsFirst returns the index of the server where the lease of a RedLock ends first. ok is false unless one
// process has the lock on all servers, and its session knows this. ok is also false if a call of this process
// may be about to nest in the hold. endsFirst reads the keys, because a lease may have ended since the last
// request.
func (l *lock) endsFirst() (at int, ok bool) {
	var one string
	var least float64
	for i, s := range l.on {
		owner, _, lease := l.lease(s)
		again := l.forgot[owner] // the server granted it to a stale copy, so no session knows it
		owner = holderOf(owner)
		if again || owner == "" || i > 0 && owner != one {
			return 0, false
		}
		if left := float64(lease) / s.rate; i == 0 || left < least { // the rates of the clocks differ
			at, least = i, left
		}
		one = owner
	}
	for e := range l.considered { // the session may not know yet that it has the lock on a server
		if e.attempt == one && !l.onAll(e.hold) {
			return 0, false
		}
		for _, under := range []map[*lockCall]struct{}{l.w.asking, l.w.trying} {
			for a := range under {
				if a.p == e.p && e.attempt == one { // the call may be about to nest in this hold
					return 0, false
				}
			}
		}
		ok = ok || e.attempt == one
	}
	return at, ok
}

// onAll reports whether a hold has the lock on all servers, as far as its session knows.
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

// granting compares an entry with the grant of its attempt.
func (l *lock) granting(e *held) {
	w := l.w
	first := e.grant.token
	if first == 0 {
		w.fail("%s: %s was never granted to %s", e.who, l.name, short(e.attempt))
	}
	// A server with old data may grant the lock to the same attempt again.
	if !e.void() && (e.token < first || e.token >= first+protocol.Block) {
		w.fail("%s: entered with %d, which is not in the block of its grant, %d", e.who, e.token, first)
	}
	for attempt, g := range l.grants {
		// After a restart with old data, a server may grant the lock to the same attempt again. The session
		// notices this with its next renewal.
		if g.token > first && e.token >= g.token && (g.void.IsZero() || !g.void.Before(l.fell)) &&
			!(e.void() && l.fellLately()) {
			w.fail("%s: entered with %d of the grant %d, and %d was granted to %s",
				e.who, e.token, first, g.token, short(attempt))
		}
	}
	if e.token > first {
		w.counts.Add("handed in memory")
	}
	// If the attempt has already ended, the first reason is kept. If an old snapshot has brought the attempt
	// back into the queue, it may be granted the lock once more, so it does not count as ended.
	if l.over[e.attempt].why == "" && (!e.void() || l.on[0].forgot.IsZero()) {
		l.end(e.attempt, wasEntered)
	}
}

const wasEntered = "it was entered"

// beliefs checks that Redis has the lock for each hold that is considered valid. This check is stronger than
// a check of mutual exclusion, because a violation shows even if no other holder has entered.
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
				e.grant.void = time.Now() // the old data, or a majority of servers, still has the hold
			} else if since := time.Since(e.grant.void); since > longest+w.setMost() {
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

// lastMoment calls beliefs just before the deadline of the hold. A lease that ends too early in Redis, even
// by little, has ended by then.
func (l *lock) lastMoment(e *held) {
	const before = time.Microsecond
	time.AfterFunc(time.Until(e.hold.Deadline())-before, func() {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		if _, ok := l.considered[e]; !ok {
			return
		}
		if time.Until(e.hold.Deadline()) > before { // the lease was renewed
			l.lastMoment(e)
			return
		}
		l.w.counts.Add("considered held to the end")
		l.beliefs()
	})
}

// progress checks that no call waits for long for free locks or permits. The caller must hold w.mu.
func (w *world) progress() {
	for _, l := range w.locks {
		l.beliefs()
	}
	if !w.well() {
		return
	}
	gap := w.gap
	if w.deaf {
		gap = w.lossGap
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
		if len(a.locks) == 1 { // Redis may still grant the lock to waiters that have given up
			idle = min(idle, time.Since(moved))
		}
		if idle > gap || time.Since(since) > 6*gap {
			w.fail("for %v the lock was free, and %s waits", time.Since(since), a.p.name)
		}
	}
}

// overtaking checks that the goroutine of e has overtaken no waiting call more often than the number most.
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

// voided marks all grants as void, because Redis has forgotten them.
func (l *lock) voided() {
	for _, g := range l.grants {
		g.lost()
	}
}

// requeued reads the queue of a server that came back with other data.
func (l *lock) requeued(s *server) {
	// The server may have forgotten tombstones and waiters, and attempts that have left may be in the queue
	// again.
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

// deleted deletes the hash of the lock on all its servers, as an operator may do by hand.
func (l *lock) deleted() {
	for _, s := range l.on {
		s.tick()
		s.Del(l.key)
	}
	l.wiped = time.Now()
	if l.memory == "" { // the tokens and the tombstones were in this hash
		l.known, l.over = 0, map[string]ended{}
	}
	l.rules.deleted()
	l.voided()
	l.w.counts.Add("deleted by hand")
	l.w.log("%s is deleted by hand", l.name)
}

// dequeued deletes the queue of the lock on a server by hand, or the hash of the waiters, but not the lock's
// hash. No second attempt gets the lock because of this. Waiters lose their places, or do not count as alive
// any more. They are in the queue again as soon as they send their heartbeats.
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

// newHeld returns the held for a hold of a lock, or for a part of a hold.
func (a *actor) newHeld(ctx context.Context, hold *rlock.Hold, l *lock, h way) *held {
	attempt := engine.OwnerField((*handle.Hold)(hold))
	grant := attempt
	if l.kind == 'q' { // attempt names only the process, so the token tells its grants apart
		grant = fmt.Sprint(attempt, " ", hold.Token())
	}
	return &held{who: a.name, ctx: ctx, hold: hold, n: h.n, token: hold.Token(), attempt: attempt,
		grant: l.grantOf(grant), p: a.p, since: time.Now(), fixed: h.lease != 0}
}

func short(attempt string) string {
	at := max(4, strings.IndexByte(attempt, ':'))
	return attempt[:min(4, len(attempt))] + attempt[min(at, len(attempt)):]
}
