package engine

import (
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/pubsub"
)

// A session has channels of its own for grants: a script that hands something to the first waiter in a
// queue tells that waiter's session. By classic pub/sub a session has one channel. By sharded pub/sub it has
// one for each lock that it waits for, in the slot of that lock. Those that no attempt needs are closed now
// and then. An attempt's entry in the queue says which one to use (queue.lua).

// recipient waits in a queue in Redis, or may be asked to give up what its session keeps. Its methods are
// called with no mutex held, by callers that are counted in the session's work, and must not block.
type recipient interface {
	// Key is the first key of what it waits for: a lock's hash, or the holders of permits.
	Key() string
	// OnMessage handles a message that begins with the attempt's owner field: the words behind that. Any client that
	// may publish could have sent it. No words: it may also be that messages about the attempt were missed.
	OnMessage(words []string)
}

// inbox is a session's: which attempts wait, and where the session listens for them. It keeps no order and
// judges no message: an attempt knows by its nonce what Redis said.
type inbox struct {
	s     *session.Session
	ready chan struct{} // cap 1: something has arrived on one of the channels

	// Guards what follows; may be taken under the mutex of a lock; only the session's and the hubs' are taken
	// under it.
	mu         sync.Mutex
	recipients map[string]recipient            // by owner field
	channels   map[string]*pubsub.Subscription // by name; a goroutine listens while there are any
}

func newInbox(s *session.Session) *inbox {
	return &inbox{s: s, ready: make(chan struct{}, 1),
		recipients: map[string]recipient{}, channels: map[string]*pubsub.Subscription{}}
}

// add notes that an attempt waits, or is about to.
func (in *inbox) add(owner string, a recipient) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.recipients[owner] = a
}

// remove forgets an attempt.
func (in *inbox) remove(owner string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.recipients, owner)
}

// find is the attempt that waits under an owner field; nil if none does.
func (in *inbox) find(owner string) recipient {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.recipients[owner]
}

// receive takes what came on one of the session's channels.
func (in *inbox) receive(message string) {
	words := strings.Fields(message)
	if len(words) == 0 {
		return
	}
	if a := in.find(words[0]); a != nil { // else the attempt is over, or any client sent this
		a.OnMessage(words[1:])
	}
}

// shardedChannel is the session's for a lock by sharded pub/sub, as the scripts make it.
func (in *inbox) shardedChannel(key string) string {
	prefix := in.s.Args.Channels.(string) // the prefix of all keys, and then "s:"
	return prefix + key[len(prefix)-len("s:"):] + ":" + in.s.ID()
}

// mode tells scripts how the session is to be notified about the lock with this key: queue.lua.
func (in *inbox) mode(key string) any {
	switch {
	case in.s.Link.Single():
		return "1"
	case in.s.ShardedHub == nil:
		return "0"
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.channels[in.shardedChannel(key)] == nil {
		return "0"
	}
	return "2"
}

// listen subscribes to what is said about a lock while an attempt of this session is queued for it, and a
// little longer. possible: the lock's server has said that the session may be told by sharded pub/sub. After
// each confirmation of the subscription the attempts ask again, which tells Redis how the session is to be
// notified. The caller must be counted in the session's work.
func (in *inbox) listen(key string, possible bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	running := len(in.channels) > 0
	name, hub := in.s.Channel(), in.s.Hub
	if in.s.ShardedHub != nil {
		sharded := in.shardedChannel(key)
		if possible {
			name, hub = sharded, in.s.ShardedHub
		} else if sub := in.channels[sharded]; sub != nil {
			sub.Close()
			delete(in.channels, sharded)
		}
	}
	if in.channels[name] != nil || !in.s.Begin() { // a session that closes would not end the subscription
		return
	}
	defer in.s.End()
	in.channels[name] = hub.SubscribeTo(name, in.ready)
	if !running {
		in.s.Go(in.run)
	}
}

// unheard: the server of a lock was asked at asked, or later, and knew of no listener of the session.
func (in *inbox) unheard(key string, asked time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if sub := in.channels[in.channelOf(key)]; sub != nil {
		sub.Unheard(asked)
	}
}

// tidyInterval is the time between two looks for channels that no attempt needs. A busy lock is seldom
// without an attempt at that moment. If it is, its channel lingers in the hub. So the next attempt costs one
// request more, and no SUBSCRIBE.
const tidyInterval = 2 * time.Second

// run hands out what arrives on the session's channels.
func (in *inbox) run() {
	tidy := time.NewTicker(tidyInterval)
	defer tidy.Stop()
	for {
		select {
		case <-in.ready:
			in.take()
		case <-tidy.C:
			if !in.tidy() {
				return
			}
		case <-in.s.Closing():
			in.mu.Lock()
			defer in.mu.Unlock()
			for _, sub := range in.channels {
				sub.Close()
			}
			return
		}
	}
}

// take hands out what has arrived, and tells the attempts on whose channel a grant may have been missed.
func (in *inbox) take() {
	in.mu.Lock()
	var messages []string
	gaps := map[string]bool{}
	for name, sub := range in.channels {
		arrived, gap := sub.Take()
		messages = append(messages, arrived...)
		if gap {
			gaps[name] = true
		}
	}
	var missed []recipient
	if len(gaps) > 0 {
		for _, a := range in.recipients {
			if gaps[in.channelOf(a.Key())] {
				missed = append(missed, a)
			}
		}
	}
	in.mu.Unlock() // an attempt takes its lock's mutex, which comes before this one
	for _, m := range messages {
		in.receive(m)
	}
	for _, a := range missed {
		a.OnMessage(nil)
	}
}

// tidy closes the channels that no attempt needs. It reports false if none is left.
func (in *inbox) tidy() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	needed := map[string]bool{in.s.Channel(): in.s.Linger > 0} // what it keeps may be wanted at any time
	for _, a := range in.recipients {
		needed[in.channelOf(a.Key())] = true
	}
	for name, sub := range in.channels {
		if !needed[name] {
			sub.Close()
			delete(in.channels, name)
		}
	}
	return len(in.channels) > 0
}

// channelOf is the channel on which the session listens for a lock. mu held.
func (in *inbox) channelOf(key string) string {
	if in.s.ShardedHub != nil {
		if name := in.shardedChannel(key); in.channels[name] != nil {
			return name
		}
	}
	return in.s.Channel()
}
