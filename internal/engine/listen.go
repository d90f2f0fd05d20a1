package engine

import (
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/pubsub"
)

// A lock that is shared with Redisson has no queue. A release is published on the lock's channel. An attempt
// that was refused listens there, and asks again. No wake-up is lost: a confirmed subscription counts as
// news. Behind an endpoint that was moved, the connection may lead to a former server. So the session listens
// on its own channel, too, which the server of the lock is asked about with each request.

// ear is how a session waits for such a lock. It belongs to the pool, so that a hot lock stays subscribed.
// pool.mu guards it. A nil one knows of no other session.
type ear struct {
	news    *pubsub.Subscription // nil before the first refusal
	own     *pubsub.Subscription // to the session's channel; nil where several servers could have it
	sharded bool                 // of news
	rest    time.Time            // until then it is the turn of others
}

// restTime is the head start that a session gives, after its turn, to those that were told that the lock is
// free. It is longer than their requests take in one data center. Without it a session that comes back at
// once would win each time: its request leaves before the message of its release has reached the others.
const restTime = time.Millisecond

// few is the largest number of clients that may all ask at once after a release. With no more than that, a
// session whose turn was a single hold does not let others go first: beside one with long turns its share
// would be small.
const few = 2

// broadcast reports whether a release is published to all that wait. Else there is a queue.
func (p *pool) broadcast() bool { return p.keys.Channel != "" }

// listen subscribes to what a release publishes, as a refusal said that was asked for at sent. It does not
// wait for the confirmation.
func (p *pool) listen(refusal protocol.Answer, sent time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ear == nil {
		p.ear = new(ear)
	}
	e, s := p.ear, p.s()
	if e.news != nil && e.sharded != refusal.Sharded {
		e.close() // another server has the lock by now, or the user other rights
	}
	if e.news == nil {
		hub := s.Hub
		if refusal.Sharded {
			hub = s.ShardedHub
		}
		e.news, e.sharded = hub.Subscribe(p.keys.Channel), refusal.Sharded
		if s.Link.Single() {
			e.own = s.Hub.Subscribe(s.Channel())
		}
	}
	if refusal.Deaf && e.own != nil {
		e.own.Unheard(sent)
	}
}

// leaveToOthers learns how many clients got the message of a release. mu held.
func (p *pool) leaveToOthers(g *Grant, told int64) {
	others := told
	if p.ear != nil && p.ear.news != nil {
		others-- // the session's own
	}
	p.rivals = others > 0
	if p.rivals && (g.passes > 0 || told > few) {
		if p.ear == nil {
			p.ear = new(ear)
		}
		p.ear.rest = time.Now().Add(restTime)
	}
}

// resting is for how long it is the turn of others. mu held.
func (e *ear) resting() time.Duration {
	if e == nil {
		return 0
	}
	return time.Until(e.rest)
}

// ready says that a release was published. mu held.
func (e *ear) ready() <-chan struct{} {
	if e == nil || e.news == nil {
		return nil
	}
	return e.news.C()
}

// forget empties it: a request that is made now will see what has happened. mu held.
func (e *ear) forget() {
	if e == nil {
		return
	}
	if e.news != nil {
		e.news.Take()
	}
	if e.own != nil {
		e.own.Take() // what it brings is not for this lock
	}
}

// close ends the subscriptions. mu held, or the pool is not used any more.
func (e *ear) close() {
	if e == nil {
		return
	}
	if e.news != nil {
		e.news.Close()
	}
	if e.own != nil {
		e.own.Close()
	}
	e.news, e.own = nil, nil
}
