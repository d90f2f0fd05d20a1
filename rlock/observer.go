package rlock

import (
	"cmp"
	"context"
	"time"
)

// Observer is notified of events of the locks of a session, for example to make metrics and traces. Observe
// is called without any mutex held, in the goroutine to which the event belongs, which waits until it
// returns. So Observe must be quick. It must not use the session, nor call runtime.Goexit, as t.FailNow
// does. A panic of Observe is logged and changes nothing else. ctx is the context of the call to which the
// event belongs, if there is one.
//
// Each EventAcquired at Depth 1 is followed by exactly one EventReleased or EventLost with the same Token,
// when that hold and all holds nested in it have ended. A nested hold has an EventAcquired of its own, at a
// greater Depth, and no end of its own.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// EventType is the type of an event.
type EventType uint8

const (
	// EventWaiting means that a call has found the lock taken, and waits.
	EventWaiting EventType = iota + 1
	// EventAcquired means that a call has got the lock after Wait, with the hold count Depth.
	EventAcquired
	// EventNotAcquired means that a call has ended without the lock after Wait, with the error Err.
	EventNotAcquired
	// EventReleased means that the hold and all holds nested in it were released, by Unlock, Close or
	// Shutdown, or because the program forgot the Hold. Held is the time for which it was held. Err is set
	// if the request to release has failed.
	EventReleased
	// EventLost means that the hold was lost, even if only Unlock has noticed that. Held is the time for
	// which it was held. Err matches [ErrLost] and says why.
	EventLost
	// EventRenewFailed means that a renewal has failed with the error Err, and will be tried again.
	EventRenewFailed
)

// String returns the name of the type without its prefix, for example "Acquired".
func (t EventType) String() string {
	names := [...]string{"?", "Waiting", "Acquired", "NotAcquired", "Released", "Lost", "RenewFailed"}
	if int(t) >= len(names) {
		t = 0
	}
	return names[t]
}

// Kind is a kind of lock, as the letter that stands in its keys in Redis. More kinds may come.
type Kind string

// The kinds of locks. A MultiLock has no kind of its own. Its members have.
const (
	KindReentrant Kind = "r" // of this package
	KindFair      Kind = "f" // of package fairlock
	KindRedLock   Kind = "q" // of package multilock
	KindRedisson  Kind = "j" // of package redisson, whose keys have no kind
	KindReadWrite Kind = "w" // of package rwlock
	KindSemaphore Kind = "p" // of package semaphore
	KindLatch     Kind = "l" // of package latch, which has no events
)

// String returns the name of the kind, for example "fair". For an unknown kind it returns the letter.
func (k Kind) String() string {
	name := map[Kind]string{
		KindReentrant: "reentrant", KindFair: "fair", KindRedLock: "redlock", KindRedisson: "redisson",
		KindReadWrite: "rwlock", KindSemaphore: "semaphore", KindLatch: "latch",
	}[k]
	return cmp.Or(name, string(k))
}

// Event is one thing that has happened to a lock. More fields may come.
type Event struct {
	Type     EventType
	LockKind Kind   // the kind of the lock
	Name     string // the name of the lock
	Session  string // id of the session; for a RedLock, of its quorum
	At       time.Time
	Wait     time.Duration // since Lock or TryLock was called: EventAcquired, EventNotAcquired
	Held     time.Duration // since it was acquired: EventReleased, EventLost
	Depth    int           // hold count: EventAcquired
	Token    int64         // fencing token; not of EventWaiting and EventNotAcquired
	Err      error         // EventNotAcquired, EventReleased, EventLost, EventRenewFailed
	// HandedOver means that the lock was passed on in memory by another goroutine of the session. It is set
	// in EventAcquired.
	HandedOver bool
}
