package rlock

import (
	"time"

	"github.com/lockline/lockline/internal/engine"
)

var (
	// ErrLocked: somebody else holds the lock. TryLock's answer, and that of a
	// wait that [WaitAtMost] ended. The error is a *[LockedError].
	ErrLocked = engine.ErrLocked

	// ErrLost: the lock was held and then lost: its lease could not be renewed
	// in time, its data in Redis is gone, or it was forcibly unlocked.
	ErrLost = engine.ErrLost

	// ErrNotHeld: the hold was unlocked before, or there never was one.
	ErrNotHeld = engine.ErrNotHeld

	// ErrClosed: the session is closed.
	ErrClosed = engine.ErrClosed
)

// LockedError says who holds the lock, as far as is known. It matches [ErrLocked].
type LockedError struct {
	Name      string        // of the lock
	Holder    string        // owner field: session id and number of the acquisition; "" if not known
	About     string        // what the holder's session says of itself: process id, host, label
	Remaining time.Duration // of the holder's lease, if it is not renewed
	Hint      string        // what the caller may have done wrong
}

func (e *LockedError) Error() string { return (*engine.LockedError)(e).Error() }

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }

// outward gives engine's one error struct its public type.
func outward(err error) error {
	if e, ok := err.(*engine.LockedError); ok {
		return (*LockedError)(e)
	}
	return err
}
