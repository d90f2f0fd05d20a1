package explore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/proof/explore/keyspace"
)

// permitRules has sessions that acquire permits of a semaphore or of a read-write lock once. They send the
// requests of package engine, but grant no permits in memory.
type permitRules struct {
	limit  int64 // number of permits, or engine.All for a read-write lock
	takers []want
	tries  bool  // each of them may send a request without waiting
	lease  int64 // milliseconds
	alive  int64 // milliseconds of the waiter timeout
	faults Faults
}

// want describes an actor: its session and its number of permits.
type want struct {
	session int // in order
	n       int64
}

// taker is an actor, a goroutine that acquires permits once. When it starts over, it has another name in
// Redis.
type taker struct {
	Phase    phase
	Serial   uint8 // number of times that it has started over
	GaveUp   bool  // was canceled, or has unlocked after the end of its lease
	Forced   bool  // lost the permits to an operator
	Beat     bool  // has sent a heartbeat or a renewal in this tick
	Held     bool  // had the permits before leaving
	Again    bool  // has sent the release more than once
	Reader   bool  // has downgraded from a writer
	Reducing bool  // has no reply yet to the request of the downgrade
	Joins    int8  // 1 + the actor of the session whose grant a further reader may share, or 0
	NotAfter int64 // time at which the request without a reply is void, or 0
	Late     int64 // time until which a copy without a reply may arrive, or 0
	Base     int64 // time of the first request, or 0 after a reply
	// Redis time in the last reply, minus the time at which its request was sent.
	Slow     int64
	Token    int64 // token of the hold
	Used     int64 // last token of the hold, larger than Token after a grant in memory
	Deadline int64 // end of the hold
}

// Tags of a taker's exchanges.
const (
	askTag uint8 = 1 + iota
	renewTag
	reduceTag
	leaveTag
)

// Scripts, by index.
const (
	acquireScript int8 = iota
	returnScript
	renewScript
	reduceScript
	limitScript
	takeBackScript
)

var permitScripts = []string{"lock/acquire", "lock/release", "lock/renew", "lock/release",
	"lock/limit", "lock/force"}

const all = engine.All

// each makes a session for each number of permits.
func each(n ...int64) []want {
	wants := make([]want, len(n))
	for i := range n {
		wants[i] = want{i, n[i]}
	}
	return wants
}

func permitWorlds() []World {
	var worlds []World
	add := func(name, about string, small bool, r permitRules) {
		worlds = append(worlds, World{Name: name, About: about, Small: small, scripts: permitScripts,
			build: func(scripts []*keyspace.Script) world {
				return NewSystem[taker](&r, scripts)
			}})
	}
	rw := func(takers []want, ms int64, tries bool, f Faults) permitRules {
		return permitRules{all, takers, tries, ms, ms, f}
	}
	sem := func(takers []want, ms int64, tries bool, f Faults) permitRules {
		return permitRules{2, takers, tries, ms, ms, f}
	}
	every := Faults{Ticks: 3, LostReplies: 1, LateCopies: 1, LostNews: 1, LostSubs: 1, Crashes: 1, Cancels: 1,
		Forced: 1, SetBack: 1, Extra: 1}
	pair := []want{{0, 1}, {0, 1}, {1, all}}
	mixed := []want{{0, 1}, {0, 2}, {1, 1}}
	add("rwlock", "a reader and a writer", true,
		rw(each(1, all), 1100, false, Faults{Ticks: 1, LostReplies: 1, Extra: 1}))
	add("rwlock-session", "two readers of one session, and a writer", true,
		rw(pair, 1100, false, Faults{Ticks: 1}))
	add("rwlock-leave", "writers: one at the head of the queue gives up", true,
		permitRules{all, each(all, all, all), false, 1100, 1800, Faults{Cancels: 1}})
	add("semaphore", "two permits, three sessions", true,
		sem(each(1, 1, 2), 1100, false, Faults{Forced: 1, Extra: 1}))
	add("semaphore-session", "two permits, two sessions, one of which asks twice", true,
		sem(mixed, 1100, false, Faults{LostReplies: 1, Extra: 1}))

	add("rwlock-four", "two readers and two writers", false,
		rw(each(1, 1, all, all), 1100, false, Faults{Extra: 1}))
	add("rwlock-lost", "replies that are lost, and leases that run out", false,
		rw(each(1, all), 1100, false, Faults{Ticks: 2, LostReplies: 1, Extra: 1}))
	add("rwlock-late", "requests that come late", false,
		rw(each(1, all), 1100, false, Faults{Ticks: 2, LostReplies: 1, LateCopies: 1}))
	add("rwlock-deaf", "messages that are lost", false,
		rw(each(1, all), 1100, false, Faults{Ticks: 2, LostNews: 1, LostSubs: 1, Crashes: 1}))
	add("rwlock-try", "some do not wait", false,
		rw(each(1, all), 1100, true, Faults{Ticks: 2, Forced: 1, LostReplies: 1}))
	add("rwlock-session-late", "two readers of one session, and requests that come late", false,
		rw(pair, 1100, false, Faults{Cancels: 1, LostReplies: 1, LateCopies: 1}))
	add("semaphore-late", "requests that come late", false,
		sem(each(1, 1, 2), 1100, false, Faults{Forced: 1, LateCopies: 1, Cancels: 1}))
	add("semaphore-ticks", "leases that run out", false,
		sem(each(1, 2), 1100, false, Faults{Ticks: 3, Crashes: 1}))

	back := Faults{Ticks: 2, LateCopies: 1, SetBack: 1}
	about := "the server's clock is set back, requests come late"
	add("rwlock-clock", about, false, rw(each(1, all), 1100, false, back))
	add("semaphore-clock", about, false, sem(each(1, 2), 1100, false, back))

	add("rwlock-large", "two readers and two writers, all faults", false,
		rw(each(1, 1, all, all), 1800, true, every))
	add("rwlock-session-large", "two readers of one session, and a writer, all faults", false,
		rw(pair, 1800, true, every))
	add("semaphore-large", "two permits, three sessions, all faults", false,
		sem(each(1, 1, 2), 1800, true, every))
	add("semaphore-session-large", "two permits, two sessions, one of which asks twice, all faults", false,
		sem(mixed, 1800, true, every))
	return worlds
}

