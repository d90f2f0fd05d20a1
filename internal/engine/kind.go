package engine

import (
	"context"
	"math"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Kind has all differences between the kinds of locks.
type Kind struct {
	Letter string // in keys and events
	Want   Want   // of its Lock, unless the call has another one

	Reentrant bool // a call whose context descends from a hold nests in that hold
	Counts    bool // Redis has the hold count, so each nested Lock and Unlock sends a request
	Fair      bool // goroutines of all sessions are served in the order of the queue in Redis
	Lingers   bool // a session may keep it while no goroutine has it (WithLinger)
	Alone     bool // a TryLock waits for grants and attempts of its session, which end soon

	Noun string // names the kind in errors, as in "semaphore"; "" means a lock

	// Limited returns the error of a call that wants more permits than the limit in Redis, so its wait
	// would never end. It is nil for a kind without a limit.
	Limited func(name string, want Want, limit int64) error
}

// NewLock returns a kind of lock with this letter.
func NewLock(letter string, fair bool) *Kind {
	return &Kind{Letter: letter, Want: Exclusive, Counts: true, Fair: fair, Reentrant: true}
}

// Named prefixes err with the kind and name of the lock, as in `lock "orders:42": …`.
func (k *Kind) Named(name string, err error) error { return failure.Of(k.Noun, name, err) }

// Failed is Named for the error of a request. It adds a hint if the keys may be damaged.
func (k *Kind) Failed(keys *protocol.Keys, err error) error { return keys.Failed(k.Noun, err) }

// locked returns the error for a lock that is not free.
func (k *Kind) locked(e *failure.LockedError) error {
	e.What = k.Noun
	return failure.Public(e)
}

// newKeys returns the keys of one name, or an error if the name is not valid.
func (k *Kind) newKeys(s *session.Session, name string) (*protocol.Keys, error) {
	endings := []string{":q", ":w", ":h"}
	if k.Counts { // without permits, there is one holder, and no key for further holders
		endings = endings[:2]
	}
	keys, err := protocol.NewKeys(s.Prefix, k.Letter, name, endings...)
	if err == nil {
		keys.Queued = true
	}
	return keys, err
}

// Want says how many permits a call requests, and how. Calls of a session with equal Wants wait in one
// lane. The zero Want means the Want of the kind.
type Want struct {
	N      int64         // permits; All excludes all others
	Limit  int64         // how many there are, unless SetLimit has set another number
	Lease  time.Duration // fixed lease; 0 means the session's, or a lock in whose lane leases may differ
	Shared bool          // goroutines of the session that want the same have one grant together
}

func (w Want) exclusive() bool { return w.N == All }

// Exclusive is the Want of a lock.
var Exclusive = Want{N: All, Limit: All}

// All is the number of permits of a holder that excludes all others.
const All = protocol.All

// The scripts of all kinds.
var (
	acquireScript = wire.Named("lock/acquire")
	renewScript   = wire.Named("lock/renew")
	releaseScript = wire.Named("lock/release")
	inspectScript = wire.Named("lock/inspect")
	forceScript   = wire.Named("lock/force")
	limitScript   = wire.Named("lock/limit")
)

// Config has the options of one call. It does not change once the call has begun.
type Config struct {
	Lease   time.Duration // fixed, not renewed; 0 means the session's, renewed
	AtLeast time.Duration // for how long the lock stays taken, also after its Unlock; 0 means not so
	Wait    time.Duration // bound of the wait, only if Bounded
	Bounded bool
	Note    string // note of this call in the holder info; "" means none
}

// Check returns an error if an option has a value that is not valid.
func (c Config) Check() error {
	if c.Lease != 0 {
		if err := protocol.CheckLease("WithLease", c.Lease); err != nil {
			return err
		}
	}
	if c.AtLeast != 0 {
		err := protocol.CheckDuration("HoldAtLeast", c.AtLeast, protocol.MinTime, protocol.MaxLease)
		if err != nil {
			return err
		}
	}
	if c.Note != "" {
		if err := protocol.CheckText("WithNote", c.Note); err != nil {
			return err
		}
	}
	if c.Bounded && c.Wait != 0 {
		return protocol.CheckDuration("WaitAtMost", c.Wait, protocol.MinTime, math.MaxInt64)
	}
	return nil
}

// Once reports whether the call does not wait for other holders: it is a TryLock, or has WaitAtMost(0).
func (c Config) Once(try bool) bool { return try || c.Bounded && c.Wait == 0 }

// Until returns ctx with the bound of the wait as a deadline. WaitAtMost(0) sets none, because the call
// waits for the reply.
func (c Config) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	if !c.Bounded || c.Wait <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.Wait)
}

// NewConfig returns c with the options applied. O is the option type of package rlock, which this package
// cannot import.
func NewConfig[O any](c Config, options []O) Config {
	if len(options) == 0 {
		return c // which would else escape
	}
	return applied(c, options)
}

func applied[O any](c Config, options []O) Config {
	for _, o := range options {
		if o, ok := any(o).(interface{ Apply(*Config) }); ok {
			o.Apply(&c)
		}
	}
	return c
}
