// Package handle has the Hold that a user gets from Lock, for one lock or for several locks that are held
// together.
//
// New makes a Hold from any implementation of Holding. The methods of a zero Hold that users can call return
// an error or a zero value.
//
// A Hold is forgotten if no goroutine can reach it any more, and it was not unlocked. A Hold refers to its
// Holding. The Holding must not refer to the Hold, because otherwise the garbage collector would never find a
// forgotten Hold.
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

// Holding is one lock that is held, or several locks that are held together. The user has a Hold as its
// handle.
type Holding interface {
	Name() string
	Token() int64
	Deadline() time.Time
	Err() error
	Extend(ctx context.Context, d time.Duration) error
	WaitReplicas(ctx context.Context, n int) error
	// Stay keeps the lock taken until d from now, even after Unlock.
	Stay(d time.Duration)
	Unlock(ctx context.Context) error
	// Parts returns the holds of the members, or nil if the Holding is one lock.
	Parts() []*Hold
	// Context returns the context that ends with the hold.
	Context() context.Context
	// Find returns the hold in which a call can nest, if key is the context key of this call. Packages of
	// locks have their own types for these keys. Find returns nil for any other key.
	Find(key any) any
	// Forgotten is called when no goroutine can use or unlock the hold any more. It must return quickly,
	// because the runtime runs cleanups one after another.
	Forgotten()
}

// Hold is the handle by which a user uses a Holding.
type Hold struct {
	kept
	cleanup runtime.Cleanup
}

// kept is the part of a Hold that the cleanup of a forgotten Hold still needs.
type kept struct {
	of    Holding // nil in a zero Hold
	owner *Owner  // nil without WithOwner
}

// New returns a Hold for a Holding that was acquired with ctx, and the context for the protected work. If the
// garbage collector finds that the Hold is forgotten, Forgotten is called.
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

// Forget ends a Hold as if the garbage collector had found that it is forgotten. The caller must know that no
// goroutine can use the Hold any more.
func (hd *Hold) Forget() {
	hd.cleanup.Stop()
	Drop(hd)
	hd.forgotten()
}

// heldContext is the context that Lock returns. It is the Hold, converted to another type. So both are one
// allocation, and the garbage collector frees neither of them while the other one can be reached.
type heldContext Hold

// Context returns the context that Lock returned with the hold.
func Context(hd *Hold) context.Context { return (*heldContext)(hd) }

func (c *heldContext) Deadline() (time.Time, bool) { return c.of.Context().Deadline() }

func (c *heldContext) Done() <-chan struct{} { return c.of.Context().Done() }

func (c *heldContext) Err() error { return c.of.Context().Err() }

// fromKey is the context key by which From finds the innermost Hold.
type fromKey struct{}

// From returns the innermost Hold that ctx descends from. It returns nil if there is none, or ctx is nil.
func From(ctx context.Context) *Hold {
	if ctx == nil {
		return nil
	}
	hd, _ := ctx.Value(fromKey{}).(*Hold)
	return hd
}

// Value lets a call find the hold if the context of the call descends from c.
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

// Of returns the Holding. It returns nil for a zero Hold.
func (hd *Hold) Of() Holding {
	if hd == nil {
		return nil
	}
	return hd.of
}

// ask calls a method of the Holding. It returns zero for a zero Hold.
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

// Stay keeps the lock taken until d from now, even after Unlock.
func (hd *Hold) Stay(d time.Duration) {
	if hd.Of() != nil {
		hd.of.Stay(d)
	}
}

// check returns an error if a call cannot send its request. If the hold was lost, and an argument is wrong,
// too, the error is about the loss.
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

// why returns a more detailed error for a hold that has ended. err is the result of hd.Err.
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
	if ctx == nil { // a nil context is a mistake, but the lock should not stay held
		ctx = context.Background()
	}
	hd.cleanup.Stop() // first, because otherwise the garbage collector could release the hold, too
	Drop(hd)
	hd.owner.remove(hd.of)
	return hd.of.Unlock(ctx)
}

// Do runs fn with the context of the hold, and then unlocks, even if fn panics or calls runtime.Goexit.
func (hd *Hold) Do(held context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if e := hd.Unlock(held); e != nil { // Unlock ends held, and so waits for at most UnlockWait
			err = failure.Join(err, e) // fn may have returned nil although the lock was lost
		}
	}()
	return fn(held)
}