// permitKeys has the keys of the hash, the queue, the waiters, and the leases of further holders.
var permitKeys = []string{"permits", "permits:q", "permits:w", "permits:h"}

func (r *permitRules) Start() ([]taker, Shared) {
	return make([]taker, len(r.takers)), Shared{Now: epoch, Left: r.faults}
}

func (r *permitRules) SessionOf(actor int) int { return r.takers[actor].session }

func (r *permitRules) Channel(session int) string { return channelPrefix + sessionName(session) }

func (r *permitRules) Keys(int8) []string { return permitKeys }

// owner returns the name of an actor in Redis.
func (r *permitRules) owner(i int, a taker) string {
	return fmt.Sprintf("%s:%d", sessionName(r.takers[i].session), 1+i+len(r.takers)*int(a.Serial))
}

// current returns the actor that has a name in Redis, or -1 if none has it any more.
func (r *permitRules) current(v *View[taker], owner string) int {
	_, number, _ := strings.Cut(owner, ":")
	n, err := strconv.Atoi(number)
	if err != nil || v.Actors[(n-1)%len(r.takers)].Serial != uint8((n-1)/len(r.takers)) {
		return -1
	}
	return (n - 1) % len(r.takers)
}

// patience returns the time after which a request is void, in microseconds.
func (r *permitRules) patience() int64 {
	return protocol.Patience(time.Duration(min(r.lease, r.alive)) * time.Millisecond).Microseconds()
}

// holds returns the number of permits that an actor holds by its own state.
func (r *permitRules) holds(i int, a taker) int64 {
	switch {
	case a.Phase != holding:
		return 0
	case a.Reader:
		return 1
	}
	return r.takers[i].n
}

// ask sends a copy of the request of an actor.
func (r *permitRules) ask(v *View[taker], i int) {
	a := &v.Actors[i]
	a.NotAfter = v.Now + r.patience()
	live, joins := number(r.alive), ""
	if a.Phase == trying {
		live = "0"
	}
	if a.Joins != 0 && v.Actors[a.Joins-1].Phase == holding {
		joins = r.owner(int(a.Joins-1), v.Actors[a.Joins-1])
	}
	owner := r.owner(i, *a)
	v.Send(Packet{Kind: request, To: int8(i), Tag: askTag, Script: acquireScript, Sent: v.Now,
		Argv: join(owner, number(r.takers[i].n), number(a.NotAfter), number(r.lease), "me", number(retention),
			live, channelPrefix, nonce(owner), "1", "", number(r.limit), joins)})
}

// returnArgs returns the arguments of a release. Without a token, it releases any grant of the attempt.
func (r *permitRules) returnArgs(owner string, late int64, token, used string) string {
	return join(owner, token, channelPrefix, number(retention), number(late), used)
}

// leave sends a copy of the release of an actor.
func (r *permitRules) leave(v *View[taker], i int) {
	a := &v.Actors[i]
	if a.Phase == leaving {
		a.Again = true
	} else {
		v.Forsake(i, renewTag)
		v.Forsake(i, reduceTag)
		r.settled(v, i)
	}
	a.Phase = leaving
	token, used := "", ""
	if a.Held {
		token = number(a.Token)
		used = number(a.Used)
		if r.takers[i].n != all || a.Reader {
			used = token
		}
	}
	v.Send(Packet{Kind: request, To: int8(i), Tag: leaveTag, Script: returnScript, Sent: v.Now,
		Argv: r.returnArgs(r.owner(i, *a), a.Late, token, used)})
}

