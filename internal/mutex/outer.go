package mutex

import "github.com/lockline/lockline/internal/session"

// Outer converts between rlock's types, which this package cannot import, and those inside. rlock sets it;
// package inner makes it type-safe.
var Outer struct {
	Session  func(session any) *session.Session
	Mutex    func(mutex any) *Mutex
	NewMutex func(Mutex) any
}
