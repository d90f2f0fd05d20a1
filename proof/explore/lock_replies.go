package explore

import (
	"strconv"
	"strings"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

func (r *lockRules) Replied(v *View[attempt], i int, p Packet) {
	a := &v.Actors[i]
	if p.Failed {
		v.Fail("the script said: %s", p.Text)
		return
	}
	switch {
	case p.Tag == mainTag && (a.Phase == leaving || a.Phase == expired):
		r.released(v, i, p)
	case p.Tag == mainTag:
		r.answered(v, i, p)
	case a.Phase == holding:
		if p.Text != "K" {
			r.lost(v, i)
			return
		}
		a.Deadline = max(a.Deadline, p.Sent+micro(lockLease))
	}
}

// lost handles a reply that an attempt does not have the lock that it holds by its own state.
func (r *lockRules) lost(v *View[attempt], i int) {
	if !v.Actors[i].Forced {
		v.Fail("%s holds the lock by what it knows, and Redis says that it does not", r.owner(i, v.Actors[i]))
	}
	r.end(v, i, over)
}

// released handles the reply to a release: R or L, and the owner to which the lock was handed over.
func (r *lockRules) released(v *View[attempt], i int, p Packet) {
	a := v.Actors[i]
	words := strings.Fields(p.Text)
	if words[0] == "L" && a.Held && !a.Again && !a.Forced && v.Now < a.Deadline {
		v.Fail("%s unlocks in time, and Redis says that it lost the lock", r.owner(i, a))
	}
	if a.Phase == leaving {
		r.end(v, i, over)
	}
	if len(words) == 4 {
		r.learn(v, i, words[1], award{token: integer(words[2]), lease: micro(integer(words[3])),
			from: p.Sent})
	}
}

// answered handles the reply to a request for the lock.
func (r *lockRules) answered(v *View[attempt], i int, p Packet) {
	a := &v.Actors[i]
	answer, err := protocol.Read(wire.Outcome{Reply: p.Text})
	if err != nil {
		v.Fail("no answer: %q", p.Text)
		return
	}
	a.Out = false
	if answer.Status == protocol.Queued && a.Phase != trying {
		defer r.learn(v, i, answer.Holder, award{token: answer.Token, lease: answer.Left.Microseconds(),
			from: p.Sent})
	}
	switch {
	case a.GaveUp && (a.Late || answer.Status == protocol.Granted ||
		answer.Status == protocol.Queued && a.Phase == asking):
		r.leave(v, i)
	case a.GaveUp:
		r.end(v, i, over)
	case answer.Status == protocol.Expired:
		r.ask(v, i)
	case answer.Status == protocol.Stale && a.Phase == trying:
		r.startOver(v, i, trying, a.Late)
	case answer.Status == protocol.Stale && a.Phase == queued && !a.Forced:
		v.Fail("%s is told that it is over, and nothing has ended it", r.owner(i, *a))
	case answer.Status == protocol.Stale && a.Phase == queued:
		r.startOver(v, i, asking, a.Late)
	case answer.Status == protocol.Stale:
		r.end(v, i, failed)
	case answer.Status == protocol.Granted:
		r.granted(v, i, award{token: answer.Token, lease: micro(lockLease), from: p.Sent})
	case a.Phase == trying: // joins the queue under another name
		r.startOver(v, i, asking, a.Late)
	default:
		a.Phase = queued
		a.Base, a.Slow, a.Past = 0, answer.Now-p.Sent, max(a.Past, answer.Token)
		a.forget()
	}
}

// forget clears a field without effect, so that states with the same behavior are equal.
func (a *attempt) forget() {
	if !a.Late {
		a.NotAfter = 0
	}
}

func integer(word string) int64 {
	n, _ := strconv.ParseInt(word, 10, 64)
	return n
}

// award describes a grant. Times are in microseconds.
type award struct {
	token, lease int64
	from         int64 // a time not after its start, by the session's clock
	at           int64 // start by the clock of Redis; 0 if from is set
}

// learn handles the report of a grant, which has an effect if its owner is a waiting attempt in the session
// of the actor by.
func (r *lockRules) learn(v *View[attempt], by int, owner string, w award) {
	i := r.current(v, owner)
	if i < 0 || i/r.each != by/r.each {
		return
	}
	a := &v.Actors[i]
	switch {
	case a.Phase != asking && a.Phase != queued || a.GaveUp || w.token <= a.Past:
		return
	case w.at != 0 && a.Base != 0:
		w.from = a.Base
	case w.at != 0:
		w.from = w.at - a.Slow
	}
	if w.at != 0 && v.Now >= w.from+w.lease { // a request shows whether the lease has ended
		if !a.Out {
			r.ask(v, i)
		}
		return
	}
	r.abandon(v, i)
	r.granted(v, i, w)
}

// granted makes an attempt hold the lock, unless the lease has ended already.
func (r *lockRules) granted(v *View[attempt], i int, w award) {
	a := &v.Actors[i]
	if v.Now >= w.from+w.lease {
		r.startOver(v, i, asking, true)
		return
	}
	v.Forsake(i, keepTag)
	v.Forsake(i, mainTag)
	*a = attempt{Phase: holding, Serial: a.Serial, Late: a.Late, NotAfter: a.NotAfter, Forced: a.Forced,
		Beat: true, Token: w.token, Used: w.token, Deadline: w.from + w.lease}
	a.forget()
}

// Heard handles a message: OWNER TOKEN NOW LEASE NONCE reports a grant. OWNER LEASE is for the next waiter
// and has no effect, as a waiter here may look at any time.
func (r *lockRules) Heard(v *View[attempt], session int, text string) {
	words := strings.Fields(text)
	if len(words) != 5 || words[4] != nonce(words[0]) {
		return
	}
	r.learn(v, session*r.each, words[0],
		award{token: integer(words[1]), at: integer(words[2]), lease: micro(integer(words[3]))})
}
