package explore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/proof/explore/keyspace"
)

// lockRules has sessions that acquire a lock of rlock or fairlock once. They send the requests of package
// engine, but grant no lock in memory.
type lockRules struct {
	fair     bool
	sessions int
	each     int  // number of attempts of a session
	stays    bool // the lock stays taken for a while after each Unlock
	faults   Faults
}

// Options of the sessions, in milliseconds. None of these times ends at a tick, so that the small delays of a
// real server make no difference.
const (
	lockLease = 1100
	liveness  = 1800
	retention = 15000
	staying   = 1000 // the time for which a lock stays taken after Unlock
)

func micro(ms int64) int64 { return ms * 1000 }

// patience returns the time after which a request is void, in microseconds.
func patience() int64 {
	return protocol.Patience(min(lockLease, liveness) * time.Millisecond).Microseconds()
}

type phase uint8

const (
	idle    phase = iota
	trying        // has sent a request that does not join the queue
	asking        // has sent a request that joins the queue if it has to wait
	queued        // waits in the queue
	holding       // has the lock, as far as the session knows
	leaving       // sends its release until a reply arrives
	over          // has released, or lost or canceled, and is done
	failed        // has ended with a documented error
	expired       // the lease ended before Unlock
	dead          // the session crashed
)

// attempt is an actor, a goroutine that acquires the lock once. When it starts over, it has another name in
// Redis.
type attempt struct {
	Phase    phase
	Serial   uint8 // number of times that it has started over
	GaveUp   bool  // was canceled, or has unlocked after the end of its lease
	Late     bool  // some copy of the request had no reply and may still arrive
	Held     bool  // had the lock before leaving
	Again    bool  // has sent the release more than once
	Forced   bool  // lost the lock to an operator
	Beat     bool  // has sent a heartbeat or a renewal in this tick
	Out      bool  // the last request has no reply yet
	NotAfter int64 // time at which the last copy of the request is void
	Base     int64 // time of the first request; 0 after a reply
	// Redis time in the last reply, minus the time at which its request was sent.
	Slow     int64
	Past     int64 // token in that reply: grants up to it have ended
	Token    int64 // token of the hold
	Used     int64 // last token of the hold, larger than Token after a grant in memory
	Deadline int64 // end of the hold
	Stays    int64 // time until which the lock stays taken after the release, or 0
}

// Tags of an attempt's two exchanges.
const (
	mainTag uint8 = 1 + iota
	keepTag       // of renewals
)

// Scripts, by index.
const (
	lockScript int8 = iota
	releaseScript
	keepScript
	forceScript
)

func (r *lockRules) scripts() []string {
	return []string{"lock/acquire", "lock/release", "lock/renew", "lock/force"}
}

