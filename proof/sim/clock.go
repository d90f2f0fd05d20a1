package sim

import (
	"slices"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// furthest is the most by which a server's clock is set back, in all steps together. It is less than the time
// for which Redis remembers the last token.
const furthest = protocol.Retention - time.Second

// A step is one change of a clock, which was set back by d.
type step struct {
	at time.Time
	d  time.Duration
}

// tick brings the server's clock up to date, and returns it in microseconds.
func (s *server) tick() int64 {
	s.mu.Lock()
	ahead := s.ahead
	s.mu.Unlock()
	now := s.w.start.Add(ahead + time.Duration(float64(time.Since(s.w.start))*s.rate))
	s.SetTime(now)
	return now.UnixMicro()
}

// setBack sets the server's clock back by d. Redis stores the time at which a key expires, so this step makes
// keys live longer. miniredis stores the remaining time instead, so setBack adds d to it. No request may be
// in flight.
func (s *server) setBack(d time.Duration) {
	s.tick()
	keys := s.Keys() // expired keys are gone after tick
	s.mu.Lock()
	s.ahead -= d
	s.steps = append(s.steps, step{time.Now(), d})
	s.mu.Unlock()
	s.tick()
	for _, key := range keys {
		if left := s.TTL(key); left > 0 {
			s.SetTTL(key, left+d)
		}
	}
}

// setSince returns the time by which the clock was set back since start.
func (s *server) setSince(start time.Time) (d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, step := range s.steps {
		if !step.at.Before(start) {
			d += step.d
		}
	}
	return d
}

// setClocks sets the clocks of running servers back, now and then.
func (w *world) setClocks(stop <-chan struct{}) {
	rnd := w.rand(1<<37 + 1)
	for {
		select {
		case <-stop:
			return
		case <-time.After(w.clock.Until(upTo(rnd, 4*time.Second))):
		}
		s := w.servers[rnd.IntN(len(w.servers))]
		d := 1 + upTo(rnd, 10*time.Millisecond, 2*time.Second, furthest)
		if s.away() || d > furthest-s.setSince(w.start) {
			continue
		}
		w.mu.Lock()
		for _, l := range w.locks {
			now := s.tick()
			if l.on[0] != s || l.kind == 'q' {
				continue
			}
			// Waiters that have left the queue are checked now. By the clock after the step, they would seem
			// to have been dropped while they were alive.
			l.dropped(s.scores(l.key+":q"), now)
			if p, ok := l.rules.(*permits); ok {
				p.holders, _, _ = p.read() // without the holders whose keys have expired
			}
		}
		s.setBack(d)
		for _, l := range w.locks {
			if slices.Contains(l.on, s) {
				l.rules.setBack(s)
			}
		}
		w.counts.Add("clocks set back")
		w.log("the clock of server %d is set back by %v", s.number, d)
		w.mu.Unlock()
	}
}

// setMost returns the most by which a clock was set back so far. A time that a server measures by its clock
// may end later by as much.
func (w *world) setMost() (most time.Duration) {
	for _, s := range w.servers {
		most = max(most, s.setSince(w.start))
	}
	return most
}

// fallen reports whether a token may be lower than earlier tokens, because the server has forgotten them and
// its clock was set back. If so, later tokens need only be higher than this token. The caller must hold
// world.mu.
func (l *lock) fallen(token, now int64) bool {
	s := l.on[0]
	// now is a little later than the request.
	forgot := s.forgot.After(l.moved) || l.wiped.After(l.moved)
	if s.setSince(l.w.start) == 0 || !forgot || token < now-1 || token <= l.known {
		return false
	}
	l.w.counts.Add("tokens fell")
	l.highest, l.last, l.fell = 0, 0, time.Now()
	return true
}

// fellLately reports whether a session may still have, by its own clock, a grant that Redis has forgotten. If
// this grant has a higher token than new grants, the session ignores the new grants as stale. The caller must
// hold world.mu.
func (l *lock) fellLately() bool {
	return !l.fell.IsZero() && time.Since(l.fell) < longest+l.w.setMost()
}

// revived handles a request of an attempt that has ended. If the clock was set back after that end, a request
// may be valid that would be void otherwise. The attempt's tombstone may have expired before that. Then the
// request may be granted, so the attempt is removed from lock.over.
func (l *lock) revived(c *call, now int64) {
	if q := c.asked(); q != nil {
		l.revivedAs(q.attempt, c, now)
	}
}

// revivedAs does the same as revived, for an attempt that has another name in lock.over.
func (l *lock) revivedAs(name string, c *call, now int64) {
	q := c.asked()
	if q == nil {
		return
	}
	if end, ok := l.over[name]; ok && now <= q.until &&
		now+c.server.setSince(end.at).Microseconds() > q.until {
		l.w.counts.Add("void requests revived")
		delete(l.over, name)
	}
}
