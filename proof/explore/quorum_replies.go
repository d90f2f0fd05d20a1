package explore

import (
	"slices"
	"strings"

	"github.com/lockline/lockline/internal/protocol"
)

func (r *quorumRules) Replied(v *View[voter], i int, p Packet) {
	if p.Failed {
		v.Fail("the script said: %s", p.Text)
		return
	}
	s := int(p.Server)
	switch p.Tag - uint8(s) {
	case voteTag:
		r.voted(v, i, s, p)
	case formerTag:
		r.formerVoted(v, i, s, p)
	case acceptTag:
		r.raised(v, i, s, p)
	case prolongTag:
		r.renewed(v, i, s, p)
	case joinTag:
		r.joined(v, i, s, p)
	case releaseTag:
		a := &v.Actors[i]
		a.Votes[s].Out = outYes
		if strings.HasPrefix(p.Text, "L") {
			a.Votes[s].Out = outNo
		}
		r.tallyRelease(v, i)
	}
}

// storedToken reads 'STORED +' or 'STORED -'.
func storedToken(answer protocol.Answer) (token int64, accepted bool) {
	word, mark, _ := strings.Cut(answer.Token, " ")
	return integer(word), mark == "+"
}

// voted is a vote, in time or not.
func (r *quorumRules) voted(v *View[voter], i, s int, p Packet) {
	a := &v.Actors[i]
	o := &a.Votes[s]
	answer, ok := protocol.ParseAnswer(p.Text)
	if !ok {
		v.Fail("no answer: %q", p.Text)
		return
	}
	o.Status = voteNoVote
	switch answer.Status {
	case protocol.Granted:
		o.Status = voteGranted
		token, accepted := storedToken(answer)
		if accepted {
			o.Accepted = true
		} else {
			r.saw(v, i, token)
		}
		if !o.Gone {
			o.Until = max(o.Until, a.Start+quorumValid())
		}
	case protocol.Held:
		o.Status = voteRefused
		r.saw(v, i, integer(answer.Token))
	case protocol.Expired:
		o.Status = voteTooLate
	}
	o.Gone = false
	if !o.Late {
		o.NotAfter = 0
	}
	switch a.Stage {
	case stageVoting:
		r.decide(v, i, false)
	case stageLocked:
		a.forget()
	}
	if a.Stage == stageFreeing && o.Out == outAwaited {
		if o.mayHold() {
			r.release(v, i, s)
		} else {
			o.Out = outNo
			r.tallyRelease(v, i)
		}
	}
}

// tally counts votes.
func (a *voter) tally() (got, accepted, others, late, pending int) {
	for _, o := range a.Votes {
		switch o.Status {
		case voteGranted:
			got++
			if o.Accepted {
				accepted++
			}
		case voteRefused:
			others++
		case voteTooLate:
			late++
		case voteOpen:
			pending++
		}
	}
	return got, accepted, others, late, pending
}

// decide ends the vote if it is decided, or its time is up.
func (r *quorumRules) decide(v *View[voter], i int, timeUp bool) {
	a := &v.Actors[i]
	got, accepted, others, late, pending := a.tally()
	switch {
	case a.GaveUp && got >= r.need():
		r.lose(v, i) // it is won, and no longer wanted
	case got >= r.need() && (accepted >= r.need() || r.broken == tokenNotAccepted):
		r.won(v, i, a.Proposal)
	case got >= r.need():
		a.Stage, a.Next = stageRaising, r.propose(v, i)
		for s, o := range a.Votes {
			if o.mayHold() && (o.Status != voteOpen || !exchange(v, i, voteTag, s)) && !v.down(s) {
				r.raise(v, i, s)
			}
		}
	case timeUp, got+pending < r.need() && (pending == 0 || got+others >= r.need() && late == 0):
		r.lose(v, i)
	}
}

