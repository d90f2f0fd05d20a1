package rlock

import (
	"time"

	"github.com/lockline/lockline/internal/failure"
)

var (
	// ErrLocked: another owner holds the lock. It is TryLock's answer, and that of a
	// wait that [WaitAtMost] ended. The error is a *[LockedError].
	ErrLocked error = errLocked

	// ErrLost: the lock was held and then lost. Its lease could not be renewed
	// in time, its data in Redis is gone, or it was forcibly unlocked.
	ErrLost error = errLost

	// ErrNotHeld: the hold was unlocked before, or there never was one.
	ErrNotHeld error = errNotHeld

	// ErrClosed: the session is closed.
	ErrClosed error = errClosed
)

// The errors are those of package failure. With these names the documentation of those above shows no
// internal package.
var (
	errLocked  = failure.ErrLocked
	errLost    = failure.ErrLost
	errNotHeld = failure.ErrNotHeld
	errClosed  = failure.ErrClosed
)

// LockedError names the holder of the lock, as far as it is known. It matches [ErrLocked], but not inside the
// error of a wait that the caller's context ended: see [Mutex.Lock].
type LockedError struct {
	Name      string        // of the lock
	Holder    string        // owner field: session id and number of the acquisition; "" if not known
	About     string        // what the holder's session says of itself: process id, host, label
	Remaining time.Duration // of the holder's lease, if it is not renewed
	Hint      string        // what the caller may have done wrong
}

func (e *LockedError) Error() string { return (*failure.LockedError)(e).Error() }

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }

func init() { failure.Public = public }

// public gives failure's error struct its public type.
func public(err error) error {
	if e, ok := err.(*failure.LockedError); ok {
		return (*LockedError)(e)
	}
	return err
}
