package explore

import (
	"fmt"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/proof/explore/keyspace"
)

// quorumRules are sessions that want one RedLock, on three servers. They do what package quorum does for one goroutine each. Left out are the
// turnstile, which only advises (two of its holders are two voters), and messages: a voter votes again when it likes.
type quorumRules struct {
	wants   uint8 // how often each is to hold the lock
	rounds  uint8 // that it begins before all is calm
	behind  bool  // the clocks that the second session reads are a minute behind
	faults  Faults
	servers ServerFaults
	broken  quorumFault
}

// quorumFault is one that the Go code might have.
type quorumFault uint8

const (
	correct          quorumFault = iota
	majorityLessOne              // of three servers, one is enough
	tokenNotAccepted             // a majority of grants counts, whatever became of the token
	lossesKept                   // a lost vote is not given back
	joinForgotten                // a release does not know of a request to join
	countedFromReply             // a lease counts from when the last vote came in
)

const (
	quorumServers  = 3
	quorumSessions = 2
	quorumLease    = 1100   // milliseconds. It ends between the first tick and the second, as the patience does
	quorumKeep     = 600000 // keepMetadata of package quorum
	clockBehind    = 60_000_000
)

func quorumPatience() int64 {
	return protocol.Patience(quorumLease * time.Millisecond).Microseconds()
}

func quorumValid() int64 { return protocol.Valid(quorumLease * time.Millisecond).Microseconds() }

type stage uint8

const (
	stageAbsent stage = iota // wants nothing yet
	stageResting
	stageVoting
	stageRaising // in the second round
	stageLocked  // holds the lock, as far as it knows
	stageFreeing // waits for a majority's replies to its release
	stageServed  // as often as it wanted, or its wait was canceled
	stageCrashed
)

// voter is an actor: a session that wants the lock, with its present round.
type voter struct {
	Stage    stage
	Serial   uint8 // of the round, and of its owner field
	Wants    uint8 // how often it still wants the lock
	GaveUp   bool  // its goroutine does not wait for the round any more
	Forced   bool  // an operator took what it held from so many servers that no majority was left
	Unsure   bool  // a request to release was not answered
	Renewed  bool  // it has renewed in this tick
	Renewing bool  // the outcome of that is open
	Rested   bool  // it has voted in this tick, where all is calm
	Seen     int64 // the highest token seen or proposed; 0: one that a proposal is above anyway
	Start    int64 // of the round
	Proposal int64 // of the round
	Next     int64 // proposal of the second round
	Token    int64 // of what it holds
	Used     int64 // last token of it that was used
	Deadline int64 // until when it holds it
	Votes    [quorumServers]vote
	Former   [quorumServers]former
}

// vote is what is known of a round at one server.
type vote struct {
	Status   status
	Accepted bool  // a token of the round is stored there
	Late     bool  // a copy may still arrive
	Gone     bool  // a renewal overtook the request for the vote
	Kept     bool  // the last renewal found it held
	Forced   bool  // an operator freed it there
	Missing  bool  // and there it did not, and its outcome is open
	Out      out   // of the second round's request, or the release
	Raised   int64 // the second round's token
	NotAfter int64 // of the last copy sent
	Until    int64 // considered held until then
}

type status uint8

const (
	voteUnasked status = iota
	voteOpen           // the vote is not in
	voteGranted
	voteRefused
	voteTooLate // the request had expired
	voteNoVote  // the attempt was over, or the server was not asked before it was joined
)

// out is how far a request about the grant has come at one server.
type out uint8

const (
	outNotSent out = iota
	outAwaited     // it is sent once the vote is in
	outSent
	outYes
	outNo
)

// former is a vote of an earlier round that was not in when the round was over. What it brings is given back.
type former struct {
	Serial   uint8 // 0: none
	Late     bool
	NotAfter int64
	Proposal int64
	Used     int64 // what of the block; -1: not known
}

// Tags of a voter's exchanges. To each its server is added.
const (
	voteTag    uint8 = 10
	formerTag  uint8 = 20
	acceptTag  uint8 = 30
	prolongTag uint8 = 40
	joinTag    uint8 = 50
	releaseTag uint8 = 60
)

// Scripts, by index.
const (
	quorumLock int8 = iota
	quorumAccept
	quorumRelease
	quorumForce
	quorumRenew
)

var quorumScripts = []string{"multilock/redlock_lock.lua", "multilock/redlock_accept.lua", "multilock/redlock_release.lua", "multilock/redlock_force.lua", "internal/protocol/keep.lua"}

func (r quorumRules) world(name, about string, small bool) World {
	return World{Name: name, About: about, Small: small, scripts: quorumScripts, build: func(scripts []*keyspace.Script) world {
		return NewSystem[voter](&r, quorumServers, scripts)
	}}
}

