package engine

import "github.com/lockline/lockline/pubsub"

// listener receives the messages of a lock's releases, from one server or from all members of a quorum.
type listener struct {
	ready chan struct{}
	subs  []*pubsub.Subscription
}

func (s *Session) subscribe(channel string) *listener {
	l := &listener{ready: make(chan struct{}, 1)}
	if s.quorum == nil {
		l.subs = []*pubsub.Subscription{s.hub.SubscribeTo(channel, l.ready)}
		return l
	}
	for _, m := range s.quorum.members {
		l.subs = append(l.subs, m.hub.SubscribeTo(channel, l.ready))
	}
	return l
}

// Take returns the messages of the server that had the most: each release is told by all.
func (l *listener) Take() (messages []string) {
	for _, sub := range l.subs {
		if m, _ := sub.Take(); len(m) > len(messages) {
			messages = m
		}
	}
	return messages
}

func (l *listener) Close() {
	for _, sub := range l.subs {
		sub.Close()
	}
}
