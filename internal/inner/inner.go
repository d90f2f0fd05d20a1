// Package inner converts between rlock's Session and Mutex and what is inside them, for the other packages of
// this module: rlock exports no way to do so. A Hold needs none of this, since package mutex makes it: see
// rlock.
package inner

import (
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Session is what is inside s; nil if s is nil.
func Session(s *rlock.Session) *session.Session { return mutex.Outer.Session(s) }

// Mutex is what is inside m; nil if m is nil.
func Mutex(m *rlock.Mutex) *mutex.Mutex { return mutex.Outer.Mutex(m) }

// NewMutex puts m into rlock's type.
func NewMutex(m mutex.Mutex) *rlock.Mutex { return mutex.Outer.NewMutex(m).(*rlock.Mutex) }
