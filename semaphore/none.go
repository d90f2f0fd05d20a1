package semaphore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
)

// nothing is a hold of no permits, which Redis is told nothing of. It is a handle.Holding.
type nothing struct {
	name   string
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   atomic.Bool
}

func none(ctx context.Context, name string) (context.Context, *handle.Hold) {
	n := &nothing{name: name}
	n.ctx, n.cancel = context.WithCancelCause(ctx)
	return handle.New(ctx, n, false)
}

func (n *nothing) Name() string                                { return n.name }
func (n *nothing) Token() int64                                { return 0 }
func (n *nothing) Deadline() time.Time                         { return time.Time{} }
func (n *nothing) Parts() []*handle.Hold                       { return nil }
func (n *nothing) Context() context.Context                    { return n.ctx }
func (n *nothing) Find(any) any                                { return nil }
func (n *nothing) Forgotten()                                  {}
func (n *nothing) Extend(context.Context, time.Duration) error { return nil }
func (n *nothing) Stay(time.Duration)                          {}
func (n *nothing) WaitReplicas(context.Context, int) error     { return nil }

func (n *nothing) Err() error {
	if n.over.Load() {
		return failure.ErrNotHeld
	}
	return nil
}

func (n *nothing) Unlock(context.Context) error {
	if n.over.Swap(true) {
		return named(n.name, failure.ErrNotHeld)
	}
	n.cancel(failure.ErrUnlocked)
	return nil
}
