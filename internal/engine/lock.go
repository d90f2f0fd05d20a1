package engine

import (
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
)

// Exclusive is what a lock wants.
var Exclusive = Want{N: All, Limit: All}

// OwnerField is that under which Redis knows a hold of one lock. Of a RedLock it is the beginning, which is
// the same on all servers. It is "" of any other.
func OwnerField(hd *handle.Hold) string {
	if one, ok := hd.Of().(interface{ OwnerField() string }); ok {
		return one.OwnerField()
	}
	return ""
}

// Outer converts between rlock's types, which this package cannot import, and those inside. rlock sets it;
// package inner makes it type-safe.
var Outer struct {
	Session  func(session any) *session.Session
	Mutex    func(mutex any) *Permits
	NewMutex func(Permits) any
}
