package queue

import (
	"context"
	"crypto/subtle"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/pubsub"
)

// inbox is where grants arrive for a session's cohorts: on its own channels, and in replies to requests about any of
// them. It is a part of the session.
//
// By classic pub/sub a session has one channel. By sharded pub/sub it has one for each lock that it waits for, in the slot of
// that lock.
type inbox struct {
	s     *session.Session
	ready chan struct{} // cap 1: something has arrived on one of the channels

	mu      sync.Mutex         // guards what follows; may be taken under Lock.Mu; only the session's and the hubs' are taken under it
	cohorts map[string]*cohort // those that wait in Redis, by owner field
	ears    map[string]*ear    // by channel
	running bool               // the goroutine that listens
	probing map[string]bool    // locks of which it is asked whether their server can shard pub/sub
}

// ear listens on one channel. inbox.mu guards it.
type ear struct {
	sub  *pubsub.Subscription
	idle bool // nobody needed it when that was last looked at
}

type inboxKey struct{}

func inboxOf(s *session.Session) (*inbox, error) {
	return session.PartOf(s, inboxKey{}, func(s *session.Session) *inbox {
		return &inbox{s: s, ready: make(chan struct{}, 1), cohorts: map[string]*cohort{}, ears: map[string]*ear{}, probing: map[string]bool{}}
	})
}

// Shutdown has nothing to give back: waits end by themselves, and what is granted to them is released.
func (in *inbox) Shutdown(context.Context) error { return nil }

func (in *inbox) add(c *cohort) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.cohorts[c.owner()] = c
}

func (in *inbox) remove(c *cohort) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.cohorts, c.owner())
}

// find is the cohort that waits with an attempt; nil if none does.
func (in *inbox) find(owner string) *cohort {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.cohorts[owner]
}

// deliver gives an award to the attempt that it is for, if that still waits. The caller must be counted in the
// session's work.
func (in *inbox) deliver(owner string, w award) {
	if c := in.find(owner); c != nil {
		c.q.Mu.Lock()
		defer c.q.Mu.Unlock()
		c.q.learn(owner, w)
	}
}

// receive is deliver for what came on the session's channel: 'OWNER TOKEN NOW LEASE NONCE', or 'OWNER LEASE' for the
// next in the queue, which looks when that lease is over. Whoever may publish could have sent it, but only Redis was told the
// attempt's nonce; and to look costs a request.
func (in *inbox) receive(message string) {
	words := strings.Fields(message)
	if len(words) != 5 && len(words) != 2 {
		return
	}
	c := in.find(words[0])
	if c == nil {
		return
	}
	c.q.Mu.Lock()
	defer c.q.Mu.Unlock()
	switch {
	case len(words) == 2:
		if c.hint = milliseconds(words[1]); c.state == queued {
			c.q.schedule(c.hint)
		}
	case subtle.ConstantTimeCompare([]byte(c.nonce), []byte(words[4])) == 1:
		c.q.learn(words[0], award{token: protocol.TokenOrZero(words[1]), at: protocol.TokenOrZero(words[2]), lease: milliseconds(words[3])})
	}
}

// channel is the session's by classic pub/sub.
func (in *inbox) channel() string { return in.s.Args.Channels.(string) + in.s.ID() }

// shardedChannel is the session's for a lock by sharded pub/sub, as the scripts make it.
func (in *inbox) shardedChannel(q *queue) string {
	prefix := in.s.Args.Channels.(string)
	return prefix + q.Keys.Lock()[len(prefix)-len("s:"):] + ":" + in.s.ID()
}