// giveBack releases any grant of an actor in the background.
func (r *permitRules) giveBack(v *View[taker], i int) {
	a := v.Actors[i]
	v.Send(Packet{Kind: errand, To: int8(i), Script: returnScript,
		Argv: r.returnArgs(r.owner(i, a), a.Late, "", "")})
}

// startOver has an actor send a request under another name.
func (r *permitRules) startOver(v *View[taker], i int) {
	v.Forsake(i, askTag)
	r.end(v, i, over)
	a := &v.Actors[i]
	if a.Serial++; a.Serial > 8 {
		v.Fail("%s asks again and again", r.owner(i, *a))
	}
	r.begin(v, i, asking)
}

// end resets an actor.
func (r *permitRules) end(v *View[taker], i int, as phase) {
	v.Forsake(i, renewTag)
	v.Forsake(i, reduceTag)
	r.settled(v, i)
	v.Actors[i] = taker{Phase: as, Serial: v.Actors[i].Serial}
}

// settled removes packets in flight that have no effect once the result of an attempt is known. Its request
// may still arrive, as an errand. If the session has more actors, the request and its reply stay, as the
// reply may report a grant of another actor.
func (r *permitRules) settled(v *View[taker], i int) {
	owner := r.owner(i, v.Actors[i])
	alone := true
	for t, w := range r.takers {
		alone = alone && (t == i || w.session != r.takers[i].session)
	}
	for _, n := range slices.Clone(v.net) {
		switch p := v.sys.packets.values[n]; {
		case p.Kind == news && strings.HasPrefix(p.Text, owner+" "):
			v.remove(n)
		case alone && int(p.To) == i && p.Tag == askTag && (p.Kind == request || p.Kind == reply):
			v.remove(n)
			if p.Kind == request {
				v.Send(Packet{Kind: errand, To: p.To, Script: p.Script, Argv: p.Argv})
			}
		}
	}
}

func (r *permitRules) begin(v *View[taker], i int, as phase) {
	a := &v.Actors[i]
	a.Phase, a.Base = as, v.Now
	if as == asking && r.limit == all && r.takers[i].n == 1 {
		for t, w := range r.takers {
			if w.session == r.takers[i].session && r.holds(t, v.Actors[t]) == 1 {
				a.Joins = int8(1 + t)
			}
		}
	}
	r.ask(v, i)
}

// mayBegin reports whether an actor may begin. Equal actors begin in order, and only one reader of a session
// waits at a time.
func (r *permitRules) mayBegin(v *View[taker], i int) bool {
	if i == 0 || r.takers[i-1].n != r.takers[i].n {
		return true
	}
	before := v.Actors[i-1].Phase
	if r.limit == all && r.takers[i].session == r.takers[i-1].session {
		return before >= holding
	}
	return before != idle
}

func (r *permitRules) Moves(v *View[taker], do func(what string, who int, move func(v *View[taker]))) {
	for i, a := range v.Actors {
		idleTag := func(tag uint8) bool {
			_, underWay := v.UnderWay(i, tag)
			return !underWay
		}
		switch a.Phase {
		case idle:
			if !r.mayBegin(v, i) {
				break
			}
			do("ask", i, func(v *View[taker]) { r.begin(v, i, asking) })
			if r.tries {
				do("try", i, func(v *View[taker]) { r.begin(v, i, trying) })
			}
		case trying, asking, queued:
			if a.NotAfter != 0 && idleTag(askTag) {
				do("give up the answer", i, func(v *View[taker]) { r.unanswered(v, i) })
			}
			if a.NotAfter == 0 && !a.Beat {
				do("ask again", i, func(v *View[taker]) { r.askAgain(v, i) })
			}
			if !a.GaveUp && v.Left.Cancels > 0 {
				do("cancel", i, func(v *View[taker]) {
					v.Left.Cancels--
					r.cancel(v, i)
				})
			}
		case holding:
			r.movesOfHolder(v, i, idleTag, do)
		case leaving:
			if idleTag(leaveTag) {
				do("release again", i, func(v *View[taker]) { r.leave(v, i) })
			}
		case expired:
			if !a.GaveUp {
				do("unlock what was lost", i, func(v *View[taker]) { r.unlockLost(v, i) })
			}
		}
	}
	r.movesOfOperator(v, do)
}

