package engine

import (
	"context"
	"time"
)

// What a Locker that is not made here needs to behave like one that is: package locktest.

// OwnerOf is the owner that ctx has of WithOwner, or nil.
func OwnerOf(ctx context.Context) *Owner {
	o, _ := ctx.Value(ownerKey{}).(*Owner)
	return o
}

// CheckName says what is wrong with a lock's name.
func CheckName(name string) error { return checkName(name) }

// Valid is for how long a lease is valid to its holder.
func Valid(lease time.Duration) time.Duration { return valid(lease) }

// CtxErr matches the error of an ended context and its cause.
func CtxErr(ctx context.Context) error { return ctxErr(ctx) }

// NameErr puts a lock's name before what happened to it.
func NameErr(name string, err error) error { return &nameError{name: name, err: err} }

// EndedWait is the error of a wait that ctx ended while locked described the holder.
func EndedWait(ctx context.Context, locked *LockedError) error {
	holder := locked.who()
	if holder != "" {
		holder = "; locked" + holder
	}
	return &waitError{nameError{name: locked.Name, err: ctxErr(ctx), hint: holder + locked.Hint}, Public(locked)}
}

// ErrUnlocked is why the context of an unlocked hold has ended.
var ErrUnlocked = errUnlocked

// SelfHint is the hint of the error of a wait for a lock that the waiter's own session holds.
const SelfHint = selfHint
