// Package inner converts between rlock's Session and Mutex and what is inside them, for the other packages of
// this module: rlock exports no way to do so.
//
// # Why types of two packages are one thing
//
// Users see rlock's types alone, documented field by field, and can reach nothing behind them. The machine
// cannot import rlock, and Go has no friends. So these bridges are left:
//
//   - rlock.Session, Mutex and Hold are session.Outer, engine.Permits and handle.Hold under other names, so
//     that a conversion is all it takes. With a struct around a Hold, each Lock would allocate one more.
//   - failure.Public makes the *rlock.LockedError of an error that the machine has found.
//   - rlock's State, Holder and Waiter are those of package protocol, with their documentation.
//
// Three types rename a struct of their own package, so that it has methods which its users do not see.
// handle.heldContext is the Hold as a context.Context, in the same allocation. engine.descent is an
// acquisition as a key in contexts. session.keeper is the Session as its watchdog sees it.
package inner

import (
	"context"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Session is what is inside s; nil if s is nil.
func Session(s *rlock.Session) *session.Session { return (*session.Outer)(s).Session() }

// Mutex is what is inside m; nil if m is nil.
func Mutex(m *rlock.Mutex) *engine.Permits { return (*engine.Permits)(m) }

// New names a lock of a kind. What is wrong with the session or the name, its methods return.
func New(s *rlock.Session, kind *engine.Kind, name string, options []rlock.Option) *rlock.Mutex {
	lock := engine.New(Session(s), kind, name, engine.NewConfig(engine.Config{}, options))
	return (*rlock.Mutex)(&lock)
}

// Acquire is the Lock of m, or its TryLock, for what is wanted instead of all of it.
func Acquire(
	ctx context.Context, m *rlock.Mutex, want engine.Want, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	ps := Mutex(m)
	ctx, hold, err := ps.Acquire(ctx, want, engine.NewConfig(ps.Config(), options), try)
	return ctx, (*rlock.Hold)(hold), err
}

// Identity returns a value that is equal for any two Lockers that name one lock in one session. It returns
// nil for Lockers of other packages than rlock, unless they have called Identify.
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

// Identify has Identity know the Lockers of a package, which calls it as the program starts. of returns nil
// for Lockers that it does not know.
func Identify(of func(rlock.Locker) any) { identities = append(identities, of) }
