// Package inner converts between rlock's Session and Mutex and what is inside them, for the other packages of
// this module: rlock exports no way to do so. A Hold needs none of this, since package handle makes it: see
// rlock.
package inner

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Session is what is inside s; nil if s is nil.
func Session(s *rlock.Session) *session.Session { return engine.Outer.Session(s) }

// Mutex is what is inside m; nil if m is nil.
func Mutex(m *rlock.Mutex) *engine.Permits { return engine.Outer.Mutex(m) }

// NewMutex puts a lock into rlock's type, with the options that its acquisitions start from.
func NewMutex(lock engine.Permits, cfg engine.Config) *rlock.Mutex {
	return engine.Outer.NewMutex(lock, cfg).(*rlock.Mutex)
}
