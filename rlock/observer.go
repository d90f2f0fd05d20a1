package rlock

import (
	"cmp"
	"context"
	"time"
)

// An Observer is notified of events of the locks of a session, for example to make metrics and traces. The
// session calls Observe in the goroutine in which the event happens, without holding a mutex. This goroutine
// waits until Observe returns, so Observe must be quick. It must not use the session, and must not call
// runtime.Goexit, as t.FailNow does. If Observe panics, the panic is logged and has no other effect. If the
// event belongs to a call, ctx has the values of the context of that call.
//
// Each EventAcquired at Depth 1 is followed by exactly one EventReleased or EventLost with the same Token.
// This second event comes when that hold and all holds nested in it have ended. A nested hold has its own
// EventAcquired, at a greater Depth, but no event for its end.
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
	// EventReleased means that an outermost hold and all holds nested in it were released, by Unlock, Close
	// or Shutdown, or because the program forgot the Hold. Held is the time for which the lock was held. Err
	// is set if the request to release has failed.
	EventReleased
	// EventLost means that an outermost hold and all holds nested in it were lost, even if only Unlock has
	// noticed that. Held is the time for which the lock was held. Err matches [ErrLost] and says why.
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

// A Kind is a kind of lock, given as the letter in the keys of such locks in Redis. Later versions may add
// kinds.
type Kind string

// The kinds of locks. A MultiLock has no kind, but each of its members has one.
const (
	KindReentrant Kind = "r" // locks of this package
	KindFair      Kind = "f" // locks of package fairlock
	KindRedLock   Kind = "q" // RedLocks of package multilock
	KindRedisson  Kind = "j" // locks of package redisson, whose keys have no letter
	KindReadWrite Kind = "w" // read-write locks of package rwlock
	KindSemaphore Kind = "p" // permits of package semaphore
	KindLatch     Kind = "l" // latches of package latch, which have no events
)

// String returns the name of the kind, for example "fair". For an unknown kind it returns the letter.
func (k Kind) String() string {
	name := map[Kind]string{
		KindReentrant: "reentrant", KindFair: "fair", KindRedLock: "redlock", KindRedisson: "redisson",
		KindReadWrite: "rwlock", KindSemaphore: "semaphore", KindLatch: "latch",
	}[k]
	return cmp.Or(name, string(k))
}

// An Event is one thing that has happened to a lock. Later versions may add fields.
type Event struct {
	Type     EventType
	LockKind Kind   // the kind of the lock
	Name     string // the name of the lock
	Session  string // id of the session; for a RedLock, id of the Quorum
	At       time.Time
	Wait     time.Duration // time since the call began; for EventAcquired and EventNotAcquired
	Held     time.Duration // time since the lock was acquired; for EventReleased and EventLost
	Depth    int           // hold count; for EventAcquired
	Token    int64         // fencing token; 0 in EventWaiting and EventNotAcquired
	Err      error         // for EventNotAcquired, EventReleased, EventLost and EventRenewFailed
	// HandedOver means that the session already had the lock, and passed it on to this call in memory. Only
	// EventAcquired sets HandedOver.
	HandedOver bool
}