func (r *permitRules) movesOfHolder(
	v *View[taker], i int, idleTag func(tag uint8) bool,
	do func(what string, who int, move func(v *View[taker])),
) {
	a := v.Actors[i]
	do("unlock", i, func(v *View[taker]) { r.unlock(v, i) })
	if !a.Beat && idleTag(renewTag) {
		do("renew", i, func(v *View[taker]) { r.renew(v, i) })
	}
	if a.Reducing && idleTag(reduceTag) {
		do("reduce again", i, func(v *View[taker]) { r.reduce(v, i) })
	}
	if r.takers[i].n != all || a.Reader || v.Left.Extra == 0 {
		return
	}
	do("go on as a reader", i, func(v *View[taker]) {
		v.Left.Extra--
		v.Actors[i].Reader, v.Actors[i].Reducing = true, true
		r.reduce(v, i)
	})
	if a.Used == a.Token {
		do("pass on in memory", i, func(v *View[taker]) {
			v.Left.Extra--
			v.Actors[i].Used += 5
			v.Granted = max(v.Granted, v.Actors[i].Used)
		})
	}
}

func (r *permitRules) movesOfOperator(
	v *View[taker], do func(what string, who int, move func(v *View[taker])),
) {
	if v.Left.Forced > 0 {
		for _, which := range r.targets(v.Space(), v.serverNow()) {
			do("force "+which.name, -1, func(v *View[taker]) {
				v.Left.Forced--
				v.Send(Packet{Kind: errand, To: -1, Script: takeBackScript,
					Argv: join(channelPrefix, number(retention), which.arg)})
			})
		}
	}
	if v.Left.Extra > 0 && r.limit != all {
		for n := r.limit - 1; n <= r.limit+1; n += 2 {
			do(fmt.Sprintf("set the limit to %d", n), -1, func(v *View[taker]) {
				v.Left.Extra--
				r.setLimit(v, n)
			})
		}
	}
}

// target is a hold that an operator may end.
type target struct{ name, arg string }

func (r *permitRules) targets(space *keyspace.Space, now int64) (targets []target) {
	writers, readers := false, false
	holders := heldAt(space, now)
	for _, owner := range sorted(holders) {
		h := holders[owner]
		writers, readers = writers || h.n == all, readers || h.n < all
		if r.limit != all {
			targets = append(targets, target{owner, number(h.token)})
		}
	}
	if r.limit == all && writers {
		targets = append(targets, target{"the writer", ""})
	}
	if r.limit == all && readers {
		targets = append(targets, target{"the readers", "r"})
	}
	return targets
}

// setLimit has an operator set the number of permits.
func (r *permitRules) setLimit(v *View[taker], n int64) {
	id := number(int64(v.Left.Extra))
	v.Send(Packet{Kind: errand, To: -1, Script: limitScript, Argv: join(number(n), "0", channelPrefix,
		number(retention), "operator:"+id, number(v.Now+r.patience()))})
}

// unanswered handles a request to which no reply will arrive.
func (r *permitRules) unanswered(v *View[taker], i int) {
	a := &v.Actors[i]
	a.Late = a.NotAfter
	if a.GaveUp {
		a.NotAfter = 0
		r.leave(v, i)
		return
	}
	r.ask(v, i)
}

func (r *permitRules) askAgain(v *View[taker], i int) {
	v.Actors[i].Beat = true
	r.ask(v, i)
}

// cancel ends a wait, after the reply to its request if one is in flight.
func (r *permitRules) cancel(v *View[taker], i int) {
	a := &v.Actors[i]
	if a.NotAfter != 0 {
		a.GaveUp = true
		return
	}
	r.leave(v, i)
}

func (r *permitRules) unlock(v *View[taker], i int) {
	v.Actors[i].Held = true
	r.leave(v, i)
}

// unlockLost unlocks after the end of the lease, as a copy of the request may have been granted permits
// since. It sends one release, without waiting for its reply.
func (r *permitRules) unlockLost(v *View[taker], i int) {
	a := v.Actors[i]
	v.Send(Packet{Kind: request, To: int8(i), Tag: leaveTag, Script: returnScript, Sent: v.Now,
		Argv: r.returnArgs(r.owner(i, a), a.Late, "", "")})
	v.Actors[i] = taker{Phase: expired, Serial: a.Serial, GaveUp: true, Late: a.Late}
}

func (r *permitRules) renew(v *View[taker], i int) {
	a := &v.Actors[i]
	a.Beat = true
	v.Send(Packet{Kind: request, To: int8(i), Tag: renewTag, Script: renewScript, Sent: v.Now,
		Argv: join(r.owner(i, *a), number(a.Token), "0", "1", number(r.lease), number(retention), "0")})
}

func (r *permitRules) reduce(v *View[taker], i int) {
	a := v.Actors[i]
	v.Send(Packet{Kind: request, To: int8(i), Tag: reduceTag, Script: reduceScript, Sent: v.Now,
		Argv: join(r.owner(i, a), number(a.Token), channelPrefix, number(retention), "0", number(a.Used),
			"", "1")})
}
