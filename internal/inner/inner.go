// Package inner converts between rlock's Session and Mutex and engine's, for the other packages of this module: rlock exports
// no way to do so. A Hold needs none of this, since engine makes it: see rlock.
package inner

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/rlock"
)

// Session is what is inside s; nil if s is nil.
func Session(s *rlock.Session) *engine.Session { return engine.Outer.Session(s) }

// Mutex is what is inside m; nil if m is nil.
func Mutex(m *rlock.Mutex) *engine.Mutex { return engine.Outer.Mutex(m) }

// NewMutex puts m into rlock's type.
func NewMutex(m engine.Mutex) *rlock.Mutex { return engine.Outer.NewMutex(m).(*rlock.Mutex) }
