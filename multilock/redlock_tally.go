package multilock

import (
	"slices"
	"time"
)

// A tally has the votes of all servers of a quorum, by the index of the server. Its methods do all of the
// arithmetic of a RedLock, without goroutines and I/O. A RedLock is safe because any two majorities of the
// same set of servers share a server. All processes must use the same set.
//
//   - Two holders cannot both have a majority, because the shared server has only one holder at a time. A
//     former holder stops counting its part before that server can grant the lock to another holder. For
//     this, the part counts only until its local deadline, which is before its lease ends on the server
//     (majority.votes, protocol.Valid). An Unlock ends the hold before it releases the parts.
//   - Tokens grow, because the shared server grants only tokens above the tokens that it has stored (see the
//     method stored).
//
// Both reasons assume that a server does not forget its grants. (If one server at a time forgets, see
// redlock_rejoin.go.) The first reason also assumes that no operator frees the lock by force. It assumes,
// too, that no clock of a server is set forward, and that clocks run at the same rate, to 1 %.
type tally []vote

// A vote is the answer of one server, as far as it is known. The zero vote is pending.
type vote struct {
	kind       voteKind
	token      int64     // token of the grant; the server grants only higher tokens later
	validUntil time.Time // time until which the grant is valid
}

type voteKind uint8

const (
	pending voteKind = iota // the server has not answered yet
	granted                 // the server has granted the lock, or confirmed the hold
	refused                 // another holder has the lock there, or the server does not have the hold
	failed                  // the server has returned a temporary error, or has not answered in time
	broken                  // the server has returned a permanent error
)

// newTally returns a tally of n servers, in which each vote is of this kind.
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

// servers returns the indexes of the servers whose votes are of this kind.
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

// blocked reports whether so many votes are of these kinds that the other votes are no majority.
func (t tally) blocked(kinds ...voteKind) bool { return len(t)-t.count(kinds...) < t.need() }

// open reports whether no majority has granted yet, but pending votes may still make one.
func (t tally) open() bool { return !t.won() && t.majority(granted, pending) }

// bare reports whether no more servers than necessary have granted, so that the loss of one more server would
// end the hold.
func (t tally) bare() bool { return t.count(granted) <= t.need() }

// explained reports whether the votes explain why there will be no majority. The votes explain this
//   - if others have the lock on so many servers that no majority is left;
//   - if a majority of the servers has granted or refused the lock;
//   - if so many servers fail that no majority can answer.
//
// While explained returns false, the error of the round could only say that some servers are slow to reply.
func (t tally) explained() bool {
	return t.blocked(refused) || t.majority(granted, refused) || t.blocked(failed, broken)
}

// token returns the token of a hold with these grants. It is the smallest number T for which a majority of
// the servers has granted a token of T or less. If all servers have granted, and there is an odd number of
// servers, T is the median of the tokens. Then a majority has granted T or higher tokens, so it has already
// stored T (see stored). If no majority has granted, token returns 0.
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

// stored returns which servers have stored a token T. T is safe if a majority has stored it, because these
// servers grant only higher tokens later. So tokens grow, as the following shows. Let N be the token of the
// next hold. A majority of the servers has granted tokens of N or less to the next hold (see token). This
// majority shares a server with the majority that has stored T. The token that the shared server has granted
// is above T, so N is above T.
//
// A server may forget T if it loses its data, or if the lock has been free for keepTokens. The server then
// takes the next token from its clock alone. After a loss of data, the next token may be below T. After
// keepTokens, it is above T, unless the clocks of the servers differ by more than keepTokens.
//
// If the grant of a server has T or a higher token, the server has stored T, and its vote in the result is
// granted. If the grant has a lower token, the vote in the result is pending, because T can still be sent to
// the server. If a server has not granted, its vote in the result is refused. If won reports true for the
// result, T is safe.
func (t tally) stored(token int64) tally {
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

// validUntil returns the time until which grants of a majority of the servers are valid. It returns the zero
// time if no majority has granted.
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
