package mutex

import (
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Kind is what makes one kind of lock.
type Kind struct {
	Letter    string // in keys and events
	Scripts          // with the queue in Redis, unless it is Broadcast
	Ordered   bool   // only the queue says which waiter has the lock next
	Broadcast bool   // there is no queue: all that wait are told of a release, and ask again

	// Keys names a lock's keys in a session, or says why there is no such lock.
	Keys func(s *session.Session, name string) (*protocol.Keys, error)
}

// Scripts are those of a kind.
type Scripts struct {
	Acquire, Keep, Release, Force, Inspect *wire.Script

	Remain *wire.Script // a Release that leaves the lock taken until a time; nil: it can't
}

var queueScripts = Scripts{
	Acquire: wire.Named("lock/acquire"),
	Keep:    wire.Named("lock/keep"),
	Release: wire.Named("lock/release"),
	Force:   wire.Named("lock/force"),
	Inspect: wire.Named("lock/inspect"),
	Remain:  wire.Named("lock/remain"),
}

// NewFair is a kind of lock, with its letter, that is served first come, first served.
func NewFair(letter string) *Kind {
	k := NewReentrant(letter)
	k.Ordered = true
	return k
}

// NewReentrant is a kind of lock, with its letter, whose holder's session goes before the queue for a while.
func NewReentrant(letter string) *Kind {
	keys := func(s *session.Session, name string) (*protocol.Keys, error) {
		k, err := protocol.NewKeys(s.Prefix, letter, name, ":q", ":a", ":d")
		if err == nil {
			k.Channel, k.Queued = s.Args.Channels, true
		}
		return k, err
	}
	return &Kind{Letter: letter, Scripts: queueScripts, Keys: keys}
}
