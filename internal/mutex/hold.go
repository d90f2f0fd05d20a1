package mutex

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Entry is one entry of a tenure that has become a hold. It must not refer to its Hold, which its user may
// forget.
type Entry struct {
	// What follows never changes once Lock has returned.
	ctx    context.Context // ends with the hold; what the user has is the Hold's
	cancel context.CancelCauseFunc
	t      *Tenure
	outer  *Entry // that it is nested in
	token  int64
	fixed  bool // a lease of its own choice, not renewed

	state atomic.Uint32 // a handover.State; changed with Lock.Mu held

	// Lock.Mu guards the following.
	unlocked   bool // or forgotten: no goroutine will unlock it
	gate       Gate // for those that nest under this one
	prev, next *Entry
}

// State is what became of the hold.
func (e *Entry) State() handover.State { return handover.State(e.state.Load()) }

// Joins reports whether both are of one grant.
func (e *Entry) Joins(other *Entry) bool { return e.t == other.t }

// Lock is the lock that it holds.
func (e *Entry) Lock() *Lock { return e.t.Lock }

// gateOf is where an entry nested under outer counts: outer's gate, or, where outer is over, that in which
// outer itself was nested. Lock.Mu held.
func (l *Lock) gateOf(outer *Entry) *Gate {
	for ; outer != nil; outer = outer.outer {
		if outer.State() == handover.Held {
			return &outer.gate
		}
	}
	return &l.Root
}

// Handle is a Hold of the entry, for a user who may forget it. A fixed lease may be meant to run out, and
// goes on.
func (e *Entry) Handle(ctx context.Context) (context.Context, *Hold) {
	return handle.New(ctx, e, !e.fixed)
}

// EntryOf is what a Hold of one lock stands for; nil for any other.
func EntryOf(hd *Hold) *Entry {
	e, _ := hd.Of().(*Entry)
	return e
}

// OwnerField is that under which Redis knows a hold of one lock. Of a RedLock it is the beginning, which is
// the same on all servers. It is "" of any other.
func OwnerField(hd *Hold) string {
	if one, ok := hd.Of().(interface{ OwnerField() string }); ok {
		return one.OwnerField()
	}
	return ""
}

// OwnerField is that under which Redis knows it.
func (e *Entry) OwnerField() string { return e.t.Grant.Owner.(string) }

func (e *Entry) Name() string { return e.t.Lock.Keys.Name }

func (e *Entry) Token() int64 { return e.token }

func (e *Entry) Deadline() time.Time { return e.t.Deadline() }

func (e *Entry) Parts() []*Hold { return nil }

func (e *Entry) Context() context.Context { return e.ctx }

// Find is for acquisitions below: an entry that they may nest in.
func (e *Entry) Find(key any) any {
	d, ok := key.(*descent)
	if !ok || e.t.Lock.S() != d.Lock.S() || e.t.Lock.Keys.Lock() != d.Lock.Keys.Lock() {
		return nil
	}
	switch e.State() {
	case handover.Held:
		return e
	case handover.Lost:
		d.lost = true
	}
	return nil
}

func (e *Entry) Err() error {
	if err := handle.ErrorOf(e.State()); err != nil {
		return err
	}
	// The timer may be late, in a process that was stopped for a while.
	if !time.Now().Before(e.t.Deadline()) {
		return failure.ErrLost
	}
	return nil
}

// Stay does nothing: Acquire refuses HoldAtLeast.
func (e *Entry) Stay(time.Duration) {}

// WaitReplicas blocks until n replicas have the grant.
func (e *Entry) WaitReplicas(ctx context.Context, n int) error {
	return e.t.Lock.S().Link.WaitReplicas(ctx, e, e.t.Lock.Keys.Lock(), n)
}

func (e *Entry) Extend(ctx context.Context, d time.Duration) error {
	l := e.t.Lock
	if !l.S().Begin() {
		return l.Fail(failure.ErrClosed)
	}
	defer l.S().End()
	o, answered := call.Ask(&wakeup.Bounds{Until: ctx}, l.S(), l.Silent(ctx), call.Func(func(most int, _ *atomic.Bool) wire.Outcome {
		return e.t.Update(ctx, d, most, nil)
	}), 0)
	if !answered {
		return l.Fail(failure.OfContext(ctx))
	}
	return o.Err
}
