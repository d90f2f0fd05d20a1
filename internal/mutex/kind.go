package mutex

import (
	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Kind is what makes one kind of lock.
type Kind struct {
	Letter string // in keys and events
	Scripts
	Lanes *permit.Kind // nil: there is no queue, and all that wait are told of a release, and ask again

	// Keys names the keys of a lock without Lanes in a session, or says why there is no such lock.
	Keys func(s *session.Session, name string) (*protocol.Keys, error)
}

// Scripts are those of a kind.
type Scripts struct {
	Acquire, Keep, Release, Force, Inspect *wire.Script
}

var queueScripts = Scripts{
	Acquire: wire.Named("lock/acquire"),
	Keep:    wire.Named("lock/keep"),
	Release: wire.Named("lock/release"),
	Force:   wire.Named("lock/force"),
	Inspect: wire.Named("lock/inspect"),
}

// NewLock is a kind of lock, with its letter, that is on lanes. fair: it is served first come, first served.
func NewLock(letter string, fair bool) *Kind {
	return &Kind{Letter: letter, Scripts: queueScripts, Lanes: permit.NewLock(letter, fair)}
}
