package engine

import (
	"context"
	"time"
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
	Lock    string // "r": reentrant
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

// Observer is called in line, with no lock held.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// survive keeps the engine whole when code of the user's panics inside it.
func (s *Session) survive(what string) {
	if p := recover(); p != nil {
		defer func() { _ = recover() }() // the logger may be what panics
		s.Logger.Error("lockline: panic", "in", what, "panic", p)
	}
}

func (s *Session) warn(msg string, args ...any) {
	defer s.survive("logger")
	s.Logger.Warn("lockline: "+msg, args...)
}

func (l *lock) observe(ctx context.Context, e Event) {
	if l.s.Observer == nil {
		return
	}
	defer l.s.survive("observer")
	e.Lock, e.Name, e.Session, e.At = l.p.Kind, l.keys.Name, l.s.id, time.Now()
	l.s.Observer.Observe(ctx, e)
}
