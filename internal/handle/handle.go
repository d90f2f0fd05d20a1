// Package handle is what a user has of a hold: a Hold, which may stand for one lock or for several as one,
// and which its user may forget.
//
// A Hold is made by New of whatever implements Holding, and is valid from then on; the zero Hold stands for
// nothing, and each use of it says so. It keeps what it stands for reachable, and never the other way round:
// else no Hold that was forgotten would ever be collected.
package handle

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
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
	WaitReplicas(ctx context.Context, n int) error
	// Stay leaves it taken until d from now, also after Unlock.
	Stay(d time.Duration)
	Unlock(ctx context.Context) error
	// Parts are the holds that it is made of; nil for one lock.
	Parts() []*Hold
	// Context ends with the hold.
	Context() context.Context
	// Find is what an acquisition below finds by a key of its own: the hold that it nests in; nil if it is
	// none of these.
	Find(key any) any
	// Forgotten is called once no goroutine can use or unlock the hold any more. It must be quick: the
	// runtime's cleanups wait for each other.
	Forgotten()
}

// Hold is the handle of a Holding, for its user. What it stands for must not refer
// to it, so that a handle that was forgotten can be collected.
type Hold struct {
	kept
	cleanup runtime.Cleanup
}

// kept is what is left of a Hold that was forgotten.
type kept struct {
	of    Holding // nil in a zero Hold
	owner *Owner  // nil without WithOwner
}

// New is the handle of a Holding that was acquired with ctx, and the context to go on with. The Holding is
// told if the handle is collected without Unlock.
func New(ctx context.Context, of Holding) (context.Context, *Hold) {
	hd := &Hold{kept: kept{of, OwnerOf(ctx)}}
	if o := hd.owner; o != nil {
		o.mu.Lock()
		o.holds = append(o.holds, of)
		o.mu.Unlock()
	}
	hd.cleanup = runtime.AddCleanup(hd, kept.forgotten, hd.kept)
	Keep(hd)
	return (*heldContext)(hd), hd
}

func (k kept) forgotten() {
	k.owner.remove(k.of)
	k.of.Forgotten()
}

// Forget says that no goroutine can use or unlock it any more.
func (hd *Hold) Forget() {
	hd.cleanup.Stop()
	Drop(hd)
	hd.forgotten()
}

// heldContext is the context that Lock returns. It is the Hold by another type, and so the same allocation:
// as long as either can be reached, the collector forgets neither.
type heldContext Hold

// Context is the one to go on with under a hold.
func Context(hd *Hold) context.Context { return (*heldContext)(hd) }

func (c *heldContext) Deadline() (time.Time, bool) { return c.of.Context().Deadline() }

func (c *heldContext) Done() <-chan struct{} { return c.of.Context().Done() }

func (c *heldContext) Err() error { return c.of.Context().Err() }

// fromKey finds the innermost Hold in a context.
type fromKey struct{}

// From returns the innermost Hold that ctx descends from. It returns nil if there is none, or ctx is nil.
func From(ctx context.Context) *Hold {
	if ctx == nil {
		return nil
	}
	hd, _ := ctx.Value(fromKey{}).(*Hold)
	return hd
}

// Value makes the hold findable from whatever descends from it.
func (c *heldContext) Value(key any) any {
	if key == (fromKey{}) {
		return (*Hold)(c)
	}
	if found := c.of.Find(key); found != nil {
		return found
	}
	return c.of.Context().Value(key)
}

func (c *heldContext) String() string { return fmt.Sprintf("lockline.Hold(%q)", c.of.Name()) }

// Of is what it stands for; nil of a zero Hold.
func (hd *Hold) Of() Holding {
	if hd == nil {
		return nil
	}
	return hd.of
}

// ask asks what a Hold stands for. zero is the answer of a zero Hold.
func ask[T any](hd *Hold, question func(Holding) T, zero T) T {
	if of := hd.Of(); of != nil {
		return question(of)
	}
	return zero
}

func (hd *Hold) Name() string        { return ask(hd, Holding.Name, "") }
func (hd *Hold) Token() int64        { return ask(hd, Holding.Token, 0) }
func (hd *Hold) Deadline() time.Time { return ask(hd, Holding.Deadline, time.Time{}) }
func (hd *Hold) Err() error          { return ask(hd, Holding.Err, failure.ErrNotHeld) }
func (hd *Hold) Parts() []*Hold      { return ask(hd, Holding.Parts, nil) }

// Stay leaves it taken until d from now, also after Unlock.
func (hd *Hold) Stay(d time.Duration) {
	if hd.Of() != nil {
		hd.of.Stay(d)
	}
}

// check is why nothing is asked of Redis. A loss matters more than a wrong argument.
func (hd *Hold) check(ctx context.Context) error {
	switch err := hd.Err(); {
	case hd.Of() == nil:
		return failure.ErrNilHold
	case err != nil:
		return failure.Named(hd.Name(), hd.why(err))
	case ctx == nil:
		return failure.Named(hd.Name(), failure.ErrNilContext)
	}
	return nil
}

