package quorum

import (
	"slices"
	"time"
)

// ahead is by how much a token may be above the servers' clocks for proposals to follow it. So whatever a key has,
// the tokens that are stored stay far below what the servers refuse (redlock_lock.lua: a day), also where their clocks
// differ by hours.
const ahead = 12 * time.Hour

// now estimates the clock of the server that is ahead, in microseconds; 0 while none is known. One that is far ahead of
// the others does not carry the tokens along.
func (q *Quorum) now() int64 {
	var room [8]int64
	clocks, local := room[:0], time.Now()
	for _, m := range q.members {
		if t := m.Clock.Now(local); t != 0 {
			clocks = append(clocks, t)
		}
	}
	if len(clocks) == 0 {
		return 0
	}
	slices.Sort(clocks)
	return min(clocks[len(clocks)-1], clocks[(len(clocks)-1)/2]+(ahead/2).Microseconds())
}

// credible: the token is not far above the clocks, as no token of ours is.
func (q *Quorum) credible(token int64) bool { return token <= q.now()+ahead.Microseconds() }

// saw notes a token, for all later proposals to be higher. One that is not credible comes from a key that
// another program wrote: to follow it would drive the tokens up until the servers refuse them.
func (q *Quorum) saw(token int64) {
	for {
		seen := q.seen.Load()
		if token <= seen || !q.credible(token) || q.seen.CompareAndSwap(seen, token) {
			return
		}
	}
}

// propose makes the first token of a new block, without a request. It is the time of the server that is ahead of the others, or one above the
// highest token seen, if that is later. No other proposal of this session is the same.
func (q *Quorum) propose() int64 {
	now := max(1, q.now())
	for {
		seen, token := q.seen.Load(), now
		if seen >= now && q.credible(seen) { // else the clocks were set back
			token = seen + 1
		}
		if q.seen.CompareAndSwap(seen, token) {
			return token
		}
	}
}
