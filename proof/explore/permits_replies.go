package explore

import (
	"strings"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

func (r *permitRules) Replied(v *View[taker], i int, p Packet) {
	if p.Failed {
		v.Fail("the script said: %s", p.Text)
		return
	}
	if p.Script == renewScript {
		r.renewed(v, i, p)
		return
	}
	answer, err := protocol.Read(wire.Outcome{Reply: p.Text})
	if err != nil {
		v.Fail("no answer: %q", p.Text)
		return
	}
	for _, s := range answer.Served { // granted after the request was sent
		r.told(v, r.current(v, s.Owner), s.Token, p.Sent, s.Lease.Microseconds())
	}
	switch a := v.Actors[i]; {
	case p.Tag == leaveTag && a.Phase == leaving:
		if answer.Status == protocol.Lost && a.Held && !a.Again && !a.Forced && v.Now < a.Deadline {
			v.Fail("%s unlocks in time, and Redis says that it lost the permits", r.owner(i, a))
		}
		r.end(v, i, over)
	case p.Tag == reduceTag && a.Phase == holding:
		v.Actors[i].Reducing = false
		if answer.Status == protocol.Lost {
			r.lost(v, i)
		}
	case p.Tag == askTag && (a.Phase == trying || a.Phase == asking || a.Phase == queued):
		r.answered(v, i, p, answer)
	}
}

func (r *permitRules) renewed(v *View[taker], i int, p Packet) {
	a := &v.Actors[i]
	switch {
	case a.Phase != holding:
	case p.Text != "K":
		r.lost(v, i)
	default:
		a.Deadline = max(a.Deadline, p.Sent+micro(r.lease))
	}
}

// lost handles a reply that an actor does not have the permits that it holds by its own state.
func (r *permitRules) lost(v *View[taker], i int) {
	if !v.Actors[i].Forced {
		v.Fail("%s holds permits by what it knows, and Redis says that it does not", r.owner(i, v.Actors[i]))
	}
	r.end(v, i, over)
}

// answered handles the reply to a request for permits.
func (r *permitRules) answered(v *View[taker], i int, p Packet, answer protocol.Answer) {
	a := &v.Actors[i]
	a.NotAfter = 0
	switch {
	case a.GaveUp && (a.Base == 0 || a.Late != 0 || answer.Status == protocol.Granted ||
		answer.Status == protocol.Queued && a.Phase != trying):
		r.leave(v, i)
	case a.GaveUp:
		r.end(v, i, over)
	case answer.Status == protocol.Expired:
		r.ask(v, i)
	case answer.Status == protocol.Stale:
		r.stale(v, i)
	case answer.Status == protocol.Limited:
		if a.Late != 0 || a.Base == 0 {
			r.giveBack(v, i)
		}
		r.end(v, i, failed)
	case answer.Status == protocol.Granted:
		r.granted(v, i, answer.Token, p.Sent, micro(r.lease))
	case answer.Status == protocol.GoesOn:
		r.goesOn(v, i, p)
	case a.Phase == trying:
		if a.Late != 0 {
			r.giveBack(v, i)
		}
		r.end(v, i, over)
	default:
		a.Phase, a.Base, a.Slow = queued, 0, answer.Now-p.Sent
	}
}

// stale handles a reply that an attempt has ended, which only an operator can cause.
func (r *permitRules) stale(v *View[taker], i int) {
	a := v.Actors[i]
	if !a.Forced {
		v.Fail("%s is told that it is over, and nothing has ended it", r.owner(i, a))
	}
	if a.Late != 0 || a.Base == 0 {
		r.giveBack(v, i)
	}
	r.end(v, i, failed)
}

// goesOn handles a reply that the grant named in the request is still valid. A further reader of the session
// shares this grant from now on.
func (r *permitRules) goesOn(v *View[taker], i int, p Packet) {
	a := v.Actors[i]
	h := int(a.Joins) - 1
	if h < 0 {
		v.Fail("%s named no grant, and one goes on", r.owner(i, a))
		return
	}
	if a.Late != 0 || a.Base == 0 { // a copy may arrive, or the attempt was granted permits in the queue
		r.giveBack(v, i)
	}
	if r.holds(h, v.Actors[h]) == 0 { // unlocked meanwhile
		r.startOver(v, i)
		return
	}
	v.Actors[h].Deadline = max(v.Actors[h].Deadline, p.Sent+micro(r.lease))
	r.end(v, i, over)
}

// granted makes an actor hold its permits, unless the lease has ended already.
func (r *permitRules) granted(v *View[taker], i int, token, from, lease int64) {
	a := &v.Actors[i]
	if v.Now >= from+lease {
		r.giveBack(v, i)
		if a.Phase == trying {
			r.end(v, i, failed)
			return
		}
		r.startOver(v, i)
		return
	}
	v.Granted = max(v.Granted, token) // the largest token that an actor has
	r.settled(v, i)
	*a = taker{Phase: holding, Serial: a.Serial, Late: a.Late, Forced: a.Forced, Beat: true, Token: token,
		Used: token, Deadline: from + lease}
}

// told handles the report of a grant, whose attempt may have ended.
func (r *permitRules) told(v *View[taker], i int, token, from, lease int64) {
	if i < 0 {
		return
	}
	a := &v.Actors[i]
	switch {
	case a.Phase != asking && a.Phase != queued || a.GaveUp:
	case v.Now >= from+lease: // a request shows whether the lease has ended
		if a.NotAfter == 0 {
			r.ask(v, i)
		}
	default:
		if a.NotAfter != 0 { // the request may arrive after the end of the grant
			a.Late = a.NotAfter
		}
		r.granted(v, i, token, from, lease)
	}
}

// Heard handles a message: OWNER TOKEN NOW LEASE NONCE reports a grant. OWNER LEFT is for the next waiter and
// has no effect, as a waiter here may look at any time.
func (r *permitRules) Heard(v *View[taker], _ int, text string) {
	words := strings.Fields(text)
	if len(words) != 5 || words[4] != nonce(words[0]) {
		return
	}
	i := r.current(v, words[0])
	if i < 0 {
		return
	}
	a := v.Actors[i]
	from := a.Base
	if from == 0 {
		from = integer(words[2]) - a.Slow
	}
	r.told(v, i, integer(words[1]), from, micro(integer(words[3])))
}

func (r *permitRules) Crashed(v *View[taker], session int) {
	for i, w := range r.takers {
		if w.session == session && v.Actors[i].Phase < over {
			v.Actors[i] = taker{Phase: dead, Serial: v.Actors[i].Serial}
		}
	}
}

func (r *permitRules) Ticked(v *View[taker]) {
	for i := range v.Actors {
		a := &v.Actors[i]
		a.Beat = false
		if a.Phase == holding && v.Now >= a.Deadline {
			late := a.Late
			r.end(v, i, expired)
			a.Late = late // for unlockLost
		}
		if a.Phase == expired && a.Late < v.Now {
			a.Late = 0
		}
	}
}

func (r *permitRules) Calm(v *View[taker]) bool {
	for i, a := range v.Actors {
		switch {
		case (a.Phase == trying || a.Phase == asking || a.Phase == queued) && a.NotAfter != 0:
			r.unanswered(v, i)
		case a.Phase == queued && !a.Beat:
			r.askAgain(v, i)
		case a.Phase == holding:
			r.unlock(v, i)
		case a.Phase == leaving:
			r.leave(v, i)
		case a.Phase == expired && !a.GaveUp:
			r.unlockLost(v, i)
		default:
			continue
		}
		return true
	}
	if limit, ok := limitOf(v.Space()); ok && limit < r.limit { // a waiter may need them all
		r.setLimit(v, r.limit)
		return true
	}
	return false
}

func (r *permitRules) Over(v *View[taker]) bool {
	for _, a := range v.Actors {
		if a.Phase != idle && a.Phase < over || a.Phase == expired && !a.GaveUp {
			return false
		}
	}
	return true
}
