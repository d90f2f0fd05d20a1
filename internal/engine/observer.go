package engine

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

// Event is one thing that happened to a lock.
type Event struct {
	Kind    EventKind
	Lock    string // the kind
	Name    string
	Session string
	At      time.Time
	Wait    time.Duration // Acquired, NotAcquired
	Held    time.Duration // Released, Lost
	Depth   int           // Acquired: hold count, 1 where it was taken from Redis
	Token   int64
	Err     error
	// Acquired: from another goroutine of the session, in memory
	HandedOver bool
}

// Observer is called in a goroutine of its own, with no mutex held. What it is told of waits for it.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

func (s *Session) warn(msg string, args ...any) {
	contain.Run(s.Logger, "lockline: the logger", func() { s.Logger.Warn("lockline: "+msg, args...) })
}

func (l *lock) observe(ctx context.Context, e Event) {
	if l.s.Observer != nil {
		e.Lock, e.Name, e.Session, e.At = l.p.Kind, l.keys.Name, l.s.id, time.Now()
		l.s.show(ctx, e)
	}
}

// show is not part of observe, or every event would be allocated, observed or not.
func (s *Session) show(ctx context.Context, e Event) {
	contain.Run(s.Logger, "lockline: the observer", func() { s.Observer.Observe(ctx, e) })
}