func quorumWorlds() []World {
	world := func(name, about string, small bool, r quorumRules) World { return r.world(name, about, small) }
	return []World{
		world("redlock", "two sessions, three servers, leases that end", true, quorumRules{wants: 1, rounds: 1, faults: Faults{Ticks: 2}}),
		world("redlock-tokens", "sessions that propose the same tokens, in several rounds", true, quorumRules{wants: 1, rounds: 2, servers: ServerFaults{Slow: 1}}),
		world("redlock-renewals", "sessions that propose the same tokens, and renew", false, quorumRules{wants: 1, rounds: 2, faults: Faults{Ticks: 2, LostReplies: 1}}),
		world("redlock-servers", "one server is down, and may come back empty", false, quorumRules{wants: 1, rounds: 1, faults: Faults{Ticks: 3}, servers: ServerFaults{Downs: 1}}),
		world("redlock-forced", "an operator unlocks, and requests are late", false, quorumRules{wants: 1, rounds: 1, faults: Faults{Forced: 1, LateCopies: 1, Extra: 1}}),
		world("redlock-clocks", "two attempts each, clocks that differ", false, quorumRules{wants: 2, rounds: 2, behind: true, faults: Faults{Forced: 1, Extra: 1}}),
		world("redlock-large", "two attempts each, all faults", false, quorumRules{wants: 2, rounds: 3, faults: Faults{Ticks: 3, LostReplies: 1, LateCopies: 1, Crashes: 1, Cancels: 1, Forced: 1, Extra: 1}, servers: ServerFaults{Slow: 1, Downs: 1}}),
	}
}

var quorumKeys = []string{"lock", "lock:t"}

const quorumChannel = "c"

func (r *quorumRules) Start() ([]voter, Shared) {
	return make([]voter, quorumSessions), Shared{Now: epoch, Left: r.faults, Servers: r.servers}
}

func (r *quorumRules) SessionOf(actor int) int { return actor }

// Channel is one that nothing is published to.
func (r *quorumRules) Channel(session int) string { return channelPrefix + sessionName(session) }

func (r *quorumRules) Keys(int8) []string { return quorumKeys }

// Heard is never called.
func (r *quorumRules) Heard(*View[voter], int, string) {}

// LongestLease is how long a server stays away that comes back empty.
func (r *quorumRules) LongestLease() int64 { return micro(quorumLease) }

// Reorder is the same voter where the servers have other numbers.
func (r *quorumRules) Reorder(a voter, order [quorumServers]int) voter {
	b := a
	for i, s := range order {
		b.Votes[i], b.Former[i] = a.Votes[s], a.Former[s]
	}
	return b
}

func (r *quorumRules) need() int {
	if r.broken == majorityLessOne {
		return quorumServers / 2
	}
	return quorumServers/2 + 1
}

func quorumOwner(actor int, serial uint8) string {
	return fmt.Sprintf("%s:%d", sessionName(actor), serial)
}

// clock is what a session believes that the servers' clocks say, for its proposals.
func (r *quorumRules) clock(v *View[voter], i int) int64 {
	if r.behind && i == 1 {
		return v.Now - clockBehind
	}
	return v.Now
}

// propose makes the first token of a new block.
func (r *quorumRules) propose(v *View[voter], i int) int64 {
	a := &v.Actors[i]
	a.Seen = max(r.clock(v, i), a.Seen+1)
	return a.Seen
}

// saw notes a token. One below the clock is forgotten: the next proposal is above it anyway.
func (r *quorumRules) saw(v *View[voter], i int, token int64) {
	if a := &v.Actors[i]; token > a.Seen && token >= r.clock(v, i) {
		a.Seen = token
	}
}

// exchange is whether a request to a server, or its reply, is under way.
func exchange(v *View[voter], i int, tag uint8, server int) bool {
	_, underWay := v.UnderWay(i, tag+uint8(server))
	return underWay
}

// unreached: nothing comes of a request to a server any more, or only if the server comes back.
func unreached(v *View[voter], i int, tag uint8, server int) bool {
	k, underWay := v.UnderWay(i, tag+uint8(server))
	return !underWay || k == request && v.down(server)
}

func (r *quorumRules) send(v *View[voter], i int, tag uint8, server int, script int8, argv string) {
	v.Send(Packet{Kind: request, To: int8(i), Server: int8(server), Tag: tag + uint8(server), Script: script, Sent: v.Now, Argv: argv})
}

// vote begins a round. A server that does not answer is not asked, as after the timeout of an earlier round.
func (r *quorumRules) vote(v *View[voter], i int) {
	a := &v.Actors[i]
	a.Stage, a.Start, a.Proposal = stageVoting, v.Now, r.propose(v, i)
	a.Serial++
	a.Rested = v.Calm
	for s := range a.Votes {
		if !v.down(s) {
			a.Votes[s].Status = voteOpen
			r.ask(v, i, s)
		}
	}
}