func (r *quorumRules) timeOut(v *View[voter], i int) {
	if v.Actors[i].Stage == stageRaising {
		r.lose(v, i)
	} else {
		r.decide(v, i, true)
	}
}

// raise sends a copy of the second round's request.
func (r *quorumRules) raise(v *View[voter], i, s int) {
	a := &v.Actors[i]
	a.Votes[s].Out = outSent
	r.send(v, i, acceptTag, s, quorumAccept, join(quorumOwner(i, a.Serial), number(a.Next), number(protocol.Block)))
}

// raised is a reply in the second round. A server that was not asked counts as one that refuses.
func (r *quorumRules) raised(v *View[voter], i, s int, p Packet) {
	a := &v.Actors[i]
	o := &a.Votes[s]
	o.Out = outNo
	if p.Text == "A" {
		o.Out, o.Accepted, o.Raised = outYes, true, a.Next
	}
	yeses, noes := 0, 0
	for _, o := range a.Votes {
		switch o.Out {
		case outYes:
			yeses++
		case outNo, outNotSent:
			noes++
		}
	}
	switch {
	case yeses >= r.need() && a.GaveUp:
		r.lose(v, i)
	case yeses >= r.need():
		r.won(v, i, a.Next)
	case quorumServers-noes < r.need():
		r.lose(v, i)
	}
}

// endRaise forgets the second round.
func (r *quorumRules) endRaise(v *View[voter], i int) {
	a := &v.Actors[i]
	a.Next = 0
	for s := range a.Votes {
		v.Forsake(i, acceptTag+uint8(s))
		a.Votes[s].Out = outNotSent
	}
}

// won: the voter has the lock from now on, if its lease is not over.
func (r *quorumRules) won(v *View[voter], i int, token int64) {
	a := &v.Actors[i]
	deadline := a.Start + quorumValid()
	if r.broken == countedFromReply {
		deadline = v.Now + quorumValid()
	}
	if v.Now >= deadline {
		r.lose(v, i)
		return
	}
	r.endRaise(v, i)
	a.Stage, a.Token, a.Used, a.Deadline = stageLocked, token, token, deadline
	a.Renewed = true // the first renewal is due after a third of the lease
	a.forget()
	if a.Forced { // it has no majority, and does not know it
		return
	}
	if token <= v.Notes[0] {
		v.Fail("%s holds the lock with token %d after one with %d", quorumOwner(i, a.Serial), token-epoch, v.Notes[0]-epoch)
	}
	v.Notes[0] = token
}

// forget clears what makes no difference any more to a hold.
func (a *voter) forget() {
	for s := range a.Votes {
		o := &a.Votes[s]
		o.Raised = 0
		if o.Status != voteOpen && o.Status != voteGranted {
			o.Status = voteNoVote
		}
	}
	if !slices.ContainsFunc(a.Votes[:], func(o vote) bool { return o.Status == voteOpen }) {
		a.Start = 0
	}
}

// lose gives back what a round was granted or may have been. A vote that is not in is given back when it is.
func (r *quorumRules) lose(v *View[voter], i int) {
	a := &v.Actors[i]
	for s, o := range a.Votes { // only one former vote of each server is kept in mind: wait for that
		if o.Status == voteOpen && exchange(v, i, voteTag, s) && a.Former[s].Serial != 0 {
			return
		}
	}
	used := func(o *vote) int64 { return max(a.Proposal, o.Raised) }
	r.settleRound(v, i, used)
	if a.GaveUp {
		a.Wants = 0
	}
	r.end(v, i)
}

// settleRound releases, in the background, whatever a round was granted.
func (r *quorumRules) settleRound(v *View[voter], i int, used func(o *vote) int64) {
	a := &v.Actors[i]
	r.endRaise(v, i)
	for s := range a.Votes {
		o := &a.Votes[s]
		switch {
		case o.Status == voteOpen && r.leaveVote(v, i, s, used(o)):
		case o.mayHold() && r.broken != lossesKept:
			r.giveBack(v, i, s, r.releaseArgs(i, a, s, used(o)))
		}
	}
}

