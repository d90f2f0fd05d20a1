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

// Kind is what makes one kind of permits.
type Kind struct {
	Letter string // in keys and events
	Want   Want   // of its Lock, unless a call says otherwise

	Reentrant bool // a context that descends from a hold enters that again
	Counts    bool // Redis has a hash with the hold count: it is told of each nested hold
	Fair      bool // only the queue says which goroutine of all sessions is next
	Lingers   bool // a session may keep it while no goroutine has it
	Alone     bool // a try waits for whatever its session has there: that is on its way out

	Noun string // for errors; "": a lock

	// Limited is the error where Redis has a limit with which the wait never ends; of a kind that has Shares.
	Limited func(name string, want Want, limit int64) error
}

// NewLock is a kind of lock, with its letter.
func NewLock(letter string, fair bool) *Kind {
	return &Kind{Letter: letter, Want: Exclusive, Counts: true, Fair: fair, Reentrant: true}
}

// Named puts what it is, and its name, before an error.
func (k *Kind) Named(name string, err error) error { return failure.Of(k.Noun, name, err) }

// Failed is Named for the error of a request.
func (k *Kind) Failed(keys *protocol.Keys, err error) error { return keys.Failed(k.Noun, err) }

// locked is the error of what is not free.
func (k *Kind) locked(e *failure.LockedError) error {
	e.What = k.Noun
	return failure.Public(e)
}

// newKeys names the keys of one name.
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

// Want is what one acquisition wants. What is wanted alike waits in one lane. The zero Want is that of the
// kind.
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

// The scripts of all kinds.
var (
	acquireScript = wire.Named("lock/acquire")
	renewScript   = wire.Named("lock/renew")
	releaseScript = wire.Named("lock/release")
	inspectScript = wire.Named("lock/inspect")
	forceScript   = wire.Named("lock/force")
	limitScript   = wire.Named("lock/limit")
)

// Config is what one acquisition is told by its options. It never changes once the acquisition has begun.
type Config struct {
	Lease     time.Duration // fixed, not renewed; 0: the session's, renewed
	AtLeast   time.Duration // for which it stays taken, also after its Unlock
	Wait      time.Duration // at most; only if Bounded
	Bounded   bool
	Impatient bool   // an outage ends the wait at once
	Note      string // about this call, in the holder info; "": none

	Part *Part // unless nil, it is part of another acquisition
}

// Part is how an acquisition is part of another one.
type Part struct {
	While context.Context // its end ends the wait; that of the caller's context does not
	Lost  func()          // called when the hold has ended without an Unlock; it must be quick
}

// Check says what is wrong with it.
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

// Once: it asks once, and does not wait. try: as TryLock does.
func (c Config) Once(try bool) bool { return try || c.Bounded && c.Wait == 0 }

// Until is ctx with the end of the wait, if that has a bound. WaitAtMost(0) has none: it waits for the
// answer.
func (c Config) Until(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Part != nil {
		return c.Part.While, func() {}
	}
	if !c.Bounded || c.Wait <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.Wait)
}

// NewConfig applies options, of rlock's type, to what an acquisition starts from.
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
