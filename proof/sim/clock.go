package sim

import (
	"slices"
	"time"

	"github.com/lockline/lockline/internal/protocol"
)

// furthest is by how much a server's clock is set back at most, in all steps together: for longer than that,
// Redis remembers the last token.
const furthest = protocol.Retention - time.Second

// step is how a clock was set back.
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

// setBack sets the server's clock back. Redis knows of a key when it expires, so it stays for longer by as
// much. Miniredis knows how much time it has left, so that is made more. Nothing else may be under way.
func (s *server) setBack(d time.Duration) {
	s.tick()
	keys := s.Keys() // without those that have expired
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

// setSince is by how much the clock was set back since then.
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
			// Those whose time was over and whom no request has dropped yet: it would begin again.
			l.dropped(s.scores(l.key+":q"), now)
			if p, ok := l.rules.(*permits); ok {
				p.holders, _, _ = p.read() // as above
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

// setMost is by how much any clock was set back until now: what ends by the servers' clocks may end so much
// later.
func (w *world) setMost() (most time.Duration) {
	for _, s := range w.servers {
		most = max(most, s.setSince(w.start))
	}
	return most
}

// fallen reports whether tokens may be as low as the clock, though higher ones were granted: the server has
// forgotten these, and its clock was set back behind them. From then on, they grow again. mu held.
func (l *lock) fallen(token, now int64) bool {
	s := l.on[0]
	// Now is a little after the request.
	forgot := s.forgot.After(l.moved) || l.wiped.After(l.moved)
	if s.setSince(l.w.start) == 0 || !forgot || token < now-1 || token <= l.known {
		return false
	}
	l.w.counts.Add("tokens fell")
	l.highest, l.last, l.fell = 0, 0, time.Now()
	return true
}

// fellLately reports whether a session may still hold, by its own clock, a grant that Redis has forgotten,
// with a higher token than Redis grants now. The session considers such a grant late. mu held.
func (l *lock) fellLately() bool {
	return !l.fell.IsZero() && time.Since(l.fell) < longest+l.w.setMost()
}

// revived takes in a request that has come at the server's time now. If its attempt is over, the request may
// be one that would be void if the clock had not been set back since. Then no tombstone is kept for it, and
// it is carried out.
func (l *lock) revived(c *call, now int64) {
	if q := c.asked(); q != nil {
		l.revivedAs(q.attempt, c, now)
	}
}

// revivedAs is revived of an attempt that lock.over knows by a name.
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