// leaveVote has a vote that is not in be a former one.
func (r *quorumRules) leaveVote(v *View[voter], i, s int, used int64) bool {
	a := &v.Actors[i]
	o := &a.Votes[s]
	if f := a.Former[s]; f.Serial != 0 { // only one is kept in mind
		f.Late = true
		v.Forsake(i, formerTag+uint8(s))
		r.giveBack(v, i, s, r.formerArgs(i, f, false))
	}
	if !v.retag(i, voteTag+uint8(s), request, formerTag+uint8(s)) {
		return false
	}
	a.Former[s] = former{Serial: a.Serial, Late: o.Late, NotAfter: o.NotAfter, Proposal: a.Proposal, Used: used}
	return true
}

// formerVoted is a vote of a round that is over.
func (r *quorumRules) formerVoted(v *View[voter], i, s int, p Packet) {
	a := &v.Actors[i]
	f := a.Former[s]
	a.Former[s] = former{}
	answer, ok := protocol.ParseAnswer(p.Text)
	if !ok {
		v.Fail("no answer: %q", p.Text)
		return
	}
	if (answer.Status == protocol.Granted || f.Late) && r.broken != lossesKept {
		_, accepted := storedToken(answer)
		r.giveBack(v, i, s, r.formerArgs(i, f, accepted && answer.Status == protocol.Granted))
	}
	r.undecided(v, i)
}

// giveUpFormer: a vote of a round that is over is never in. Its request may arrive yet.
func (r *quorumRules) giveUpFormer(v *View[voter], i, s int) {
	a := &v.Actors[i]
	f := a.Former[s]
	f.Late, a.Former[s] = true, former{}
	v.Forsake(i, formerTag+uint8(s))
	if r.broken != lossesKept {
		r.giveBack(v, i, s, r.formerArgs(i, f, false))
	}
	r.undecided(v, i)
}

// undecided looks again at what had to wait for a former vote.
func (r *quorumRules) undecided(v *View[voter], i int) {
	switch v.Actors[i].Stage {
	case stageVoting:
		r.decide(v, i, false)
	case stageFreeing:
		r.tallyRelease(v, i)
	}
}

// renewed is a reply to a renewal.
func (r *quorumRules) renewed(v *View[voter], i, s int, p Packet) {
	a := &v.Actors[i]
	o := &a.Votes[s]
	if p.Text == "K" {
		o.Kept, o.Until = true, max(o.Until, p.Sent+quorumValid())
	} else {
		o.Kept, o.Missing, o.Until = false, true, 0
		o.Gone = o.Status == voteOpen
	}
	if a.Renewing && (a.kept() >= r.need() || r.allRenewed(v, i)) {
		r.renewalEnds(v, i)
	} else if !a.Renewing {
		r.mayJoin(v, i)
	}
}

func (a *voter) kept() (n int) {
	for _, o := range a.Votes {
		if o.Kept {
			n++
		}
	}
	return n
}

// allRenewed: all servers have answered a renewal.
func (r *quorumRules) allRenewed(v *View[voter], i int) bool {
	return !slices.ContainsFunc(v.Actors[i].Votes[:], func(o vote) bool { return !o.Kept && !o.Missing })
}

// until is when the hold on a majority is no longer valid.
func (r *quorumRules) until(a *voter) int64 {
	var all [quorumServers]int64
	for s, o := range a.Votes {
		all[s] = o.Until
	}
	slices.Sort(all[:])
	return all[quorumServers-r.need()]
}

// renewalEnds is its outcome.
func (r *quorumRules) renewalEnds(v *View[voter], i int) {
	a := &v.Actors[i]
	a.Renewing = false
	switch until := r.until(a); {
	case until < a.Deadline:
		if !a.mayBeLost(v) {
			v.Fail("%s holds the lock by what it knows, and a majority says that it does not", quorumOwner(i, a.Serial))
		}
		r.lost(v, i)
		return
	case a.kept() >= r.need():
		a.Deadline = until
	}
	r.mayJoin(v, i)
}

