package mutex

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Kind is what makes one kind of lock.
type Kind struct {
	Letter                        string // in keys and events
	Lock, Release, Force, Inspect *wire.Script
	Remain                        *wire.Script // a Release that leaves the lock taken until a time; nil: it can't
	LockArgs                      []any        // of the lock script, behind those that all kinds have
	Publish                       any          // string: how scripts publish, as sharding of shared.lua has it; nil: by PUBLISH, without being told
	Ordered                       bool         // only the kind's queue says which waiter has the lock next

	// Keys names a lock's keys in a session, or says why there is no such lock.
	Keys func(s *session.Session, name string) (*protocol.Keys, error)
	// Store is where a session's grants live. No allocation: it is called for each request.
	Store func(s *session.Session) Store
	// NewLock makes a lock of a session and its Waiting, in one allocation if it can: there are very many. It must not
	// block. The error is that of session.PartOf.
	NewLock func(s *session.Session) (*Lock, Waiting, error)
	// Alarm is the channel and the message by which a request that finds the data of a grant deleted wakes the
	// waiters; the channel is "" where they find out by themselves.
	Alarm func(k *protocol.Keys, g *protocol.Grant) (channel, message any)
}

// Store is where grants live: a server, or one that a test makes up. No mutex is held when its methods are called.
// Ask, Update, Release, ReleaseAll and Read block until Redis has answered or the request was given up. Where
// abandoned is not nil, it says that the acquisition does not wait for the answer any more.
type Store interface {
	// Ask asks for a free lock, once or as often as a request is sent, and sets the attempt's Grant. The reply is a lock
	// script's.
	Ask(a *Acquisition, most int, abandoned *atomic.Bool) wire.Outcome
	// Update sends a tenure's present count, and makes its lease at least that long. The reply is 'K' if the tenure is held.
	Update(ctx context.Context, t *Tenure, lease time.Duration, most int, abandoned *atomic.Bool) wire.Outcome
	// Release ends a grant. The reply begins with 'R' if the grant was held, or was released before.
	Release(ctx context.Context, r *protocol.Release, most int) wire.Outcome
	// Silent: requests need goroutines of their own, so that their callers can leave (wire.Link.Silent).
	Silent(ctx context.Context, k *protocol.Keys) bool
	// ReleaseAll ends the grants of many tenures.
	ReleaseAll(ended []*Tenure) error
	// Listen subscribes to a channel; sharded: for what is published there by SPUBLISH. It does not block.
	Listen(channel string, sharded bool) *wakeup.Listener
	// Read runs a script that is about no grant of ours.
	Read(ctx context.Context, r *protocol.Same, most int) wire.Outcome
}

// Waiting is how the goroutines of a session wait for one lock, and what follows from its release. Either all are told and
// compete (package broadcast), or the lock is handed to the next in Redis' queue (package queue). Lock.Mu is held
// when a method is called, unless the method says otherwise. Only Admit blocks.
type Waiting interface {
	// Admit lets a newcomer in: it blocks until the lock is held or the wait is over. It releases Lock.Mu, which is held.
	// Neither an entry nor an error: what it waited for has changed, look again.
	Admit(a *Acquisition) (*Entry, error)
	// Waits: goroutines wait elsewhere than at the root gate.
	Waits() bool
	// Stands is since when a goroutine inside the root gate has stood in the same place behind other sessions; nil if none does.
	Stands() *time.Time
	// Ended: a tenure is over by its last Unlock, and Redis was not told yet. A waiter at the root gate stays there,
	// behind the entry that has just ended, until Released.
	Ended()
	// Lost: a tenure is over without an Unlock. Redis need not be told.
	Lost()
	// Released: Redis was notified of the end of a tenure, or could not be. Lock.Mu is not held.
	Released(t *Tenure, o wire.Outcome)
	// Freed takes in what any release of the lock replied, which was sent at sent. Lock.Mu is not held.
	Freed(reply string, sent time.Time)
	// PassFor is for how long a tenure may be passed on in memory.
	PassFor() time.Duration
	// Idle: nothing in this session needs the lock any more. Lock.Mu is not held.
	Idle()
}
