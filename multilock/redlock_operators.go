package multilock

import (
	"context"
	"fmt"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// Inspect returns the state of the lock, with the holder that a majority of the servers has. If no holder has
// a majority, the state shows a free lock. Inspect sends one request to each server. These requests change
// nothing. Inspect blocks until all servers have answered, but not longer than the time of
// [WithServerTimeout], and at most until ctx ends.
func (l *RedLock) Inspect(ctx context.Context) (rlock.State, error) {
	_, st, err := l.inspect(ctx)
	return st, err
}

// inspect returns the result of Inspect. It also returns the token of the holder on each server, which is 0
// for a server that does not have this holder.
func (l *RedLock) inspect(ctx context.Context) (tokens []int64, _ rlock.State, err error) {
	states, votes, err := each(ctx, l, func(i int) (protocol.State, error) {
		return l.parts[i].Inspect(ctx)
	})
	if err != nil {
		return nil, rlock.State{}, err
	}
	free := rlock.State{Name: l.Name()}
	now := time.Now()
	holders := map[string]tally{} // votes for each holder
	seen := map[string]bool{}     // owner fields that were counted already
	for _, i := range votes.servers(granted) {
		st := states[i]
		free.Token = max(free.Token, st.Token)
		// Owner fields differ from server to server. So if two states have the same owner field, two sessions
		// lead to one server, which has one vote.
		if !st.Held || seen[st.Owner] {
			continue
		}
		seen[st.Owner] = true
		who := holderOf(st.Owner)
		if holders[who] == nil {
			holders[who] = l.q.tally(refused)
		}
		// Use the highest token that the server has stored. It may be above the token of the server's grant
		// (see makeSafe).
		holders[who][i] = vote{granted, max(st.Token, st.Floor), now.Add(st.Remaining)}
	}
	for who, parts := range holders {
		if !parts.won() {
			continue
		}
		tokens = make([]int64, len(parts))
		locked := l.q.tally(refused) // parts whose holder has not called Unlock; HoldAtLeast keeps the others
		var h rlock.Holder
		for _, i := range parts.servers(granted) {
			tokens[i], h = states[i].Token, rlock.Holder(states[i].Holder)
			if stayedMark(states[i].Owner) == "" {
				locked[i].kind = granted
			}
		}
		h.Owner, h.Session, h.Servers = who, who, parts.count(granted)
		if h.Unlocked = !locked.won(); h.Unlocked { // only HoldAtLeast keeps the lock taken
			h.Owner += stayed
		}
		h.Token, h.Remaining = parts.token(), parts.validUntil().Sub(now)
		return tokens, rlock.State{Name: l.name, Held: true, Holder: h, Holders: []rlock.Holder{h}}, nil
	}
	return nil, free, nil
}

// each calls f for all servers, and waits for the answers until the server timeout, or until ctx ends. If a
// majority has answered without an error, the function each returns the results by server, and a tally in
// which the votes of these servers are granted.
func each[T any](ctx context.Context, l *RedLock, f func(i int) (T, error)) ([]T, tally, error) {
	if err := l.check(ctx); err != nil {
		return nil, nil, err
	}
	q := l.q
	if !q.home.Begin() {
		return nil, nil, failure.Named(l.name, failure.ErrClosed)
	}
	defer q.home.End()
	until, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	p := startPoll(q, q.tally(pending), f)
	p.await(until, func() bool { return false })
	switch {
	case p.votes.won():
		return p.values, p.votes, nil
	case ctx.Err() != nil:
		return nil, nil, failure.Named(l.name, failure.OfContext(ctx))
	}
	return nil, nil, failure.Named(l.name, p.noMajority("answered", granted))
}

// ForceUnlock frees the lock on all servers that can be reached, and reports whether it was held on any of
// them. If these servers are no majority, ForceUnlock returns false and an error, although it may have freed
// the lock on some servers. See [rlock.Mutex.ForceUnlock].
func (l *RedLock) ForceUnlock(ctx context.Context) (bool, error) {
	return l.force(ctx, nil)
}

// ForceUnlockToken is like ForceUnlock, but only for the holder that Inspect has returned with this token. It
// frees the lock on each server that can be reached and that has this holder. If this holder has no majority
// any more, ForceUnlockToken changes nothing and returns false. If it returns an error because too few
// servers have answered, the holder may have lost the lock on some servers. Call Inspect again to see the
// state.
//
// ForceUnlockToken first reads the state of each server by one request. Then it frees the lock by another
// request to each server that has this holder. A single request to each server would not be safe, because
// each server has its own token for the hold. A server cannot compare its token with the token that Inspect
// has returned, so it could free the lock of a newer holder. See [rlock.Mutex.ForceUnlockToken].
func (l *RedLock) ForceUnlockToken(ctx context.Context, token int64) (bool, error) {
	if err := l.check(ctx); err == nil && token <= 0 {
		return false, failure.Named(l.name,
			fmt.Errorf("ForceUnlockToken: the token must be above 0, but is %d", token))
	}
	tokens, st, err := l.inspect(ctx)
	if err != nil || !st.Held || st.Token != token {
		return false, err
	}
	return l.force(ctx, tokens)
}

// force frees the lock on all servers that can be reached, and reports whether it was held on any of them.
// After an error, held is false. If tokens is not nil, force skips servers whose token is 0. On all other
// servers, it frees only the hold with the token of that server.
func (l *RedLock) force(ctx context.Context, tokens []int64) (held bool, err error) {
	freed, _, err := each(ctx, l, func(i int) (int, error) {
		switch {
		case tokens == nil:
			return l.parts[i].Force(ctx, engine.ForceExclusive)
		case tokens[i] == 0:
			return 0, nil
		}
		// The request has the token of this server. A newer holder has a higher token there, so the request
		// does not free the lock of a newer holder, even if it arrives late.
		return l.parts[i].Force(ctx, protocol.Number(tokens[i]))
	})
	for _, n := range freed {
		held = held || n > 0
	}
	return held, err
}
