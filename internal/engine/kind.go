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

// Kind describes one kind of locks: its letter, its noun, and the rules in which it differs from other kinds.
type Kind struct {
	Letter string // letter of the kind in keys and events
	Want   Want   // what a call wants if its own Want is zero

	Reentrant bool // a call whose context descends from a hold nests in that hold
	Fair      bool // goroutines of all sessions are served in the order of the queue in Redis
	Lingers   bool // a session may keep a grant while no goroutine has it (WithLinger)

	// Counts means that Redis stores the hold count, so each nested Lock and Unlock sends a request. A lock
	// with Counts has one holder at a time. A kind whose locks can have several holders does not set Counts.
	Counts bool

	// Alone means that at most one goroutine of a process wants the lock at a time, as for a part of a
	// RedLock. If a TryLock finds a grant or an attempt of its session, this grant or attempt usually belongs
	// to an earlier call and ends soon. So the TryLock waits for its end, for up to ownRelease.
	Alone bool

	Noun string // names the kind in errors, as in "semaphore"; "" means a lock

	// Limited returns the error of a call that Redis refused because of the limit in Redis, for example
	// because the call wants more permits than the limit. Limited is nil for a kind without a limit.
	Limited func(name string, want Want, limit int64) error
}

// NewLock returns the Kind of an exclusive, reentrant lock. letter is part of its keys.
func NewLock(letter string, fair bool) *Kind {
	return &Kind{Letter: letter, Want: Exclusive, Counts: true, Fair: fair, Reentrant: true}
}

// Named prefixes err with the kind and name of the lock, as in `lock "orders:42": …`.
func (k *Kind) Named(name string, err error) error { return failure.Of(k.Noun, name, err) }

// Failed is like Named, but for the error of a request. Failed adds a hint if the error shows a likely cause.
func (k *Kind) Failed(keys *protocol.Keys, err error) error { return keys.Failed(k.Noun, err) }

// locked returns the error for a lock that is not free.
func (k *Kind) locked(e *failure.LockedError) error {
	e.What = k.Noun
	return failure.Public(e)
}

// newKeys returns the keys of one name, or an error if the name is not valid.
func (k *Kind) newKeys(s *session.Session, name string) (*protocol.Keys, error) {
	endings := []string{":q", ":w", ":h"}
	if k.Counts { // an exclusive lock does not need the key :h, which has the leases of further holders
		endings = endings[:2]
	}
	keys, err := protocol.NewKeys(s.Prefix, k.Letter, name, endings...)
	if err == nil {
		keys.Queued = true
	}
	return keys, err
}

// A Want describes the permits that a call requests. Calls of a session wait in one lane only if their Wants
// are equal. The zero Want means the Want of the kind.
type Want struct {
	N     int64 // number of permits; All excludes all other holders
	Limit int64 // total number of permits, unless SetLimit has set another number

	// Lease is the fixed lease of all calls in a lane, or 0 for the session's lease. For an exclusive Want of
	// a lock that is not fair, Lease is always 0, because calls of such a lock share a lane even if their
	// leases differ.
	Lease time.Duration

	Shared bool // goroutines of the session with equal Wants share one grant
}

func (w Want) exclusive() bool { return w.N == All }

// Exclusive is the Want of an exclusive lock.
var Exclusive = Want{N: All, Limit: All}

// All is the number of permits that a holder has if it excludes all other holders.
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

// Config has the options of one call. A call does not change its Config.
type Config struct {
	Lease   time.Duration // fixed lease, not renewed; 0 means the session's lease, which is renewed
	AtLeast time.Duration // least time for which the lock stays taken, even after its Unlock; 0 means not set
	Wait    time.Duration // longest time to wait; used only if Bounded is true
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

// Once reports whether the call does not wait for other holders. This is so for a TryLock, and for a call
// with WaitAtMost(0).
func (c Config) Once(try bool) bool { return try || c.Bounded && c.Wait == 0 }

// Until returns ctx with the bound of the wait as a deadline. WaitAtMost(0) sets no deadline, because such a
// call still waits for the reply.
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
		return c // saves the call of applied, in which c escapes to the heap
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