// why returns the error of a hold that has ended with more words than err, which is its Err.
func (hd *Hold) why(err error) error {
	if of, ok := hd.of.(interface{ LossReason() error }); ok && err == failure.ErrLost {
		return failure.Lost(of.LossReason())
	}
	if err == failure.ErrNotHeld {
		return failure.ErrUnlockedBefore
	}
	return err
}

func (hd *Hold) Extend(ctx context.Context, d time.Duration) error {
	if err := hd.check(ctx); err != nil {
		return err
	}
	if err := protocol.CheckLease("Extend", d); err != nil {
		return err
	}
	return hd.of.Extend(ctx, d)
}

func (hd *Hold) WaitReplicas(ctx context.Context, n int) error {
	if err := hd.check(ctx); err != nil {
		return err
	}
	return hd.of.WaitReplicas(ctx, n)
}

func (hd *Hold) Unlock(ctx context.Context) error {
	if hd == nil || hd.of == nil {
		return failure.ErrNilHold
	}
	if ctx == nil { // a mistake, for which no lock should stay held
		ctx = context.Background()
	}
	hd.cleanup.Stop() // first, or the collector could release it, too
	Drop(hd)
	hd.owner.remove(hd.of)
	return hd.of.Unlock(ctx)
}

// Do runs fn with the hold's context and then unlocks, also if fn panics or calls
// runtime.Goexit.
func (hd *Hold) Do(held context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if e := hd.Unlock(held); e != nil { // held ends with the hold, so this waits for UnlockWait at most
			err = failure.Join(err, e) // fn may have worked, and yet without the lock
		}
	}()
	return fn(held)
}

// UnlockWait bounds the wait of an Unlock whose context does not.
const UnlockWait = 5 * time.Second

// UnlockContext is an Unlock's: that of its call, or, if that has ended already, its values.
func UnlockContext(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// UnlockBounds returns the bounds of an Unlock with this context: its UnlockContext, and how long it waits
// for the reply if that has no deadline. An Unlock whose context can end waits for that, but not longer than
// an outage may last.
func UnlockBounds(ctx context.Context, outage time.Duration) (until context.Context, atMost time.Duration) {
	if until = UnlockContext(ctx); until.Done() == nil {
		return until, UnlockWait
	}
	return until, outage
}

// UnlockError returns the error of an Unlock that stopped waiting for the reply. until is its UnlockContext.
func UnlockError(until context.Context) error {
	why := failure.OfContext(until)
	if why == nil { // the library's bound is over
		why = context.DeadlineExceeded
	}
	return fmt.Errorf("no answer from Redis to the release, which is sent again in the background: %w", why)
}

// UnlockBound is UnlockBounds as one context.
func UnlockBound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx = UnlockContext(ctx); ctx.Done() != nil {
		return ctx, func() {} // it ends the wait by itself
	}
	return context.WithTimeout(ctx, UnlockWait)
}

// An Owner is a context below which code finds the holds that other code below it took, as if it had their
// contexts.
type Owner struct {
	context.Context

	mu    sync.Mutex // guards holds; a leaf
	holds []Holding  // neither unlocked nor forgotten, the latest last
}

type ownerKey struct{}

// OwnerOf is the owner that ctx descends from; nil if there is none.
func OwnerOf(ctx context.Context) *Owner {
	o, _ := ctx.Value(ownerKey{}).(*Owner)
	return o
}

// WithOwner makes an owner below ctx. It panics if ctx is nil: else the first use of the owner did, wherever
// that is.
func WithOwner(ctx context.Context) context.Context {
	if ctx == nil {
		panic("lockline: WithOwner: the context is nil")
	}
	return &Owner{Context: ctx}
}

// As has o note the holds that are taken below the returned context, whatever owner ctx has; none does if o
// is nil.
func As(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// Value finds the latest of its holds that has the key. One that was lost stays until it is unlocked, so that
// no code below takes the lock afresh that has not noticed the loss.
func (o *Owner) Value(key any) any {
	if key == (ownerKey{}) {
		return o
	}
	o.mu.Lock()
	holds := slices.Clone(o.holds)
	o.mu.Unlock()
	for _, of := range slices.Backward(holds) { // Find may take other mutexes
		if found := of.Find(key); found != nil {
			return found
		}
	}
	return o.Context.Value(key)
}

func (o *Owner) String() string { return "lockline.WithOwner" }

// remove forgets a hold. A nil owner knows of none.
func (o *Owner) remove(of Holding) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds = slices.DeleteFunc(o.holds, func(other Holding) bool { return other == of })
}

// State is what became of a grant, or of a hold of it.
type State uint8

const (
	Held     State = iota
	Released       // by its last Unlock
	Lost           // its lease ran out, or Redis does not have it any more
	Closed         // given back by its session
)

func (s State) String() string { return [...]string{"held", "released", "lost", "closed"}[s] }

// ErrorOf is the error of a hold in that state; nil while it is held.
func ErrorOf(s State) error {
	return [...]error{nil, failure.ErrNotHeld, failure.ErrLost, failure.ErrClosed}[s]
}
