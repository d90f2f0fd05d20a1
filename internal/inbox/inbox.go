package inbox

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/pubsub"
)

// An Attempt waits in a queue in Redis. Its methods are called with no mutex held, by callers that are
// counted in the session's work, and must not block.
type Attempt interface {
	// Key is the first key of what it waits for: a lock's hash, or the holders of permits.
	Key() string
	// Told is a message that begins with the attempt's owner field: the words behind that. Any client that
	// may publish could have sent it.
	Told(words []string)
	// Missed: messages about the attempt may have been missed.
	Missed()
}

// Inbox is that of a session: which attempts wait, and where the session listens for them. It is a part of
// the session.
type Inbox struct {
	s     *session.Session
	ready chan struct{} // cap 1: something has arrived on one of the channels

	// Guards what follows; may be taken under the mutex of a lock; only the session's and the hubs' are taken
	// under it.
	mu       sync.Mutex
	attempts map[string]Attempt // those that wait in Redis, by owner field
	ears     map[string]*ear    // by channel
	running  bool               // the goroutine that listens
}

// ear listens on one channel. inbox.mu guards it.
type ear struct {
	sub  *pubsub.Subscription
	idle bool // no attempt needed it at the last look
}

// NewNonce is a text without spaces that cannot be guessed. An attempt gives it to Redis alone, so a message
// that has it is Redis' own.
func NewNonce() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(random[:])
}

type key struct{}

// Of is a session's inbox. The error is that of session.PartOf.
func Of(s *session.Session) (*Inbox, error) {
	return session.PartOf(s, key{}, New)
}

// New is an inbox on its own, of no session's parts.
func New(s *session.Session) *Inbox {
	return &Inbox{
		s: s, ready: make(chan struct{}, 1), attempts: map[string]Attempt{}, ears: map[string]*ear{},
	}
}

// Shutdown has nothing to give back: waits end by themselves, and what is granted to them is released.
func (in *Inbox) Shutdown(context.Context) error { return nil }

// Add notes that an attempt waits, or is about to.
func (in *Inbox) Add(owner string, a Attempt) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.attempts[owner] = a
}

// Remove forgets an attempt.
func (in *Inbox) Remove(owner string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.attempts, owner)
}

// Find is the attempt that waits under an owner field; nil if none does.
func (in *Inbox) Find(owner string) Attempt {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.attempts[owner]
}

// Receive takes what came on one of the session's channels.
func (in *Inbox) Receive(message string) {
	words := strings.Fields(message)
	if len(words) == 0 {
		return
	}
	if a := in.Find(words[0]); a != nil { // else the attempt is over, or any client sent this
		a.Told(words[1:])
	}
}

// shardedChannel is the session's for a lock by sharded pub/sub, as the scripts make it.
func (in *Inbox) shardedChannel(key string) string {
	prefix := in.s.Args.Channels.(string) // the prefix of all keys, and then "s:"
	return prefix + key[len(prefix)-len("s:"):] + ":" + in.s.ID()
}

// Mode tells scripts how the session is to be notified about the lock with this key: line.lua.
func (in *Inbox) Mode(key string) any {
	switch {
	case in.s.Link.Single():
		return "1"
	case in.s.ShardedHub == nil:
		return "0"
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.ears[in.shardedChannel(key)] == nil {
		return "0"
	}
	return "2"
}

// Listen subscribes to what is said about a lock while an attempt of this session is queued for it, and a
// little longer. possible: the lock's server has said that the session may be told by sharded pub/sub. After
// each confirmation of the subscription the attempts ask again, which tells Redis how the session is to be
// notified. The caller must be counted in the session's work.
func (in *Inbox) Listen(key string, possible bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var name string
	sharded := false
	if in.s.ShardedHub != nil {
		name = in.shardedChannel(key)
		sharded = possible || in.s.PubSub == session.PubSubSharded
		if e := in.ears[name]; !sharded && e != nil {
			e.sub.Close()
			delete(in.ears, name)
		}
	}
	hub := in.s.ShardedHub
	if !sharded {
		name, hub = in.s.Channel(), in.s.Hub
	}
	if in.ears[name] != nil || !in.s.Begin() { // a session that closes would not end the subscription
		return
	}
	defer in.s.End()
	in.ears[name] = &ear{sub: hub.SubscribeTo(name, in.ready)}
	if !in.running {
		in.running = true
		in.s.Go(in.run)
	}
}

// Unheard: the server of a lock was asked at asked, or later, and knew of no listener of the session.
func (in *Inbox) Unheard(key string, asked time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if e := in.ears[in.earOf(key)]; e != nil {
		e.sub.Unheard(asked)
	}
}

// earTime is how long a channel that no attempt needs stays subscribed, and at most as long again.
const earTime = 2 * time.Second

// run hands out what arrives on the session's channels.
func (in *Inbox) run() {
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

// take hands out what has arrived, and tells the attempts on whose channel a grant may have been missed.
func (in *Inbox) take() {
	in.mu.Lock()
	var messages []string
	gaps := map[string]bool{}
	for name, e := range in.ears {
		arrived, gap := e.sub.Take()
		messages = append(messages, arrived...)
		if gap {
			gaps[name] = true
		}
	}
	var missed []Attempt
	if len(gaps) > 0 {
		for _, a := range in.attempts {
			if gaps[in.earOf(a.Key())] {
				missed = append(missed, a)
			}
		}
	}
	in.mu.Unlock() // an attempt takes its lock's mutex, which comes before this one
	for _, m := range messages {
		in.Receive(m)
	}
	for _, a := range missed {
		a.Missed()
	}
}

// rest closes the ears that no attempt has needed for a while. It reports false if no ears are left.
func (in *Inbox) rest() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	needed := map[string]bool{}
	for _, a := range in.attempts {
		needed[in.earOf(a.Key())] = true
	}
	if in.s.Linger > 0 { // what it keeps may be wanted at any time
		needed[in.s.Channel()] = true
	}
	for name, e := range in.ears {
		if e.idle && !needed[name] { // not needed at two looks in a row
			e.sub.Close()
			delete(in.ears, name)
		}
		e.idle = !needed[name]
	}
	in.running = len(in.ears) > 0
	return in.running
}

// earOf is the channel on which the session listens for a lock. mu held.
func (in *Inbox) earOf(key string) string {
	if in.s.ShardedHub != nil {
		if name := in.shardedChannel(key); in.ears[name] != nil {
			return name
		}
	}
	return in.s.Channel()
}
