// Package inner is how the packages of this module reach what is inside rlock's Sessions and Mutexes, and make Mutexes:
// their users see neither. A Hold needs none of this, since engine makes it: see rlock.
package inner

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/rlock"
)

// Session is what is inside s; nil if s is nil.
func Session(s *rlock.Session) *engine.Session { return engine.Outer.Session(s) }

// Mutex is what is inside m; nil if m is nil.
func Mutex(m *rlock.Mutex) *engine.Mutex { return engine.Outer.Mutex(m) }

// NewMutex is m for its users.
func NewMutex(m engine.Mutex) *rlock.Mutex { return engine.Outer.NewMutex(m).(*rlock.Mutex) }