// told is what scripts are told of how the session is to be told about a lock: lua/queue.lua.
func (in *inbox) told(q *queue) any {
	switch {
	case in.s.Link.Single():
		return "1"
	case in.s.ShardedHub == nil:
		return "0"
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ears[in.shardedChannel(q)] == nil {
		return "0"
	}
	return "2"
}

// listen subscribes to what is said about a lock while anybody here is queued for it, and a little longer. It asks
// first, in the background, whether the lock's server can shard pub/sub, if that is not known. After each confirmation of
// the subscription a heartbeat tells Redis how the session is to be told. The caller must be counted in the session's work.
func (in *inbox) listen(q *queue) {
	key := q.Keys.Lock()
	if possible, known := in.s.KnownSharded(key); known {
		in.hear(q, possible, true)
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.probing[key] {
		return
	}
	in.probing[key] = true
	in.s.Go(func() {
		possible, known := in.s.Sharded(in.s.Ctx, key)
		in.hear(q, possible, known)
		in.mu.Lock()
		defer in.mu.Unlock()
		delete(in.probing, key)
	})
}

// hear listens on the channel for a lock. Where it is not known which one that is, it keeps to the one that it has.
func (in *inbox) hear(q *queue, sharded, known bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var name string
	if in.s.ShardedHub != nil {
		name = in.shardedChannel(q)
		e := in.ears[name]
		switch {
		case !known && e != nil:
			return
		case !sharded && e != nil:
			e.sub.Close()
			delete(in.ears, name)
		}
	}
	hub := in.s.ShardedHub
	if !sharded {
		name, hub = in.channel(), in.s.Hub
	}
	if in.ears[name] != nil || !in.s.Begin() {
		return
	}
	defer in.s.End()
	in.ears[name] = &ear{sub: hub.SubscribeTo(name, in.ready)}
	if !in.running {
		in.running = true
		in.s.Go(in.run)
	}
}

// earTime is for how long a channel that nobody needs stays subscribed, and at most as long again.
const earTime = 2 * time.Second

// run hands out what arrives on the session's channels.
func (in *inbox) run() {
	idle := time.NewTicker(earTime)
	defer idle.Stop()
	for {
		select {
		case <-in.ready:
			in.take()
		case <-idle.C:
			if !in.rest() {
				return
			}
		case <-in.s.Closing():
			in.mu.Lock()
			defer in.mu.Unlock()
			for _, e := range in.ears {
				e.sub.Close()
			}
			return
		}
	}
}

// take hands out what has arrived.
func (in *inbox) take() {
	in.mu.Lock()
	var messages []string
	gaps := map[string]bool{} // a grant may have been missed on these
	for name, e := range in.ears {
		arrived, gap := e.sub.Take()
		messages = append(messages, arrived...)
		if gap {
			gaps[name] = true
		}
	}
	in.mu.Unlock()
	for _, m := range messages {
		in.receive(m)
	}
	if len(gaps) > 0 {
		in.beat(gaps)
	}
}

// rest closes the ears that nobody has needed for a while. It reports false if there are no more.
func (in *inbox) rest() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	needed := map[string]bool{}
	for _, c := range in.cohorts {
		needed[in.earOf(c.q)] = true
	}
	for name, e := range in.ears {
		if e.idle && !needed[name] {
			e.sub.Close()
			delete(in.ears, name)
		}
		e.idle = !needed[name]
	}
	in.running = len(in.ears) > 0
	return in.running
}

// earOf is the channel on which the session listens for a lock. mu held.
func (in *inbox) earOf(q *queue) string {
	if in.s.ShardedHub != nil {
		if name := in.shardedChannel(q); in.ears[name] != nil {
			return name
		}
	}
	return in.channel()
}

// beat sends a heartbeat for each lock that this session waits for, and listens for on one of these channels.
func (in *inbox) beat(channels map[string]bool) {
	in.mu.Lock()
	queues := map[*queue]bool{}
	for _, c := range in.cohorts {
		if channels[in.earOf(c.q)] {
			queues[c.q] = true
		}
	}
	in.mu.Unlock()
	for q := range queues {
		q.Mu.Lock()
		if len(q.standing) > 0 {
			q.schedule(0)
		}
		q.Mu.Unlock()
	}
}
