package engine

import (
	"time"

	"github.com/lockline/lockline/internal/wakeup"
)

// A lock that is shared with Redisson has no queue. A release is published on the lock's channel. An attempt
// that was refused listens there, and asks again. No wake-up is lost: a confirmed subscription counts as
// news.

// ear is how a session waits for such a lock. It belongs to the pool, so that a hot lock stays subscribed.
// pool.mu guards it.
type ear struct {
	news    *wakeup.Listener // nil before the first refusal
	sharded bool             // of news
	rest    time.Time        // until then it is the turn of others
}

// restTime is the head start that a session gives, after its turn, to those that were told that the lock is
// free. It is longer than their requests take in one data center. Without it a session that comes back at
// once would win each time: its request leaves before the message of its release has reached the others.
const restTime = time.Millisecond

// few is the largest number of clients that may all ask at once after a release, this session included. With
// no more than that, a session whose turn was a single hold does not let others go first: beside one with
// long turns its share would be small.
const few = 2

// broadcast reports whether a release is published to all that wait. Else there is a queue.
func (p *pool) broadcast() bool { return p.keys.Channel != "" }

// leaveToOthers learns how many clients got the message of a release. mu held.
func (p *pool) leaveToOthers(g *Grant, told int64) {
	others := told
	if p.ear.news != nil {
		others-- // the session's own
	}
	p.rivals = others > 0
	if p.rivals && (g.passes > 0 || told > few) {
		p.ear.rest = time.Now().Add(restTime)
	}
}

// listen subscribes to what a release publishes, as the last refusal said. It does not wait for the
// confirmation.
func (p *pool) listen(sharded bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ear.news != nil && p.ear.sharded != sharded {
		p.deafen() // another server has the lock by now, or the user other rights
	}
	if p.ear.news == nil {
		hub := p.s().Hub
		if sharded {
			hub = p.s().ShardedHub
		}
		p.ear.news, p.ear.sharded = wakeup.Listen(p.keys.Channel, hub), sharded
	}
}

// news is ready when a release was published; nil before the first refusal. mu held.
func (e *ear) ready() <-chan struct{} {
	if e.news == nil {
		return nil
	}
	return e.news.Ready
}

// forget empties it: a request that is made now will see what has happened. mu held.
func (e *ear) forget() {
	if e.news != nil {
		e.news.Take()
	}
}

// deafen ends the subscription. mu held, or the pool is not used any more.
func (p *pool) deafen() {
	if p.ear.news != nil {
		p.ear.news.Close()
		p.ear.news = nil
	}
}
