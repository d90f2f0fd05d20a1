package engine

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Kind is what makes one kind of permits.
type Kind struct {
	Letter string // in keys and events
	Scripts

	Reentrant bool // a context that descends from a hold enters that again
	Counts    bool // Redis has a hash with the hold count: it is told of each nested hold
	Fair      bool // only the queue says which goroutine of all sessions is next
	Lingers   bool // a session may keep it while no goroutine has it

	// Keys names the keys of one name, or says why there are none; nil: as all kinds of Lockline's own do.
	Keys func(s *session.Session, name string) (*protocol.Keys, error)

	Noun string // for errors; "": a lock

	// Locked is the error of what is not free, and Ended that of a wait that has ended.
	Locked func(e *failure.LockedError) error
	Ended  func(ctx context.Context, closing bool, name string, holder *failure.LockedError) error

	// Limited is the error where Redis has a limit with which the wait never ends; of a kind that has Shares.
	Limited func(name string, want Want, limit int64) error
}

// NewLock is a kind of lock, with its letter.
func NewLock(letter string, fair bool) *Kind {
	return &Kind{
		Letter: letter, Scripts: Hash, Counts: true, Fair: fair, Reentrant: true,
		Locked: func(e *failure.LockedError) error { return failure.Public(e) },
		Ended:  failure.OfWait,
	}
}

// Named puts what it is, and its name, before an error.
func (k *Kind) Named(name string, err error) error { return failure.Of(k.Noun, name, err) }

// Failed is Named for the error of a request.
func (k *Kind) Failed(keys *protocol.Keys, err error) error { return keys.Failed(k.Noun, err) }

// newKeys names the keys of one name.
func (k *Kind) newKeys(s *session.Session, name string) (*protocol.Keys, error) {
	switch {
	case k.Keys != nil:
		return k.Keys(s, name)
	case !k.Counts:
		return protocol.NewKeys(s.Prefix, k.Letter, name, ":q", ":a", ":d", ":h")
	}
	keys, err := protocol.NewKeys(s.Prefix, k.Letter, name, ":q", ":a", ":d")
	if err == nil {
		keys.Queued = true
	}
	return keys, err
}

// Want is what one acquisition wants. What is wanted alike waits in one lane.
type Want struct {
	N      int64         // permits; All excludes all others
	Limit  int64         // how many there are, unless SetLimit has set another number
	Lease  time.Duration // fixed, not renewed; 0: the session's, or any one where goroutines take turns
	Shared bool          // goroutines of the session that want it have one grant together
}

func (w Want) exclusive() bool { return w.N == All }

// Exclusive is what a lock wants.
var Exclusive = Want{N: All, Limit: All}

// All is how many permits one takes that excludes all others.
const All = protocol.All

// Scripts are those of a kind.
type Scripts struct {
	Acquire, Renew, Release *wire.Script
	Inspect, Force          *wire.Script

	Remain *wire.Script // a Release that leaves what is held taken until a time; nil: nothing can
	Reduce *wire.Script // goes on with one permit of All; nil: there are no others than All
}

// Shares are the scripts of permits, which are leases in a sorted set.
var Shares = Scripts{
	Acquire: wire.Named("permit/acquire"),
	Renew:   wire.Named("permit/renew"),
	Release: wire.Named("permit/release"),
	Inspect: wire.Named("permit/inspect"),
	Force:   wire.Named("permit/force"),
	Remain:  wire.Named("permit/remain"),
	Reduce:  wire.Named("permit/reduce"),
}

// Hash are the scripts of locks, which are hashes with an owner field and a hold count.
var Hash = Scripts{
	Acquire: wire.Named("lock/acquire"),
	Renew:   wire.Named("lock/keep"),
	Release: wire.Named("lock/release"),
	Inspect: wire.Named("lock/inspect"),
	Force:   wire.Named("lock/force"),
	Remain:  wire.Named("lock/remain"),
}
