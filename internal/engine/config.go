package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Config is what one acquisition is told by its options. It never changes once the acquisition has begun.
type Config struct {
	Lease     time.Duration // fixed, not renewed; 0: the session's, renewed
	AtLeast   time.Duration // for which it stays taken, also after its Unlock
	Wait      time.Duration // at most; only if Bounded
	Bounded   bool
	Impatient bool // an outage ends the wait at once

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
	if c.AtLeast < 0 || c.AtLeast > protocol.MaxLease {
		return fmt.Errorf("lockline: HoldAtLeast: %v is not from 0 to ten years", c.AtLeast)
	}
	if c.Bounded && c.Wait < 0 {
		return fmt.Errorf("lockline: WaitAtMost: a negative wait: %v", c.Wait)
	}
	return nil
}

// Once: it asks once, and does not wait. try: as TryLock does.
func (c Config) Once(try bool) bool { return try || c.Bounded && c.Wait == 0 }

// Until is ctx with the end of the wait, if that has a bound; one that asks once has none, and waits for the
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

// Outer converts between rlock's types, which this package cannot import, and those inside. rlock sets it;
// package inner makes it type-safe.
var Outer struct {
	Session  func(session any) *session.Session
	Mutex    func(mutex any) *Permits
	NewMutex func(Permits) any
}
