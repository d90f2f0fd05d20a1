package multilock

import (
	"slices"
	"time"
)

// A tally is the votes of all servers of a quorum, by server. It has all of the arithmetic of a RedLock, and
// neither goroutines nor I/O. The arithmetic rests on the fact that two majorities of the same servers share
// a server.
//
//   - Two holders cannot both have a majority, because the shared server has one holder.
//   - Tokens grow, because the shared server grants only tokens above those that it has stored (below).
type tally []vote

// A vote is the answer of one server, as far as it is known. The zero vote is pending.
type vote struct {
	kind       voteKind
	token      int64     // of a grant; a server with this grant grants only higher tokens later
	validUntil time.Time // of a grant
}

type voteKind uint8

const (
	pending voteKind = iota // the server has not answered yet
	granted                 // the server has granted the lock, or confirmed the hold
	refused                 // another holder has the lock there, or the server does not have the hold
	failed                  // an error, or no answer in time. Time may mend that
	broken                  // an error that time will not mend
)

// newTally returns a tally of n servers, whose votes are of one kind.
func newTally(n int, kind voteKind) tally {
	t := make(tally, n)
	for i := range t {
		t[i].kind = kind
	}
	return t
}

// need returns how many servers are a majority.
func (t tally) need() int { return len(t)/2 + 1 }

// count returns how many votes are of one of these kinds.
func (t tally) count(kinds ...voteKind) (n int) {
	for _, v := range t {
		if slices.Contains(kinds, v.kind) {
			n++
		}
	}
	return n
}

// servers returns the servers whose votes are of this kind.
func (t tally) servers(kind voteKind) (servers []int) {
	for i, v := range t {
		if v.kind == kind {
			servers = append(servers, i)
		}
	}
	return servers
}

// won reports whether a majority has granted.
func (t tally) won() bool { return t.majority(granted) }

// majority reports whether a majority of the votes is of these kinds.
func (t tally) majority(kinds ...voteKind) bool { return t.count(kinds...) >= t.need() }

// blocked reports whether so many votes are of these kinds that the other servers are no majority.
func (t tally) blocked(kinds ...voteKind) bool { return len(t)-t.count(kinds...) < t.need() }

// open reports whether the result depends on pending votes, so that there may be a majority later.
func (t tally) open() bool { return !t.won() && t.majority(granted, pending) }

// bare reports whether there is at most a majority, so that the loss of one server would be too much.
func (t tally) bare() bool { return t.count(granted) <= t.need() }

// explained reports whether the votes tell why there will be no majority:
//   - others have the lock on so many servers that no majority is left;
//   - or a majority has answered;
//   - or so many servers fail that no majority can answer.
//
// While explained is false, the error could only name servers that are slow to reply.
func (t tally) explained() bool {
	return t.blocked(refused) || t.majority(granted, refused) || t.blocked(failed, broken)
}

// token returns the token of a hold with these grants. It is the smallest number that the tokens of a
// majority do not exceed. With the grants of all of an odd number of servers, it is their median, so a
// majority has stored it already. It returns 0 without a majority.
func (t tally) token() int64 {
	if !t.won() {
		return 0
	}
	var tokens []int64
	for _, i := range t.servers(granted) {
		tokens = append(tokens, t[i].token)
	}
	slices.Sort(tokens)
	return tokens[t.need()-1]
}

// below returns the votes with which a token T becomes safe. T is safe if a majority has stored it, because
// these servers grant only higher tokens later. Then the next hold has a higher token: the majority of its
// grants shares a server with the majority that has stored T, and the grant of that server is above T.
//
// In the result, a server has granted if its grant is not below T, because it has stored T already. A server
// with a lower grant is pending, because it can be asked to store T. T is safe once the result is won.
func (t tally) below(token int64) tally {
	stored := newTally(len(t), refused)
	for i, v := range t {
		switch {
		case v.kind != granted:
		case v.token >= token:
			stored[i] = v
		default:
			stored[i].kind = pending
		}
	}
	return stored
}

// validUntil returns the time until which a majority of the grants is valid. It returns the zero time if the
// grants are no majority.
func (t tally) validUntil() time.Time {
	if !t.won() {
		return time.Time{}
	}
	var ends []time.Time
	for _, i := range t.servers(granted) {
		ends = append(ends, t[i].validUntil)
	}
	slices.SortFunc(ends, time.Time.Compare)
	return ends[len(ends)-t.need()]
}
