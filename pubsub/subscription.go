package pubsub

import "time"

// maxPending bounds a mailbox. A listener this far behind is better off asking its server.
const maxPending = 1024

// Subscription is one listener's mailbox for one channel. Its methods never block and may be
// called from any goroutine; C and Take are meant for a single listener.
type Subscription struct {
	hub    *Hub
	ready  chan struct{}
	shared bool // ready is, perhaps, with other Subscriptions

	// Guarded by hub.mu.
	channel      *channel // nil once closed
	messages     []string
	resubscribed bool
}

// C is ready (it has capacity 1) whenever Take has something; one that is shared, whenever any of them may
// have. It is never closed.
func (s *Subscription) C() <-chan struct{} { return s.ready }

// Take empties the mailbox. It returns the messages since the last Take, in the order in which they were
// published. It also reports whether anything else may have happened before now, so that the listener has to
// ask its server.
//
// That is so when the server has confirmed the subscription, for the first time or again after a
// reconnect, and when Subscribe found it confirmed. It is also so when more than 1024 messages were
// waiting, which were then dropped.
func (s *Subscription) Take() (messages []string, resubscribed bool) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	messages, resubscribed = s.messages, s.resubscribed
	s.messages, s.resubscribed = nil, false
	if !s.shared {
		select {
		case <-s.ready:
		default:
		}
	}
	return messages, resubscribed
}

// Unheard tells the hub that the server which publishes on the channel was asked at asked, or later, and knew
// of no listener. If the channel had been confirmed before, its connection leads to another server, as behind
// an endpoint that was moved, and a new one takes its place. Unheard never blocks.
func (s *Subscription) Unheard(asked time.Time) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if ch := s.channel; ch != nil && !ch.confirmed.IsZero() && ch.confirmed.Before(asked) {
		ch.shard.misled = true
		poke(ch.shard.poked)
	}
}

// Close ends the subscription: nothing more is put into the mailbox, though what is there can still be
// taken. The channel lingers before it is unsubscribed. Close may be called any number of times.
func (s *Subscription) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	ch := s.channel
	if ch == nil {
		return
	}
	s.channel = nil
	delete(ch.listeners, s)
	if len(ch.listeners) > 0 {
		return
	}
	if ch.shard == nil {
		delete(h.channels, ch.name) // it is subscribed nowhere
		return
	}
	ch.idleSince = time.Now()
	ch.idle = ch.shard.idle.PushBack(ch)
	if ch.shard.idle.Len() == 1 { // else the owner has an earlier expiry to wake up for
		poke(ch.shard.poked)
	}
}

// put adds a message. The caller holds hub.mu.
func (s *Subscription) put(message string) {
	if len(s.messages) == maxPending {
		s.messages = nil
		s.resubscribed = true
	}
	s.messages = append(s.messages, message)
	poke(s.ready)
}

// resubscribe has the listener ask its server. The caller holds hub.mu.
func (s *Subscription) resubscribe() {
	s.resubscribed = true
	poke(s.ready)
}
