package mutex

import (
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// heartbeat keeps a session's cohorts alive in a lock's queue. Lock.Mu guards it.
type heartbeat struct {
	timer *time.Timer
	at    time.Time // when the next one is due; zero: none is
	out   bool      // one is under way
	again bool      // another one was due meanwhile
}

// schedule sets the next heartbeat: after three fifths of the liveness time, which leaves time to repeat it,
// or when the holder's time is over, if that is earlier. Mu held.
func (l *Lock) schedule(left time.Duration) {
	b := &l.beat
	d := l.S().Liveness / 5 * 3
	if left >= 0 {
		d = min(d, left+time.Millisecond)
	}
	at := time.Now().Add(d)
	if !b.at.IsZero() && !at.Before(b.at) {
		return // even if that is past: the timer may be late, but it comes
	}
	b.at = at
	if b.timer == nil {
		b.timer = time.AfterFunc(d, l.sendHeartbeat)
	} else {
		b.timer.Reset(d)
	}
}

// sendHeartbeat keeps this session's cohorts alive, and learns what became of those that no message reached.
func (l *Lock) sendHeartbeat() {
	s := l.S()
	if !s.Begin() {
		return
	}
	defer s.End()
	l.table.inbox.Listen(l.Keys.Lock()) // another server may have the lock by now
	l.Mu.Lock()
	b := &l.beat
	b.at = time.Time{}
	if b.out { // one at a time
		b.again = true
		l.Mu.Unlock()
		return
	}
	args := []any{s.ID(), s.Args.Liveness, l.Keys.Channel, s.Args.Keep, l.table.inbox.Mode(l.Keys.Lock())}
	for _, c := range l.standing {
		if c.state == queued || c.told.token != 0 {
			args = append(args, c.grant.Owner)
		}
	}
	owners := args[5:]
	if len(owners) == 0 {
		l.Mu.Unlock()
		return
	}
	b.out = true
	l.Mu.Unlock()

	r := &protocol.Same{Script: heartbeatScript, Keys: l.Keys, Argv: args}
	o := s.Link.Call(s.Ctx, heartbeatScript, r, 1, nil)

	l.Mu.Lock()
	defer l.Mu.Unlock()
	b.out = false
	next := l.heartbeatAnswered(o, owners)
	if b.again {
		b.again, next = false, 0
	}
	if len(l.standing) > 0 {
		l.schedule(next)
	}
}

// heartbeatRetry is the time until the next heartbeat where this one did not say everything.
func heartbeatRetry() time.Duration { return wire.Backoff(2, 20*time.Millisecond, time.Second) }

// heartbeatAnswered takes in the outcome, and returns when the holder's time is over; negative: that is not
// known. Mu held.
func (l *Lock) heartbeatAnswered(o wire.Outcome, owners []any) (next time.Duration) {
	reply, about, _ := strings.Cut(o.Reply, "\n")
	// 'B' or 'A', and perhaps a 'D', the Redis time, the lease left, holder and token, and who is missing
	words := strings.Fields(reply)
	if o.Err == nil && len(words) < 5 {
		o.Err = wire.Unexpected(o.Reply)
	}
	if o.Err != nil {
		l.heartbeatFailed(o)
		return heartbeatRetry()
	}
	if strings.HasSuffix(words[0], "D") {
		l.table.inbox.Unheard(l.Keys.Lock(), o.Sent)
	}
	r := protocol.Answer{Now: protocol.TokenOrZero(words[1]), Holder: words[3], About: about}
	r.Token = protocol.TokenOrZero(words[4])
	r.Left, _ = protocol.Remaining(words[2])
	l.S().Clock.Heard(r.Now, o.Sent)
	if r.Holder != "-" {
		l.Saw(r)
	}
	next = -1
	if r.Left >= 0 && words[0][0] == 'B' { // else another session looks
		next = r.Left
	}
	missing := map[string]bool{}
	for _, owner := range words[5:] {
		missing[owner] = true
	}
	for _, arg := range owners {
		owner := arg.(string)
		switch c := l.attempt(owner); {
		case c == nil || c.state != queued || owner == r.Holder: // of the holder, below
		case c.redis > r.Now: // it has asked again since, as one that was granted a lease that seems over does
		case !missing[owner]:
			c.heard(o.Sent, r)
		default: // it asks as a newcomer
			for w := c.members.First(); w != nil; w = w.Next() {
				w.Place = nil
			}
			l.forming.Prepend(&c.members)
			if c.grant.Late != 0 { // a copy may arrive, and must find it over
				c.withdraw()
			} else {
				c.retire()
			}
			l.ask()
		}
	}
	if c := l.attempt(r.Holder); c != nil { // it may have begun to wait since
		c.confirmed()
		c.learn(awardOf(r, o.Sent))
	}
	return next
}

// heartbeatFailed ends the waits whose patience is over, or all if the trouble will not end by itself. Mu
// held.
func (l *Lock) heartbeatFailed(o wire.Outcome) {
	passing := wire.Judge(o.Err).Transient || strings.Contains(o.Err.Error(), "OOM ") // the places stay where Redis is full
	for _, c := range slices.Clone(l.standing) {
		if c.state == queued && !(passing && c.endures(o)) {
			c.dismiss(l.Keys.Failed(o.Err))
			c.withdraw()
		}
	}
}