// ask sends a copy of the request for a vote.
func (r *quorumRules) ask(v *View[voter], i, s int) {
	a := &v.Actors[i]
	a.Votes[s].NotAfter = v.Now + quorumPatience()
	r.send(v, i, voteTag, s, quorumLock, r.ballot(i, a, s, a.Proposal+protocol.Block-1, "0"))
}

func (r *quorumRules) ballot(i int, a *voter, s int, last int64, purpose string) string {
	return join(quorumOwner(i, a.Serial), number(quorumLease), number(a.Votes[s].NotAfter), "me", number(quorumKeep), number(a.Proposal), number(last), quorumChannel, purpose, "nonce")
}

// renew asks all servers.
func (r *quorumRules) renew(v *View[voter], i int) {
	a := &v.Actors[i]
	a.Renewed, a.Renewing = true, true
	for s := range a.Votes {
		v.Forsake(i, prolongTag+uint8(s))
		a.Votes[s].Kept, a.Votes[s].Missing = false, false
		if !v.down(s) {
			r.send(v, i, prolongTag, s, quorumRenew, join(quorumOwner(i, a.Serial), number(a.Proposal), "0", "1", number(quorumLease), number(quorumKeep), quorumChannel, number(a.Proposal), ""))
		}
	}
}

// unlock sends the release to all that may hold the grant.
func (r *quorumRules) unlock(v *View[voter], i int) {
	a := &v.Actors[i]
	a.Stage, a.Renewing = stageFreeing, false
	r.saw(v, i, a.Used)
	r.forsakeHold(v, i)
	for s := range a.Votes {
		o := &a.Votes[s]
		o.Until, o.Kept, o.Missing = 0, false, false
		switch {
		case o.Status == voteOpen && exchange(v, i, voteTag, s):
			o.Out = outAwaited
		case o.mayHold():
			r.release(v, i, s)
		default:
			o.Out = outNo
		}
	}
	r.tallyRelease(v, i)
}

// forsakeHold ends the exchanges that are about a hold. A request to join may arrive later, and must find the attempt over.
func (r *quorumRules) forsakeHold(v *View[voter], i int) {
	for s := range quorumServers {
		v.Forsake(i, prolongTag+uint8(s))
		v.retag(i, joinTag+uint8(s), orphan, 0)
	}
}

func (o *vote) mayHold() bool { return o.Status == voteOpen || o.Status == voteGranted || o.Late }

// release sends a copy of the release to one server.
func (r *quorumRules) release(v *View[voter], i, s int) {
	a := &v.Actors[i]
	a.Votes[s].Out = outSent
	r.send(v, i, releaseTag, s, quorumRelease, r.releaseArgs(i, a, s, a.Used))
}

// releaseArgs are those of the release of a round; used is -1 if it is not known.
func (r *quorumRules) releaseArgs(i int, a *voter, s int, used int64) string {
	o := &a.Votes[s]
	f := former{Serial: a.Serial, Proposal: a.Proposal, Used: used, Late: o.Late || o.Status == voteOpen, NotAfter: o.NotAfter}
	return r.formerArgs(i, f, o.Accepted)
}

func (r *quorumRules) formerArgs(i int, f former, accepted bool) string {
	late, used := "0", ""
	if f.Late {
		late = number(f.NotAfter)
	}
	if accepted && f.Used >= 0 {
		used = number(f.Used)
	}
	return join(quorumOwner(i, f.Serial), number(f.Proposal), quorumChannel, number(quorumKeep), late, used)
}

// giveBack releases in the background what a server may have granted.
func (r *quorumRules) giveBack(v *View[voter], i, s int, argv string) {
	v.Send(Packet{Kind: errand, To: int8(i), Server: int8(s), Script: quorumRelease, Argv: argv})
}

