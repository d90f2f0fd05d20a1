package rlock

import "github.com/lockline/lockline/internal/engine"

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
type LockedError engine.LockedError

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
