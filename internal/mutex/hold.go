package mutex

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// Entry is one entry of a tenure that has become a hold. It must not refer to its Hold, which its user may forget.
type Entry struct {
	// What follows never changes once Lock has returned.
	context.Context // ends with the hold; what the user has is the Hold's
	cancel          context.CancelCauseFunc
	t               *Tenure
	outer           *Entry // that it is nested in
	up              *Entry // the next hold on the way up its context, of any lock
	owner           *Owner
	token           int64
	fixed           bool // a lease of its own choice, not renewed
	named           bool // the cause of its loss has the lock's name

	state atomic.Uint32 // a handover.State; changed with Lock.Mu held

	// Lock.Mu guards the following.
	unlocked   bool // or forgotten: no goroutine will unlock it
	gate       Gate // for those that nest under this one
	prev, next *Entry
}

type entryKey struct{}

// State is what became of the hold.
func (e *Entry) State() handover.State { return handover.State(e.state.Load()) }

// Lock is the lock that it holds.
func (e *Entry) Lock() *Lock { return e.t.Lock }

// Confirm notes that the replicas have confirmed the tenure, by a request about another lock on the same server.
func (e *Entry) Confirm() {
	e.t.Lock.Mu.Lock()
	defer e.t.Lock.Mu.Unlock()
	e.t.confirmed = true
}

// gateOf is where an entry nested under outer counts: outer's gate, or, where outer is over, that in which outer itself
// was nested. Lock.Mu held.
func (l *Lock) gateOf(outer *Entry) *Gate {
	for ; outer != nil; outer = outer.outer {
		if outer.State() == handover.Held {
			return &outer.gate
		}
	}
	return &l.Root
}

// heldContext is the context that Lock returns. It is the Hold by another type, and so the same allocation: as long as
// either can be reached, the collector forgets neither.
type heldContext Hold

// Context is the one to go on with under a hold of one lock.
func Context(hd *Hold) context.Context { return (*heldContext)(hd) }

func (c *heldContext) entry() *Entry { return EntryOf((*Hold)(c)) }

func (c *heldContext) Deadline() (time.Time, bool) { return c.entry().Context.Deadline() }

func (c *heldContext) Done() <-chan struct{} { return c.entry().Done() }

func (c *heldContext) Err() error { return c.entry().Context.Err() }

// Value makes the hold findable from whatever descends from it.
func (c *heldContext) Value(key any) any {
	if key == (entryKey{}) {
		return c.entry()
	}
	return c.entry().Context.Value(key)
}

func (c *heldContext) String() string {
	return fmt.Sprintf("lockline.Hold(%q)", c.entry().t.Lock.Keys.Name)
}

// view is an entry as its handle sees it. (An entry is a context, too, whose methods have other meanings.)
type view Entry

// NewHandle is a Hold of the entry that its unit keeps for now: see Watch.
func (e *Entry) NewHandle() *Hold { return handle.NewHold((*view)(e)) }

// Handle is the Hold of a plain lock, for a user who may forget it.
func (e *Entry) Handle() *Hold {
	hd := e.NewHandle()
	Watch(hd)
	return hd
}

// EntryOf is what a Hold of one lock stands for; nil for any other.
func EntryOf(hd *Hold) *Entry {
	v, _ := hd.Of().(*view)
	return (*Entry)(v)
}

// OwnerField is that under which Redis knows a hold of one lock; "" of any other.
func OwnerField(hd *Hold) string {
	if e := EntryOf(hd); e != nil {
		return e.t.Grant.Owner.(string)
	}
	return ""
}

func (v *view) Name() string { return v.t.Lock.Keys.Name }

func (v *view) Token() int64 { return v.token }

func (v *view) Deadline() time.Time { return v.t.Deadline() }

func (v *view) Parts() []*Hold { return nil }

func (v *view) Err() error {
	if err := handle.ErrorOf((*Entry)(v).State()); err != nil {
		return err
	}
	// The timer may be late, in a process that was stopped for a while.
	if !time.Now().Before(v.t.Deadline()) {
		return failure.ErrLost
	}
	return nil
}

func (v *view) Extend(ctx context.Context, d time.Duration) error {
	l := v.t.Lock
	if !l.S().Begin() {
		return l.Fail(failure.ErrClosed)
	}
	defer l.S().End()
	o, answered := call.Ask(&wakeup.Bounds{Until: ctx}, l.S(), l.Silent(ctx), call.Func(func(most int, _ *atomic.Bool) wire.Outcome {
		return v.t.Update(ctx, d, most, nil)
	}), 0)
	if !answered {
		return l.Fail(failure.OfContext(ctx))
	}
	return o.Err
}

func (v *view) Unlock(ctx context.Context) error { return (*Entry)(v).unlock(ctx) }