func (r *quorumRules) Moves(v *View[voter], do func(what string, who int, move func(v *View[voter]))) {
	for i, a := range v.Actors {
		for s, f := range a.Former {
			if f.Serial != 0 && unreached(v, i, formerTag, s) {
				do(fmt.Sprint("give up the former vote at ", s), i, func(v *View[voter]) { r.giveUpFormer(v, i, s) })
			}
		}
		lost := func(tag uint8, s int) bool { return !exchange(v, i, tag, s) && !v.down(s) }
		switch a.Stage {
		case stageAbsent:
			if i == 0 || v.Actors[i-1].Stage != stageAbsent {
				do("vote", i, func(v *View[voter]) {
					v.Actors[i].Wants = r.wants
					r.vote(v, i)
				})
			}
		case stageResting:
			if a.Serial < r.rounds {
				do("vote", i, func(v *View[voter]) { r.vote(v, i) })
			}
		case stageVoting, stageRaising:
			if r.stuck(v, i) {
				do("time out", i, func(v *View[voter]) { r.timeOut(v, i) })
			}
			for s, o := range a.Votes {
				if a.Stage == stageVoting && o.Status == voteOpen && lost(voteTag, s) {
					do(fmt.Sprint("ask again at ", s), i, func(v *View[voter]) {
						v.Actors[i].Votes[s].Late = true
						r.ask(v, i, s)
					})
				}
				if a.Stage == stageRaising && o.Out == outSent && lost(acceptTag, s) {
					do(fmt.Sprint("raise again at ", s), i, func(v *View[voter]) { r.raise(v, i, s) })
				}
			}
		case stageLocked:
			do("unlock", i, func(v *View[voter]) { r.unlock(v, i) })
			if a.Renewing && r.stuck(v, i) {
				do("end the renewal", i, func(v *View[voter]) { r.renewalEnds(v, i) })
			} else if !a.Renewing && !a.Renewed {
				do("renew", i, func(v *View[voter]) { r.renew(v, i) })
			}
			if v.Left.Extra > 0 && a.Used == a.Token {
				do("pass on in memory", i, func(v *View[voter]) {
					v.Left.Extra--
					a := &v.Actors[i]
					a.Used += 5
					if a.Token <= v.Notes[0] { // else it began after it was forced
						v.Notes[0] = max(v.Notes[0], a.Used)
					}
				})
			}
		case stageFreeing:
			for s, o := range a.Votes {
				if o.Out == outSent && lost(releaseTag, s) {
					do(fmt.Sprint("release again at ", s), i, func(v *View[voter]) { r.releaseAgain(v, i, s) })
				}
				if o.Out == outAwaited && unreached(v, i, voteTag, s) {
					do(fmt.Sprint("release without the vote at ", s), i, func(v *View[voter]) {
						v.Forsake(i, voteTag+uint8(s))
						r.release(v, i, s)
					})
				}
			}
		}
		if v.Left.Cancels > 0 && (a.Stage == stageResting || (a.Stage == stageVoting || a.Stage == stageRaising) && !a.GaveUp) {
			do("cancel", i, func(v *View[voter]) {
				v.Left.Cancels--
				r.cancel(v, i)
			})
		}
	}
	if v.Left.Forced > 0 {
		r.forces(v, do)
	}
}

// forces are forced unlocks by an operator, at all servers: of any holder, or only of the one that was seen.
func (r *quorumRules) forces(v *View[voter], do func(what string, who int, move func(v *View[voter]))) {
	force := func(argv string) func(v *View[voter]) {
		return func(v *View[voter]) {
			v.Left.Forced--
			for s := range quorumServers { // any of them may not be reached
				v.Send(Packet{Kind: orphan, To: -1, Server: int8(s), Script: quorumForce, Argv: argv})
			}
		}
	}
	for s := range quorumServers {
		owner, _ := holder(v.Space(s))
		if owner == "" {
			continue
		}
		if r.heldBy(v, owner) >= r.need() {
			do("force the lock", -1, force(join(quorumChannel, number(quorumKeep))))
			do("force the holder", -1, force(join(quorumChannel, number(quorumKeep), owner)))
			return
		}
	}
}

// stuck: nothing comes any more of what the present round, or a renewal, waits for, or only if a server comes back.
func (r *quorumRules) stuck(v *View[voter], i int) bool {
	a := &v.Actors[i]
	for s, o := range a.Votes {
		switch {
		case a.Stage == stageVoting && o.Status == voteOpen && !unreached(v, i, voteTag, s),
			a.Stage == stageRaising && o.Out == outSent && !unreached(v, i, acceptTag, s),
			a.Stage == stageLocked && !unreached(v, i, prolongTag, s):
			return false
		}
	}
	return true
}

func (r *quorumRules) cancel(v *View[voter], i int) {
	a := &v.Actors[i]
	if a.Stage == stageResting {
		a.Wants = 0
		r.end(v, i)
	} else {
		a.GaveUp = true
	}
}

// end forgets a round. The voter wants the lock again, or never more.
func (r *quorumRules) end(v *View[voter], i int) {
	a := &v.Actors[i]
	b := voter{Stage: stageResting, Serial: a.Serial, Wants: a.Wants, Rested: a.Rested, Seen: a.Seen, Former: a.Former}
	if a.GaveUp || a.Wants == 0 {
		b.Stage, b.Wants, b.Serial, b.Seen, b.Rested = stageServed, 0, 0, 0, false
	}
	*a = b
}
