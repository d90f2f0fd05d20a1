// Package inner converts rlock's Session and Mutex to the types behind them, for the other packages of this
// module. Package rlock exports no such conversion.
//
// # Why some types have two names
//
// Users see only the types of package rlock, whose fields are all documented. Users cannot reach the types
// behind these types. The engine cannot import package rlock. So there are these connections:
//
//   - rlock.Session, Mutex and Hold are defined from session.Outer, engine.Lock and handle.Hold. A conversion
//     costs nothing, whereas a struct around a Hold would cost each Lock an allocation.
//   - failure.Public converts a failure.LockedError to an *rlock.LockedError.
//   - rlock.State, Holder and Waiter have the same fields as the types of package protocol, with
//     documentation.
//
// Three types are defined from a struct of their own package, and have other methods, which users do not see.
// handle.heldContext is the Hold as a context.Context, in the same allocation. engine.descent is a waiter as
// a context key, by which the waiter finds the hold in which it nests. session.keeper is the Session with the
// methods that its watchdog calls.
package inner

import (
	"context"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Session returns the session behind s. It returns nil if s is nil.
func Session(s *rlock.Session) *session.Session { return (*session.Outer)(s).Session() }

// Mutex returns the lock behind m. It returns nil if m is nil.
func Mutex(m *rlock.Mutex) *engine.Lock { return (*engine.Lock)(m) }

// New returns a lock of a kind. If the session or the name is not valid, the methods of the lock return an
// error that says so.
func New(s *rlock.Session, kind *engine.Kind, name string, options []rlock.Option) *rlock.Mutex {
	lock := engine.New(Session(s), kind, name, engine.NewConfig(engine.Config{}, options))
	return (*rlock.Mutex)(&lock)
}

// Acquire is like the Lock of m, or like its TryLock if try is true, but acquires the given Want.
func Acquire(
	ctx context.Context, m *rlock.Mutex, want engine.Want, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	lock := Mutex(m)
	ctx, hold, err := lock.Acquire(ctx, want, engine.NewConfig(lock.Config(), options), try)
	return ctx, (*rlock.Hold)(hold), err
}

// Identity returns a value that is equal for any two Lockers that name the same lock in the same session. It
// returns nil for a Locker of any package other than rlock, unless that package has called Identify.
func Identity(l rlock.Locker) any {
	if m, ok := l.(*rlock.Mutex); ok {
		return Mutex(m).ID()
	}
	for _, of := range identities {
		if id := of(l); id != nil {
			return id
		}
	}
	return nil
}

var identities []func(rlock.Locker) any

// Identify makes Identity recognize the Lockers of a package. The package calls it when the program starts.
// of returns nil for Lockers of other packages.
func Identify(of func(rlock.Locker) any) { identities = append(identities, of) }
