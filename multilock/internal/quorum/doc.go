// Package quorum is the Store of RedLocks: grants on a majority of several independent servers. The algorithm is
// Redlock (redis.io, "Distributed Locks with Redis"), with messages instead of polling, and with fencing tokens that a
// majority has stored. How a tenure is held, nested and passed on is package mutex's business.
//
// Begin with Quorum.Ask in round.go: one attempt at a majority.
//
//	quorum.go    Quorum; New finds the one that the same sessions have already
//	member.go    one of the servers; slow ones are not asked
//	token.go     proposing tokens by the servers' clocks
//	round.go     a round of votes; rest.go: waiting for the next one
//	turnstile.go where those stand in line who were refused; package broadcast has them ask in turn
//	vote.go      what is known of a round at one server
//	tally.go     the arithmetic of majorities
//	request.go   requests about a grant, to all that may have granted it
//	keep.go      renewal by a majority, and joining servers that came back empty
//	store.go     the rest of mutex.Store
//
// A round is voting, then decided, then closed (roundState). Invariants kept here (docs/design.md, section 2): a hold is valid as
// long as it is on a majority (round.deadline). A grant without a majority is given back at once. Tokens grow,
// whichever minority fails.
package quorum
