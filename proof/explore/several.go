package explore

import (
	"slices"
	"strings"
)

// Where a session wants two locks at once, as a MultiLock does, its two attempts are one for each. One of them leads: it asks for both in one
// request. If its own lock is taken, it waits for that alone, and then tries the other. If the other is taken, it gives back what it
// has, and the other leads.

// Scripts for both locks.
const (
	bothScripts = 2*eachScript + iota // the first lock leads
	_                                 // the second
	releaseBoth
)

var bothKeys = [][]string{slices.Concat(lockKeys[0], lockKeys[1]), slices.Concat(lockKeys[1], lockKeys[0]), slices.Concat(lockKeys[0], lockKeys[1])}

// begun: the session of an actor has asked.
func (r *lockRules) begun(v *View[attempt], i int) bool {
	i -= i % 2
	one, other := v.Actors[i], v.Actors[i+1]
	return one.Phase != idle || other.Phase != idle || one.Serial+other.Serial > 0
}

// leads: the request of an attempt is for both locks.
func (r *lockRules) leads(v *View[attempt], i int) bool {
	return r.several && v.Actors[i].Phase == trying && v.Actors[i^1].Phase != holding
}

// askBoth sends a request for both locks, all or none.
func (r *lockRules) askBoth(v *View[attempt], i int) {
	a := v.Actors[i]
	v.Send(Packet{Kind: request, To: int8(i), Tag: mainTag, Script: bothScripts + int8(i%2), Sent: v.Now,
		Argv: join(r.owner(i, a), number(lockLease), number(a.NotAfter), "me", number(retention), "0", channelPrefix, "1", "", "0", nonce(r.owner(i, a)), "1")})
}

// mayUnlock: an attempt that holds its lock is done with it. Of two, the first speaks for both.
func (r *lockRules) mayUnlock(v *View[attempt], i int) bool {
	if !r.several {
		return true
	}
	other := v.Actors[i^1]
	return other.Phase == holding && i%2 == 0 || other.Phase >= over
}

// takeAlong has an attempt leave with the other one of its session.
func (r *lockRules) takeAlong(v *View[attempt], i int) {
	v.Forsake(i, keepTag)
	a := &v.Actors[i]
	a.Phase, a.Held, a.Along = leaving, true, true
}

// alongArgs are those of a release for an attempt that leaves with another one.
func (r *lockRules) alongArgs(v *View[attempt], i int) string {
	a := v.Actors[i]
	words := strings.Split(r.releaseArgs(r.owner(i, a), a, number(a.Token), number(a.Used)), separator)
	return join(words[0], words[1], words[4], words[5])
}

// answeredBoth is the reply to a request for both locks: 'G NOW TOKEN TOKEN', or which of them cannot be had and what is said of that. It
// returns what the leader's own request would have been answered, and true if the leader has to do with it.
func (r *lockRules) answeredBoth(v *View[attempt], i int, p Packet) (own Packet, mine bool) {
	which, rest, _ := strings.Cut(p.Text, " ")
	a := &v.Actors[i]
	if a.GaveUp && a.Late {
		r.renounce(v, i, i^1)
	}
	switch which {
	case "1":
		p.Text = rest
		return p, true
	case "2":
		p.Text = rest
		if rest[0] != 'H' || a.GaveUp {
			return p, true
		}
		if a.Late {
			r.renounce(v, i, i)
			r.renounce(v, i, i^1)
		}
		r.swap(v, i)
		return p, false
	case "G":
		words := strings.Fields(p.Text)
		p.Text = strings.Join(words[:3], " ")
		switch {
		case a.GaveUp && a.Late:
			return p, true
		case a.GaveUp || v.Now >= p.Sent+micro(lockLease): // it is given back
			r.renounce(v, i, i^1)
			return p, true
		}
		token := integer(words[3])
		v.Actors[i^1] = attempt{Phase: holding, Serial: v.Actors[i^1].Serial, Borrowed: 1 + a.Serial, Late: a.Late, NotAfter: a.NotAfter, Beat: true,
			Forced: v.Actors[i^1].Forced, Token: token, Used: token, Deadline: p.Sent + micro(lockLease)}
		v.Actors[i^1].forget()
	}
	return p, true
}

// swap has the other attempt of a session lead.
func (r *lockRules) swap(v *View[attempt], i int) {
	r.end(v, i, idle)
	v.Actors[i].Serial++
	if v.Actors[i].Serial > 8 {
		v.Actors[i].Phase = failed
		return
	}
	v.Actors[i^1].Phase = trying
	r.ask(v, i^1)
}

// complete has a session that holds one lock try the other.
func (r *lockRules) complete(v *View[attempt], i int) {
	if r.several && v.Actors[i^1].Phase == idle {
		v.Actors[i^1].Phase = trying
		r.ask(v, i^1)
	}
}

// refused: the second lock is taken, so the first is given back, and the second leads.
func (r *lockRules) refused(v *View[attempt], i int) {
	if v.Actors[i].Late {
		r.renounce(v, i, i)
	}
	r.end(v, i, idle)
	v.Actors[i].Serial++
	v.Actors[i^1].Held, v.Actors[i^1].Back = true, true
	r.leave(v, i^1)
}
