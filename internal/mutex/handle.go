package mutex

import (
	"context"
	"runtime"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
)

// Holding is what a Hold stands for: one entry into a lock, or into several as one.
type Holding interface {
	Name() string
	Token() int64
	Deadline() time.Time
	Err() error
	Extend(ctx context.Context, d time.Duration) error
	Unlock(ctx context.Context) error
	// Parts are the holds that it is made of; nil for one lock.
	Parts() []*Hold
}

// Hold is the handle of a Holding, for its user. What it stands for must not refer
// to it, so that a handle that was forgotten can be collected.
type Hold struct {
	of      Holding // nil in a zero Hold
	cleanup runtime.Cleanup
}

func NewHold(of Holding) *Hold { return &Hold{of: of} }

// WhenForgotten has f called with what the handle stands for, if the handle is collected
// without Unlock. f must be quick: the runtime's cleanups wait for each other.
func WhenForgotten[H Holding](hd *Hold, of H, f func(H)) {
	hd.cleanup = runtime.AddCleanup(hd, f, of)
}

func (hd *Hold) valid() bool { return hd != nil && hd.of != nil }

func (hd *Hold) Name() string {
	if !hd.valid() {
		return ""
	}
	return hd.of.Name()
}

func (hd *Hold) Token() int64 {
	if !hd.valid() {
		return 0
	}
	return hd.of.Token()
}

func (hd *Hold) Deadline() time.Time {
	if !hd.valid() {
		return time.Time{}
	}
	return hd.of.Deadline()
}

func (hd *Hold) Err() error {
	if !hd.valid() {
		return failure.ErrNotHeld
	}
	return hd.of.Err()
}

func (hd *Hold) Extend(ctx context.Context, d time.Duration) error {
	if !hd.valid() {
		return failure.ErrNotHeld
	}
	if err := hd.of.Err(); err != nil {
		return failure.Named(hd.Name(), err)
	}
	if err := protocol.CheckLease("Extend", d); err != nil {
		return err
	}
	if ctx == nil {
		return failure.ErrNilContext
	}
	return hd.of.Extend(ctx, d)
}

func (hd *Hold) Unlock(ctx context.Context) error {
	if !hd.valid() {
		return failure.ErrNotHeld
	}
	if ctx == nil {
		return failure.ErrNilContext
	}
	hd.cleanup.Stop()
	return hd.of.Unlock(ctx)
}

// Do runs fn with the hold's context and then unlocks, also if fn panics or calls
// runtime.Goexit.
func (hd *Hold) Do(held context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		bound, cancel := context.WithTimeout(context.WithoutCancel(held), unlockWait)
		defer cancel()
		if e := hd.Unlock(bound); e != nil {
			err = failure.Join(err, e)
		}
	}()
	return fn(held)
}

func (hd *Hold) Parts() []*Hold {
	if !hd.valid() {
		return nil
	}
	return hd.of.Parts()
}