func lockWorlds() []World {
	make := func(name, about string, small bool, r lockRules) World {
		return World{Name: name, About: about, Small: small, scripts: r.scripts(),
			build: func(scripts []*keyspace.Script) world {
				return NewSystem[attempt](&r, scripts)
			}}
	}
	return []World{
		make("rlock", "two sessions: replies are lost, leases end", true,
			lockRules{sessions: 2, each: 1, faults: Faults{Ticks: 2}}),
		make("rlock-late", "two sessions: replies are lost, copies are late, waits are canceled", true,
			lockRules{sessions: 2, each: 1, faults: Faults{Ticks: 1, LateCopies: 1, Cancels: 1}}),
		make("rlock-forced", "two sessions: an operator frees the lock, copies are late", true,
			lockRules{sessions: 2, each: 1, faults: Faults{LateCopies: 1, Forced: 1}}),
		make("rlock-deaf", "two sessions: subscriptions break, messages are lost", true,
			lockRules{sessions: 2, each: 1, faults: Faults{Ticks: 1, LostNews: 1, LostSubs: 2}}),
		make("rlock-clock", "two sessions: the server's clock is set back", true,
			lockRules{sessions: 2, each: 1, faults: Faults{Ticks: 2, SetBack: 1}}),
		make("fairlock", "two sessions: replies are lost", true,
			lockRules{fair: true, sessions: 2, each: 1, faults: Faults{Ticks: 1, LostReplies: 1}}),
		make("fairlock-places", "two sessions, two attempts each: leases end", true,
			lockRules{fair: true, sessions: 2, each: 2, faults: Faults{}}),
		make("fairlock-late", "two sessions: copies are late, waits are canceled", true,
			lockRules{fair: true, sessions: 2, each: 1, faults: Faults{LateCopies: 1, Cancels: 1}}),
		make("fairlock-deaf", "two sessions: subscriptions break, messages are lost", true,
			lockRules{fair: true, sessions: 2, each: 1, faults: Faults{Ticks: 1, LostNews: 1, LostSubs: 2}}),
		make("fairlock-leave", "three sessions: one at the head of the queue gives up", true,
			lockRules{fair: true, sessions: 3, each: 1, faults: Faults{Cancels: 1}}),
		make("rlock-stays", "two sessions: the lock stays taken, replies are lost", true,
			lockRules{sessions: 2, each: 1, stays: true, faults: Faults{Ticks: 1, LostReplies: 1}}),
		make("fairlock-stays", "three sessions: the lock stays taken, waits are canceled", true,
			lockRules{fair: true, sessions: 3, each: 1, stays: true, faults: Faults{Cancels: 1}}),
		make("fairlock-deaf-end", "three sessions: one subscription breaks, leases end", false,
			lockRules{fair: true, sessions: 3, each: 1, faults: Faults{Ticks: 2, LostSubs: 1}}),
		make("fairlock-crash", "three sessions: one crashes", false,
			lockRules{fair: true, sessions: 3, each: 1, faults: Faults{Ticks: 2, Crashes: 1}}),
		make("rlock-clock-late", "two sessions: the server's clock is set back, copies are late", false,
			lockRules{sessions: 2, each: 1, faults: Faults{Ticks: 2, LateCopies: 1, SetBack: 1}}),
		make("fairlock-clock-late", "two sessions: the server's clock is set back, copies are late", false,
			lockRules{fair: true, sessions: 2, each: 1, faults: Faults{Ticks: 2, LateCopies: 1, SetBack: 1}}),
		make("rlock-large", "three sessions, two attempts each", false,
			lockRules{sessions: 3, each: 2, faults: Faults{Ticks: 3, LostReplies: 1, LateCopies: 1,
				LostNews: 1, LostSubs: 1, Crashes: 1, Cancels: 1, Forced: 1, SetBack: 1, Extra: 1}}),
		make("fairlock-large", "three sessions, two attempts each", false,
			lockRules{fair: true, sessions: 3, each: 2,
				faults: Faults{Ticks: 3, LostReplies: 1, LateCopies: 1, LostNews: 1, LostSubs: 1, Crashes: 1,
					Cancels: 1, Forced: 1, SetBack: 1, Extra: 1}}),
	}
}

const channelPrefix = "c:"

// lockKeys has the keys of the hash, of the queue, and of the hash of the waiters.
var lockKeys = []string{"lock", "lock:q", "lock:w"}

func (r *lockRules) Start() ([]attempt, Shared) {
	return make([]attempt, r.sessions*r.each), Shared{Now: epoch, Left: r.faults}
}

func (r *lockRules) SessionOf(actor int) int { return actor / r.each }

func sessionName(session int) string { return string(rune('A' + session)) }

func (r *lockRules) Channel(session int) string { return channelPrefix + sessionName(session) }

func (r *lockRules) Keys(script int8) []string {
	if script == keepScript {
		return lockKeys[:1]
	}
	return lockKeys
}

// owner returns the name of an attempt in Redis.
func (r *lockRules) owner(actor int, a attempt) string {
	return fmt.Sprintf("%s:%d", sessionName(actor/r.each), 1+actor%r.each+r.each*int(a.Serial))
}

// current returns the actor that has a name in Redis, or -1 if none has it any more.
func (r *lockRules) current(v *View[attempt], owner string) int {
	if len(owner) < 2 { // '-' is no owner
		return -1
	}
	session := int(owner[0] - 'A')
	for i := session * r.each; i < (session+1)*r.each; i++ {
		if r.owner(i, v.Actors[i]) == owner {
			return i
		}
	}
	return -1
}

func nonce(owner string) string { return "n" + strings.ReplaceAll(owner, ":", "") }

func number(n int64) string { return strconv.FormatInt(n, 10) }

func join(words ...string) string { return strings.Join(words, separator) }

// ask sends a copy of the request of an attempt.
func (r *lockRules) ask(v *View[attempt], i int) {
	a := &v.Actors[i]
	a.NotAfter = max(a.NotAfter, v.Now+patience())
	a.Out, a.Beat = true, true
	live := number(liveness)
	if a.Phase == trying {
		live = "0"
	}
	owner := r.owner(i, *a)
	v.Send(Packet{Kind: request, To: int8(i), Tag: mainTag, Script: lockScript, Sent: v.Now,
		Argv: join(owner, "1", number(a.NotAfter), number(lockLease), "me", number(retention), live,
			channelPrefix, nonce(owner), "1")})
}