// mayJoin joins servers that did not have the grant, if a majority without them has been renewed.
func (r *quorumRules) mayJoin(v *View[voter], i int) {
	a := &v.Actors[i]
	for s := range a.Votes {
		o := &a.Votes[s]
		if !o.Missing {
			continue
		}
		if o.Missing = false; o.Status == voteOpen && exchange(v, i, voteTag, s) || o.Until != 0 || a.kept() < r.need() || v.down(s) {
			continue
		}
		if r.broken != joinForgotten {
			o.Late = true
		}
		o.NotAfter = max(o.NotAfter, v.Now+quorumPatience())
		if o.Status == voteOpen || o.Status == voteUnasked {
			o.Status = voteNoVote
		}
		v.Forsake(i, joinTag+uint8(s))
		r.send(v, i, joinTag, s, quorumLock, r.ballot(i, a, s, a.Token+protocol.Block-1, "1"))
	}
}

// joined is a reply to that.
func (r *quorumRules) joined(v *View[voter], i, s int, p Packet) {
	a := &v.Actors[i]
	answer, ok := protocol.ParseAnswer(p.Text)
	if !ok || answer.Status != protocol.Granted || a.Stage != stageLocked {
		return
	}
	o := &a.Votes[s]
	token, accepted := storedToken(answer)
	o.Status, o.Until = voteGranted, max(o.Until, p.Sent+quorumValid())
	o.Accepted = accepted || o.Accepted && token == a.Token+protocol.Block-1
}

// lost: a hold is over that was not unlocked. What it had is released when its user unlocks it, which is at any time from now on.
func (r *quorumRules) lost(v *View[voter], i int) {
	a := &v.Actors[i]
	r.forsakeHold(v, i)
	r.settleRound(v, i, func(*vote) int64 { return -1 })
	a.Wants--
	r.end(v, i)
}

func (r *quorumRules) releaseAgain(v *View[voter], i, s int) {
	v.Actors[i].Unsure = true
	r.release(v, i, s)
}

// tallyRelease ends a release that a majority has answered. What the others have goes on in the background.
func (r *quorumRules) tallyRelease(v *View[voter], i int) {
	a := &v.Actors[i]
	yeses, noes := 0, 0
	for s, o := range a.Votes {
		switch o.Out {
		case outYes:
			yeses++
			a.Votes[s] = vote{Out: outYes, Forced: o.Forced}
		case outNo:
			noes++
			a.Votes[s] = vote{Out: outNo, Forced: o.Forced}
		case outAwaited:
			if a.Former[s].Serial != 0 {
				return // only one former vote of each server is kept in mind: wait for that
			}
		}
	}
	if yeses < r.need() && quorumServers-noes >= r.need() {
		return
	}
	if yeses < r.need() && !a.Unsure && !a.mayBeLost(v) && v.Now < a.Deadline {
		v.Fail("%s unlocks in time, and a majority says that it lost the lock", quorumOwner(i, a.Serial))
	}
	for s := range a.Votes {
		switch o := &a.Votes[s]; o.Out {
		case outAwaited:
			if !r.leaveVote(v, i, s, a.Used) {
				r.giveBack(v, i, s, r.releaseArgs(i, a, s, a.Used))
			}
		case outSent:
			if k, underWay := v.UnderWay(i, releaseTag+uint8(s)); !underWay {
				r.giveBack(v, i, s, r.releaseArgs(i, a, s, a.Used))
			} else if k == request {
				v.retag(i, releaseTag+uint8(s), errand, 0)
			} else {
				v.Forsake(i, releaseTag+uint8(s))
			}
		}
	}
	a.Wants--
	r.end(v, i)
}
