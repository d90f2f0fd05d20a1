package engine

import (
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/pubsub"
)

// recipient is an attempt, or a grant that the session may keep while no goroutine has it. The methods of a
// recipient must not block. OnMessage is called without a mutex, and Shutdown waits for the caller.
type recipient interface {
	// Key returns the first key of the lock.
	Key() string
	// OnMessage handles a message. words are the words of the message after the owner field of the recipient.
	// Any client that may publish to the channel can forge a message. If there are no words, another session
	// wants the lock, or messages to the recipient may have been missed.
	OnMessage(words []string)
}

// inbox receives the messages of a session, and passes them to its recipients. A script that hands a lock
// over publishes to a channel of the session whose attempt is next. With classic pub/sub, a session has one
// channel. With sharded pub/sub, a session has one channel for each lock that it waits for or may keep. The
// name of this channel is in the slot of the lock. The entry of an attempt in the queue says which kind of
// pub/sub a script must use (queue.lua). The inbox neither orders nor checks messages. An attempt itself
// checks the nonce, which shows that a message about a grant is from Redis.
type inbox struct {
	s     *session.Session
	ready chan struct{} // has room for one notice that messages have arrived on any channel

	// mu guards the following. A goroutine that holds a lockState.mu may lock mu. While mu is held, only the
	// mutexes of the session and of the hubs may be locked.
	mu         sync.Mutex
	recipients map[string]recipient            // recipients by owner field
	channels   map[string]*pubsub.Subscription // subscriptions by channel name; run ends when none is left
}

func newInbox(s *session.Session) *inbox {
	return &inbox{s: s, ready: make(chan struct{}, 1),
		recipients: map[string]recipient{}, channels: map[string]*pubsub.Subscription{}}
}

// add registers a recipient under an owner field.
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
	if r := in.find(words[0]); r != nil { // otherwise the recipient has ended, or the message is forged
		r.OnMessage(words[1:])
	}
}

// shardedChannel returns the name of the session's channel for a lock in sharded pub/sub. The scripts make
// the same name.
func (in *inbox) shardedChannel(key string) string {
	prefix := in.s.Args.Channels.(string) // the prefix of all keys, and then "s:"
	return prefix + key[len(prefix)-len("s:"):] + ":" + in.s.ID()
}

// mode returns the argument DELIVERY of scripts (queue.lua). By this argument, a script decides how to notify
// the session about the lock with this key.
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

// subscribe subscribes the session to its channel for messages about a lock. The subscription ends when tidy
// finds that no recipient needs the channel any more. maySharded is true if the server can notify the session
// by sharded pub/sub. After each confirmation of the subscription, attempts send their requests again. These
// requests show Redis how to notify the session. The caller must be counted by session.Begin.
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
	if in.channels[name] != nil || !in.s.Begin() { // a closing session would never end the subscription
		return
	}
	defer in.s.End()
	in.channels[name] = hub.SubscribeTo(name, in.ready)
	if !running {
		in.s.Go(in.run)
	}
}

// reportUnsubscribed handles the reply that the server of a lock has no subscriber to the channel of the
// session. sent is the time at which the request was sent. If the subscription was confirmed before this
// time, its connection leads to another server, and the hub replaces the connection.
func (in *inbox) reportUnsubscribed(key string, sent time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if sub := in.channels[in.channelOf(key)]; sub != nil {
		sub.Unheard(sent)
	}
}

// tidyInterval is the time between two searches for channels that no recipient needs. During a search, a busy
// lock usually has an attempt, so its channel is kept. When tidy closes a subscription, the hub stays
// subscribed to the channel for a while. An attempt that comes in this time costs one more request, but no
// SUBSCRIBE.
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
	in.mu.Unlock() // OnMessage locks a lockState.mu, which must not be locked while mu is held
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
	// With WithLinger, the classic channel is always needed, because other sessions may want an unused grant
	// at any time.
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
