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
// Each Acquired at Depth 1 is followed by exactly one Released or Lost with its Token, when that hold and all
// that nests in it have ended. Nested holds have an Acquired of their own, at a greater Depth, and no end of
// their own.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// EventKind says what happened.
type EventKind uint8

const (
	// Waiting: an acquisition found the lock taken and waits.
	Waiting EventKind = iota + 1
	// Acquired: an acquisition succeeded, after Wait, at hold count Depth.
	Acquired
	// NotAcquired: an acquisition ended without the lock, after Wait, with Err.
	NotAcquired
	// Released: the hold and all that nests in it were given back, after Held, by Unlock or by Close. Err if
	// Redis could not be told.
	Released
	// Lost means that the hold was lost, also if Unlock was the first to find out. Event.Held is how long it
	// had been held. Err matches [ErrLost] and says why.
	Lost
	// RenewFailed: a renewal failed with Err and will be tried again.
	RenewFailed
)

// String is the kind's name.
func (k EventKind) String() string {
	names := [...]string{"?", "Waiting", "Acquired", "NotAcquired", "Released", "Lost", "RenewFailed"}
	if int(k) >= len(names) {
		k = 0
	}
	return names[k]
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
	Kind    EventKind
	Lock    Kind   // of the lock
	Name    string // of the lock
	Session string // id of the session; of a RedLock, that of its quorum
	At      time.Time
	Wait    time.Duration // since Lock or TryLock was called: Acquired, NotAcquired
	Held    time.Duration // since it was acquired: Released, Lost
	Depth   int           // hold count: Acquired
	Token   int64         // fencing token; not of Waiting and NotAcquired
	Err     error         // NotAcquired, Released, Lost, RenewFailed
	// HandedOver: Acquired from another goroutine of the session, in memory.
	HandedOver bool
}
