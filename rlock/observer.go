package rlock

import (
	"cmp"
	"context"
	"time"
)

// Observer is told what happens to the locks of a session; metrics and traces are made of it. It is called
// with no mutex held, in the goroutine that an event belongs to, which waits for it. So Observe must be
// quick. It must not call back into the session, nor runtime.Goexit, as t.FailNow does. Should it panic, that
// is logged and changes nothing else. ctx is the one of the call concerned, where there is one.
//
// Each EventAcquired at Depth 1 is followed by exactly one EventReleased or EventLost with its Token, when
// that hold and all that nests in it have ended. Nested holds have an EventAcquired of their own, at a
// greater Depth, and no end of their own.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// EventType says what happened.
type EventType uint8

const (
	// EventWaiting: an acquisition found the lock taken and waits.
	EventWaiting EventType = iota + 1
	// EventAcquired: an acquisition succeeded, after Wait, at hold count Depth.
	EventAcquired
	// EventNotAcquired: an acquisition ended without the lock, after Wait, with Err.
	EventNotAcquired
	// EventReleased: the hold and all that nests in it were given back, after Held, by Unlock or by Close.
	// Err if Redis could not be told.
	EventReleased
	// EventLost means that the hold was lost, also if Unlock was the first to find out. Event.Held is how
	// long it had been held. Err matches [ErrLost] and says why.
	EventLost
	// EventRenewFailed: a renewal failed with Err and will be tried again.
	EventRenewFailed
)

// String is the type's name without the prefix, as Acquired.
func (t EventType) String() string {
	names := [...]string{"?", "Waiting", "Acquired", "NotAcquired", "Released", "Lost", "RenewFailed"}
	if int(t) >= len(names) {
		t = 0
	}
	return names[t]
}

// Kind is a kind of lock: the letter by which keys in Redis name it. More may come.
type Kind string

// The kinds of locks. A MultiLock has no kind of its own, its members have.
const (
	KindReentrant Kind = "r" // of this package
	KindFair      Kind = "f" // of package fairlock
	KindRedLock   Kind = "q" // of package multilock
	KindRedisson  Kind = "j" // of package redisson, whose keys have no kind
	KindReadWrite Kind = "w" // of package rwlock
	KindSemaphore Kind = "p" // of package semaphore
	KindLatch     Kind = "l" // of package latch, which has no events
)

// String is the kind's name, as fair; the letter of one that is not known.
func (k Kind) String() string {
	name := map[Kind]string{
		KindReentrant: "reentrant", KindFair: "fair", KindRedLock: "redlock", KindRedisson: "redisson",
		KindReadWrite: "rwlock", KindSemaphore: "semaphore", KindLatch: "latch",
	}[k]
	return cmp.Or(name, string(k))
}

// Event is one thing that happened to a lock. More fields may come.
type Event struct {
	Type     EventType
	LockKind Kind   // the kind of the lock
	Name     string // the name of the lock
	Session  string // id of the session; of a RedLock, that of its quorum
	At       time.Time
	Wait     time.Duration // since Lock or TryLock was called: EventAcquired, EventNotAcquired
	Held     time.Duration // since it was acquired: EventReleased, EventLost
	Depth    int           // hold count: EventAcquired
	Token    int64         // fencing token; not of EventWaiting and EventNotAcquired
	Err      error         // EventNotAcquired, EventReleased, EventLost, EventRenewFailed
	// HandedOver: EventAcquired from another goroutine of the session, in memory.
	HandedOver bool
}