// abandon ends a request whose reply is not needed. A copy may still arrive.
func (r *lockRules) abandon(v *View[attempt], i int) {
	a := &v.Actors[i]
	a.Late, a.Out = a.Late || a.Out, false
	v.Forsake(i, mainTag)
}

// releaseArgs returns the arguments of a release of an attempt. Without a token, it releases any grant.
func (r *lockRules) releaseArgs(owner string, a attempt, token, used string) string {
	late := "0"
	if a.Late {
		late = number(a.NotAfter)
	}
	return join(owner, token, channelPrefix, number(retention), late, used)
}

// staysArg returns the last argument of a release after which the lock stays taken.
func (a attempt) staysArg(now int64) string {
	if a.Stays == 0 {
		return ""
	}
	return separator + number(max(0, a.Stays-now)/1000)
}

// leave sends a copy of the release of an attempt.
func (r *lockRules) leave(v *View[attempt], i int) {
	a := &v.Actors[i]
	a.Again = a.Phase == leaving
	r.abandon(v, i)
	a.Phase = leaving
	v.Forsake(i, keepTag)
	token, used := "", "0"
	if a.Held {
		token, used = number(a.Token), number(a.Used)
	}
	v.Send(Packet{Kind: request, To: int8(i), Tag: mainTag, Script: releaseScript, Sent: v.Now,
		Argv: r.releaseArgs(r.owner(i, *a), *a, token, used) + a.staysArg(v.Now)})
}

// startOver has an attempt send a request under another name. With release, it first releases any grant under
// the old name in the background.
func (r *lockRules) startOver(v *View[attempt], i int, as phase, release bool) {
	if release {
		r.renounce(v, i)
	}
	r.end(v, i, over)
	if v.Actors[i].Serial++; v.Actors[i].Serial > 8 {
		v.Actors[i].Phase = failed
		return
	}
	v.Actors[i].Phase, v.Actors[i].Base = as, v.Now
	r.ask(v, i)
}

// renounce releases any grant of an attempt in the background.
func (r *lockRules) renounce(v *View[attempt], i int) {
	a := v.Actors[i]
	v.Send(Packet{Kind: errand, To: int8(i), Script: releaseScript,
		Argv: r.releaseArgs(r.owner(i, a), a, "", "0")})
}

// end resets an attempt.
func (r *lockRules) end(v *View[attempt], i int, as phase) {
	v.Forsake(i, mainTag)
	v.Forsake(i, keepTag)
	v.Actors[i] = attempt{Phase: as, Serial: v.Actors[i].Serial}
}

// mayBegin reports whether an attempt may begin. As all sessions behave alike, they begin in order.
func (r *lockRules) mayBegin(v *View[attempt], i int) bool {
	if i%r.each > 0 {
		before := v.Actors[i-1].Phase
		return before >= over || r.fair && before >= queued
	}
	return i == 0 || v.Actors[i-r.each].Phase != idle
}

func (r *lockRules) Moves(v *View[attempt], do func(what string, who int, move func(v *View[attempt]))) {
	for i, a := range v.Actors {
		_, underWay := v.UnderWay(i, mainTag)
		_, keeping := v.UnderWay(i, keepTag)
		switch a.Phase {
		case idle:
			if r.mayBegin(v, i) {
				do("ask", i, func(v *View[attempt]) { r.begin(v, i) })
			}
		case trying, asking:
			if !underWay {
				do("give up the answer", i, func(v *View[attempt]) { r.unanswered(v, i) })
			}
			if !a.GaveUp && v.Left.Cancels > 0 {
				do("cancel", i, func(v *View[attempt]) {
					v.Left.Cancels--
					v.Actors[i].GaveUp = true
				})
			}
		case queued:
			if v.Left.Cancels > 0 {
				do("cancel", i, func(v *View[attempt]) {
					v.Left.Cancels--
					r.leave(v, i)
				})
			}
			switch {
			case !a.Out && !a.Beat:
				do("ask again", i, func(v *View[attempt]) { r.ask(v, i) })
			case a.Out && !underWay:
				do("give up the answer", i, func(v *View[attempt]) { r.unanswered(v, i) })
			}
		case holding:
			do("unlock", i, func(v *View[attempt]) { r.unlock(v, i) })
			if !keeping && !a.Beat {
				do("renew", i, func(v *View[attempt]) { r.renew(v, i) })
			}
			if v.Left.Extra > 0 && a.Used == a.Token {
				do("pass on in memory", i, func(v *View[attempt]) {
					v.Left.Extra--
					v.Actors[i].Used += 5
					v.Granted = max(v.Granted, v.Actors[i].Used)
				})
			}
		case leaving:
			if !underWay {
				do("release again", i, func(v *View[attempt]) { r.leave(v, i) })
			}
		case expired:
			if !a.GaveUp {
				do("unlock what was lost", i, func(v *View[attempt]) { r.unlockLost(v, i) })
			}
		}
	}
	if owner, token := holder(v.Space(), v.serverNow()); owner != "" && v.Left.Forced > 0 {
		do("force the lock", -1, func(v *View[attempt]) {
			v.Left.Forced--
			v.Send(Packet{Kind: errand, To: -1, Script: forceScript,
				Argv: join(channelPrefix, number(retention), number(token))})
		})
	}
}