// UnlockWait bounds the wait of an Unlock whose context never ends, or has ended already.
const UnlockWait = 5 * time.Second

// UnlockContext returns the context for the requests of an Unlock. If ctx has ended already, the result has
// the values of ctx, but never ends.
func UnlockContext(ctx context.Context) context.Context {
	if ctx.Err() != nil {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// UnlockBounds returns the bounds of an Unlock with the context ctx. until is the UnlockContext of ctx. If
// until has no deadline, the Unlock waits for the reply for at most atMost. If until never ends, atMost is
// UnlockWait. Otherwise atMost is outage, the longest time that an outage may last.
func UnlockBounds(ctx context.Context, outage time.Duration) (until context.Context, atMost time.Duration) {
	if until = UnlockContext(ctx); until.Done() == nil {
		return until, UnlockWait
	}
	return until, outage
}

// UnlockError returns the error of an Unlock that stopped waiting for the reply. until is the context that
// UnlockContext returned for this Unlock.
func UnlockError(until context.Context) error {
	why := failure.OfContext(until)
	if why == nil { // the library's own limit has ended the wait
		why = context.DeadlineExceeded
	}
	return fmt.Errorf("no answer from Redis to the release, which is sent again in the background: %w", why)
}

// UnlockBound returns a context that bounds an Unlock with the context ctx. If the UnlockContext of ctx would
// never end, the result ends after UnlockWait. Otherwise the result is the UnlockContext of ctx.
func UnlockBound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx = UnlockContext(ctx); ctx.Done() != nil {
		return ctx, func() {} // ctx ends the wait
	}
	return context.WithTimeout(ctx, UnlockWait)
}

// Owner is a context with the holds that were taken below it. A call whose context descends from the Owner
// nests in these holds as if its context descended from the contexts of the holds.
type Owner struct {
	context.Context

	mu    sync.Mutex // guards holds; no other mutex is locked while mu is held
	holds []Holding  // holds that are neither unlocked nor forgotten, the latest last
}

type ownerKey struct{}

// OwnerOf returns the owner from which ctx descends, or nil if there is none.
func OwnerOf(ctx context.Context) *Owner {
	o, _ := ctx.Value(ownerKey{}).(*Owner)
	return o
}

// WithOwner returns an Owner, which is a context that descends from ctx. It panics if ctx is nil, because
// otherwise the first use of the owner would panic.
func WithOwner(ctx context.Context) context.Context {
	if ctx == nil {
		panic("lockline: WithOwner: the context is nil")
	}
	return &Owner{Context: ctx}
}

// As returns a context below which holds are added to the owner o, and not to the owner of ctx. If o is nil,
// the holds are added to no owner.
func As(ctx context.Context, o *Owner) context.Context {
	return context.WithValue(ctx, ownerKey{}, o)
}

// Value returns the latest hold of the owner that can be found by the key. A lost hold stays in the owner
// until it is unlocked. So code that has not noticed the loss does not acquire the lock again.
func (o *Owner) Value(key any) any {
	if key == (ownerKey{}) {
		return o
	}
	o.mu.Lock()
	holds := slices.Clone(o.holds)
	o.mu.Unlock()
	for _, of := range slices.Backward(holds) { // without o.mu, because Find may lock other mutexes
		if found := of.Find(key); found != nil {
			return found
		}
	}
	return o.Context.Value(key)
}

func (o *Owner) String() string { return "lockline.WithOwner" }

// remove removes a hold. It does nothing for a nil owner.
func (o *Owner) remove(of Holding) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds = slices.DeleteFunc(o.holds, func(other Holding) bool { return other == of })
}

// State is the state of a grant, or of a hold in it.
type State uint8

const (
	Held     State = iota
	Released       // the hold was unlocked, or no goroutine needs the grant any more
	Lost           // the lease has ended, or Redis does not have the grant any more
	Closed         // released because its session closed
)

func (s State) String() string { return [...]string{"held", "released", "lost", "closed"}[s] }

// ErrorOf returns the error of a hold in this state. It returns nil for Held.
func ErrorOf(s State) error {
	return [...]error{nil, failure.ErrNotHeld, failure.ErrLost, failure.ErrClosed}[s]
}
