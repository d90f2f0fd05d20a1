package session

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/contain"
)

// EventKind says what happened.
type EventKind uint8

const (
	EventWaiting EventKind = iota + 1
	EventAcquired
	EventNotAcquired
	EventReleased
	EventLost
	EventRenewFailed
)

// Event is one thing that happened to a lock. rlock.Event is the same, with the documentation.
type Event struct {
	Kind       EventKind
	Lock       string
	Name       string
	Session    string
	At         time.Time
	Wait       time.Duration
	Held       time.Duration
	Depth      int
	Token      int64
	Err        error
	HandedOver bool
}

// Observer is called with no mutex held. The operation that it is told about waits until it returns.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// Observe tells the observer, if there is one, of something that happened to a lock.
func (s *Session) Observe(ctx context.Context, kind, name string, e Event) {
	if s.Observer != nil && (s.Only == 0 || s.Only == e.Kind) {
		e.Lock, e.Name, e.At = kind, name, time.Now()
		if e.Session == "" {
			e.Session = s.id
		}
		s.show(ctx, e)
	}
}

// show is not part of Observe, or every event would be allocated, observed or not.
func (s *Session) show(ctx context.Context, e Event) {
	contain.Run(s.Logger, "lockline: the observer", func() { s.Observer.Observe(ctx, e) })
}