func (r *lockRules) begin(v *View[attempt], i int) {
	v.Actors[i].Phase = asking
	if !r.fair {
		v.Actors[i].Phase = trying
	}
	v.Actors[i].Base = v.Now
	r.ask(v, i)
}

// unanswered handles a request to which no reply will arrive.
func (r *lockRules) unanswered(v *View[attempt], i int) {
	a := &v.Actors[i]
	a.Late = true
	if a.GaveUp {
		r.leave(v, i)
		return
	}
	r.ask(v, i)
}

func (r *lockRules) renew(v *View[attempt], i int) {
	a := &v.Actors[i]
	a.Beat = true
	v.Send(Packet{Kind: request, To: int8(i), Tag: keepTag, Script: keepScript, Sent: v.Now,
		Argv: join(r.owner(i, *a), number(a.Token), "1", "1", number(lockLease), number(retention), "0")})
}

func (r *lockRules) unlock(v *View[attempt], i int) {
	v.Actors[i].Held = true
	if r.stays {
		v.Actors[i].Stays = v.Now + micro(staying)
	}
	r.leave(v, i)
}

// unlockLost unlocks after the end of the lease, as a copy of the request may have been granted the lock
// since. It sends one release, without waiting for its reply.
func (r *lockRules) unlockLost(v *View[attempt], i int) {
	a := v.Actors[i]
	v.Send(Packet{Kind: request, To: int8(i), Tag: mainTag, Script: releaseScript, Sent: v.Now,
		Argv: r.releaseArgs(r.owner(i, a), a, "", "")})
	v.Actors[i] = attempt{Phase: expired, Serial: a.Serial, GaveUp: true, Late: a.Late, NotAfter: a.NotAfter}
}

func (r *lockRules) Crashed(v *View[attempt], session int) {
	for i := range v.Actors {
		if i/r.each == session && v.Actors[i].Phase < over {
			v.Actors[i] = attempt{Phase: dead, Serial: v.Actors[i].Serial}
		}
	}
}

func (r *lockRules) Ticked(v *View[attempt]) {
	for i := range v.Actors {
		a := &v.Actors[i]
		a.Beat = false
		if a.Phase == holding && v.Now >= a.Deadline {
			late, notAfter := a.Late, a.NotAfter
			r.end(v, i, expired)
			a.Late, a.NotAfter = late, notAfter // for unlockLost
		}
		if a.Phase == expired && a.NotAfter < v.Now {
			a.Late, a.NotAfter = false, 0
		}
	}
}

func (r *lockRules) Calm(v *View[attempt]) bool {
	for i, a := range v.Actors {
		switch {
		case a.Phase == trying || a.Phase == asking || a.Phase == queued && a.Out:
			r.unanswered(v, i)
		case a.Phase == holding:
			r.unlock(v, i)
		case a.Phase == leaving:
			r.leave(v, i)
		case a.Phase == queued && !a.Beat:
			r.ask(v, i)
		case a.Phase == expired && !a.GaveUp:
			r.unlockLost(v, i)
		default:
			continue
		}
		return true
	}
	return false
}

func (r *lockRules) Over(v *View[attempt]) bool {
	for _, a := range v.Actors {
		if a.Phase != idle && a.Phase < over || a.Phase == expired && !a.GaveUp {
			return false
		}
	}
	return true
}
