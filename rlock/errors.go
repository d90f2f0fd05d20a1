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

	// ErrNotReplicated: fewer replicas than [WithReplicas] wants have confirmed the
	// lock in time, so it was given back. The error is a *[NotReplicatedError].
	ErrNotReplicated error = errNotReplicated
)

// The errors are those of package failure. With these names the documentation of those above shows no internal package.
var (
	errLocked        = failure.ErrLocked
	errLost          = failure.ErrLost
	errNotHeld       = failure.ErrNotHeld
	errClosed        = failure.ErrClosed
	errNotReplicated = failure.ErrNotReplicated
)

// LockedError names the holder of the lock, as far as it is known. It matches [ErrLocked].
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

// NotReplicatedError says how many replicas have confirmed a lock. It matches [ErrNotReplicated].
type NotReplicatedError struct {
	Name      string        // of the lock
	Confirmed int           // replicas that have confirmed it in time
	Wanted    int           // how many [WithReplicas] wants
	Timeout   time.Duration // that they had
}

func (e *NotReplicatedError) Error() string { return (*failure.NotReplicatedError)(e).Error() }

// Unwrap makes errors.Is(err, ErrNotReplicated) true.
func (e *NotReplicatedError) Unwrap() error { return ErrNotReplicated }

func init() { failure.Public = public }

// public gives failure's error structs their public types.
func public(err error) error {
	switch e := err.(type) {
	case *failure.LockedError:
		return (*LockedError)(e)
	case *failure.NotReplicatedError:
		return (*NotReplicatedError)(e)
	}
	return err
}
