package queue

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

// schedule sets the next heartbeat: after three fifths of the liveness time, which leaves time to repeat it, or when the
// holder's time is over, if that is earlier. Mu held.
func (q *queue) schedule(left time.Duration) {
	b := &q.beat
	d := q.S().Liveness / 5 * 3
	if left >= 0 {
		d = min(d, left+time.Millisecond)
	}
	at := time.Now().Add(d)
	if !b.at.IsZero() && !at.Before(b.at) {
		return // even if that is past: the timer may be late, but it comes
	}
	b.at = at
	if b.timer == nil {
		b.timer = time.AfterFunc(d, q.sendHeartbeat)
	} else {
		b.timer.Reset(d)
	}
}

// sendHeartbeat keeps this session's cohorts alive, and learns what became of those that no message reached.
func (q *queue) sendHeartbeat() {
	s := q.S()
	if !s.Begin() {
		return
	}
	defer s.End()
	q.inbox.Listen(q.Keys.Lock()) // another server may have the lock by now
	q.Mu.Lock()
	b := &q.beat
	b.at = time.Time{}
	if b.out { // one at a time
		b.again = true
		q.Mu.Unlock()
		return
	}
	args := []any{s.ID(), s.Args.Liveness, q.Keys.Channel, s.Args.Keep, q.inbox.Mode(q.Keys.Lock())}
	for _, c := range q.standing {
		if c.state == queued || c.told.token != 0 {
			args = append(args, c.grant.Owner)
		}
	}
	owners := args[5:]
	if len(owners) == 0 {
		q.Mu.Unlock()
		return
	}
	b.out = true
	q.Mu.Unlock()

	o := s.Link.Call(s.Ctx, heartbeatScript, &protocol.Same{Script: heartbeatScript, Keys: q.Keys, Argv: args}, 1, nil)

	q.Mu.Lock()
	defer q.Mu.Unlock()
	b.out = false
	next := q.heartbeatAnswered(o, owners)
	if b.again {
		b.again, next = false, 0
	}
	if len(q.standing) > 0 {
		q.schedule(next)
	}
}

// heartbeatRetry is the time until the next heartbeat where this one did not say everything.
func heartbeatRetry() time.Duration { return wire.Backoff(2, 20*time.Millisecond, time.Second) }

// heartbeatAnswered takes in the outcome, and returns when the holder's time is over; negative: that is not known.
// Mu held.
func (q *queue) heartbeatAnswered(o wire.Outcome, owners []any) (next time.Duration) {
	reply, about, _ := strings.Cut(o.Reply, "\n")
	words := strings.Fields(reply) // 'B' or 'A', and perhaps a 'D', the Redis time, the lease left, holder and token, and the attempts that are missing
	if o.Err == nil && len(words) < 5 {
		o.Err = wire.Unexpected(o.Reply)
	}
	if o.Err != nil {
		q.heartbeatFailed(o)
		return heartbeatRetry()
	}
	if strings.HasSuffix(words[0], "D") {
		q.inbox.Unheard(q.Keys.Lock(), o.Sent)
	}
	r := protocol.Answer{Now: protocol.TokenOrZero(words[1]), Holder: words[3], Token: protocol.TokenOrZero(words[4]), About: about}
	r.Left, _ = protocol.Remaining(words[2])
	q.S().Clock.Heard(r.Now, o.Sent)
	if r.Holder != "-" {
		q.Saw(r)
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
		switch c := q.attempt(owner); {
		case c == nil || c.state != queued || owner == r.Holder: // of the holder, below
		case !missing[owner]:
			c.heard(o.Sent, r)
		default: // it asks as a newcomer
			for w := c.members.First(); w != nil; w = w.Next() {
				w.Place = nil
			}
			q.forming.Prepend(&c.members)
			if c.grant.Late != 0 { // a copy may arrive, and must find it over
				c.withdraw()
			} else {
				c.retire()
			}
			q.ask()
		}
	}
	if c := q.attempt(r.Holder); c != nil { // it may have begun to wait since
		c.confirmed()
		c.learn(awardOf(r, o.Sent))
	}
	return next
}

// heartbeatFailed ends the waits whose patience is over, or all if the trouble will not end by itself. Mu
// held.
func (q *queue) heartbeatFailed(o wire.Outcome) {
	passing := wire.Judge(o.Err).Transient || strings.Contains(o.Err.Error(), "OOM ") // the places stay where Redis is full
	for _, c := range slices.Clone(q.standing) {
		if c.state == queued && !(passing && c.endures(o)) {
			c.dismiss(q.Keys.Failed(o.Err))
			c.withdraw()
		}
	}
}
