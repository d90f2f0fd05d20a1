package engine

import (
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/pubsub"
)

// recipient is an attempt that waits in the queue in Redis, or a grant that the session may have to release
// when another session wants it. Its methods must not block. They are called without a mutex, and Shutdown
// waits for the caller.
type recipient interface {
	// Key returns the first key of the lock.
	Key() string
	// OnMessage handles a message. words are its words behind the owner field of the recipient. Any client
	// that may publish could have sent them. If there are no words, messages to the recipient may have been
	// missed.
	OnMessage(words []string)
}

// inbox receives the messages of a session, and passes them to its recipients. A script that hands a lock
// over publishes to a channel of the session whose attempt is next. By classic pub/sub a session has one
// channel. By sharded pub/sub it has one for each lock for which it waits, in the slot of that lock. The
// entry of an attempt in the queue names the channel to use (queue.lua). The inbox neither orders nor
// checks messages: an attempt knows by its nonce which messages Redis has sent.
type inbox struct {
	s     *session.Session
	ready chan struct{} // cap 1: a message has arrived on one of the channels

	// mu guards the following. It may be locked while a lockState.mu is held. Only the mutexes of the
	// session and of the hubs are locked while it is held.
	mu         sync.Mutex
	recipients map[string]recipient            // by owner field
	channels   map[string]*pubsub.Subscription // by name; a goroutine listens while there are any
}

func newInbox(s *session.Session) *inbox {
	return &inbox{s: s, ready: make(chan struct{}, 1),
		recipients: map[string]recipient{}, channels: map[string]*pubsub.Subscription{}}
}

// add makes a recipient known under an owner field.
func (in *inbox) add(owner string, r recipient) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.recipients[owner] = r
}

// remove forgets the recipient with this owner field.
func (in *inbox) remove(owner string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.recipients, owner)
}

// find returns the recipient with this owner field; nil if there is none.
func (in *inbox) find(owner string) recipient {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.recipients[owner]
}

// receive handles a message, whose first word is an owner field.
func (in *inbox) receive(message string) {
	words := strings.Fields(message)
	if len(words) == 0 {
		return
	}
	if r := in.find(words[0]); r != nil { // otherwise the attempt has ended, or it is not for us
		r.OnMessage(words[1:])
	}
}

// shardedChannel returns the channel of the session for a lock by sharded pub/sub. The scripts make the
// same name.
func (in *inbox) shardedChannel(key string) string {
	prefix := in.s.Args.Channels.(string) // the prefix of all keys, and then "s:"
	return prefix + key[len(prefix)-len("s:"):] + ":" + in.s.ID()
}

// mode returns the argument that tells scripts how to notify the session about the lock with this key, see
// queue.lua.
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

// subscribe makes the session receive messages about a lock while an attempt of this session is queued for
// it, and a little longer. The server has said whether the session may be notified by sharded pub/sub.
// After each confirmation of the subscription, attempts send their requests again, which tells Redis how to
// notify the session. Shutdown must be waiting for the caller.
func (in *inbox) subscribe(key string, maySharded bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	running := len(in.channels) > 0
	name, hub := in.s.Channel(), in.s.Hub
	if in.s.ShardedHub != nil {
		sharded := in.shardedChannel(key)
		if maySharded {
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

// reportUnsubscribed handles the reply of a server, to a request that was sent at sent, that it has no
// subscriber to the channel of the session.
func (in *inbox) reportUnsubscribed(key string, sent time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if sub := in.channels[in.channelOf(key)]; sub != nil {
		sub.Unheard(sent)
	}
}

// tidyInterval is the time between two looks for channels that no attempt needs. A busy lock usually has an
// attempt at that moment, so its channel is kept. Otherwise the hub keeps the subscription for a while. So
// the next attempt costs one request more, and no SUBSCRIBE.
const tidyInterval = 2 * time.Second

// run passes on the messages that arrive on the session's channels.
func (in *inbox) run() {
	tidy := time.NewTicker(tidyInterval)
	defer tidy.Stop()
	for {
		select {
		case <-in.ready:
			in.dispatch()
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

// dispatch passes on the messages that have arrived, and notifies recipients on whose channel a message may
// have been missed.
func (in *inbox) dispatch() {
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
		for _, r := range in.recipients {
			if gaps[in.channelOf(r.Key())] {
				missed = append(missed, r)
			}
		}
	}
	in.mu.Unlock() // a recipient locks the mutex of its lock, which comes before this one
	for _, m := range messages {
		in.receive(m)
	}
	for _, r := range missed {
		r.OnMessage(nil)
	}
}

// tidy closes the channels that no recipient needs. It returns false if no channel is left.
func (in *inbox) tidy() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	// Other sessions may want a kept grant at any time.
	needed := map[string]bool{in.s.Channel(): in.s.Linger > 0}
	for _, r := range in.recipients {
		needed[in.channelOf(r.Key())] = true
	}
	for name, sub := range in.channels {
		if !needed[name] {
			sub.Close()
			delete(in.channels, name)
		}
	}
	return len(in.channels) > 0
}

// channelOf returns the channel on which the session is notified about a lock. The caller must hold in.mu.
func (in *inbox) channelOf(key string) string {
	if in.s.ShardedHub != nil {
		if name := in.shardedChannel(key); in.channels[name] != nil {
			return name
		}
	}
	return in.s.Channel()
}
