// Package inner converts between rlock's Session and Mutex and what is inside them, for the other packages of
// this module: rlock exports no way to do so. A Hold needs none of this, since package handle makes it: see
// rlock.
package inner

import (
	"context"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Session is what is inside s; nil if s is nil.
func Session(s *rlock.Session) *session.Session { return engine.Outer.Session(s) }

// Mutex is what is inside m; nil if m is nil.
func Mutex(m *rlock.Mutex) *engine.Permits { return engine.Outer.Mutex(m) }

// New names a lock of a kind. What is wrong with the session or the name, its methods return.
func New(s *rlock.Session, kind *engine.Kind, name string, options []rlock.Option) *rlock.Mutex {
	lock := engine.New(Session(s), kind, name, engine.NewConfig(engine.Config{}, options))
	return engine.Outer.NewMutex(lock).(*rlock.Mutex)
}

// Acquire is the Lock of m, or its TryLock, for what is wanted instead of all of it.
func Acquire(
	ctx context.Context, m *rlock.Mutex, want engine.Want, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	ps := Mutex(m)
	ctx, hold, err := ps.Acquire(ctx, want, engine.NewConfig(ps.Config(), options), try)
	return ctx, (*rlock.Hold)(hold), err
}
