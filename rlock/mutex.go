package rlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
)

// Locker is any lock of this module. The function [Do] runs a function under it. Code that locks items by
// name can take a func(name string) Locker.
type Locker interface {
	// Name is the lock's name.
	Name() string
	// Lock waits for the lock.
	Lock(ctx context.Context, options ...Option) (context.Context, *Hold, error)
	// TryLock never waits for the lock.
	TryLock(ctx context.Context, options ...Option) (context.Context, *Hold, error)
}

var _ Locker = (*Mutex)(nil)

// Do runs fn while holding l, and releases it also if fn panics or calls runtime.Goexit. The function gets
// the context of l's Lock, in which [HoldFrom] finds the Hold. It must watch that context, because Do waits
// for fn even if the lock is lost. The Unlock takes 5 s at most. Do returns Lock's error, or fn's joined with
// Unlock's. If the lock was lost before fn returned, that matches [ErrLost]. A Locker or function that is nil
// is an error, and the lock is not taken.
func Do(ctx context.Context, l Locker, fn func(ctx context.Context) error, options ...Option) error {
	switch {
	case l == nil:
		return errors.New("lockline: Do: the Locker is nil")
	case fn == nil:
		return fmt.Errorf("lockline: Do: the function is nil, for the lock %q", l.Name())
	}
	held, hold, err := l.Lock(ctx, options...)
	if err != nil {
		return err
	}
	return (*handle.Hold)(hold).Do(held, fn)
}

// Mutex is a lock: a name in a session, and a kind. It keeps no state of any
// acquisition, so that one Mutex serves any number of goroutines, and any number
// of Mutexes of one name are one lock. The zero Mutex returns an error from every method.
type Mutex mutex

type mutex = engine.Permits

var kind = func() *engine.Kind {
	k := engine.NewLock(protocol.Reentrant, false)
	k.Lingers = true
	return k
}()

// New names a reentrant lock. It does no I/O and is cheap. Any string of 1 to 512
// bytes is a name. What is wrong with a name or session, Lock returns.
//
// Locks of several kinds that have one name do not exclude each other: a holder of this lock and one of
// fairlock's are inside at the same time, without an error. So take a name by one kind in all programs.
func New(s *Session, name string, options ...Option) *Mutex {
	m := engine.New((*outer)(s).Session(), kind, name, engine.NewConfig(engine.Config{}, options))
	return (*Mutex)(&m)
}

// Name is the lock's name.
func (m *Mutex) Name() string { return (*mutex)(m).Name() }

// Lock waits until the lock is held and returns the hold and the context to go on with, which carries the
// hold and ends with it. A ctx that descends from a live hold of this lock re-enters.
//
// It blocks until ctx ends, or for as long as [WaitAtMost] says. ctx bounds the
// wait, and the context returned inherits from it; the end of ctx does not end the
// hold: only Unlock, loss, Close and a fixed lease do.
//
// On error the context is the one given, the hold is nil (its methods are safe to call), and nothing is left
// behind. What an unanswered request may have taken is given back in the background. The error matches
//   - ctx.Err() and context.Cause(ctx), if ctx ended. It is no ErrLocked then, but errors.As finds a
//     *[LockedError] in it, if the holder of the lock is known. If that was this same session, the error says
//     so;
//   - [ErrLocked], as a *[LockedError], if WaitAtMost ran out; os.ErrDeadlineExceeded
//     instead, if Redis has not answered so that nothing is known of a holder;
//   - [ErrLost], if ctx descends from a hold that was lost;
//   - [ErrClosed], if the session is closed or closes meanwhile;
//   - else it is go-redis's error. An outage only lengthens the wait: until ctx or WaitAtMost ends it, and
//     for as long as the watchdog timeout if ctx has no deadline. The error then says for how long no request
//     succeeded, and why the last one failed. One that re-enters tries only as often as TryLock. Wrong
//     passwords, missing rights, a URL in place of an address and the like are no outage: they are
//     errors at once. So is a panic in the client, as in one of its hooks: the error has the panic's value,
//     and the session's logger gets the stack.
//
// A call returns at its deadline even if its request is stuck, and 100 ms later at most. A ctx that is
// canceled earlier ends the call at once, with one exception. A request that is in flight as Redis falls
// silent ends with go-redis's ReadTimeout, which is 5 s by default. docs/faq.md lists the bounds of all
// calls.
func (m *Mutex) Lock(ctx context.Context, options ...Option) (context.Context, *Hold, error) {
	ps := (*mutex)(m)
	ctx, hold, err := ps.Acquire(ctx, engine.Want{}, engine.NewConfig(ps.Config(), options), false)
	return ctx, (*Hold)(hold), err
}

// TryLock is Lock that never waits for another holder: it returns a *[LockedError] instead. It blocks for one
// request, which is sent up to four times in an outage, and is bounded as Lock is by ctx and a [WaitAtMost]
// above zero.
func (m *Mutex) TryLock(ctx context.Context, options ...Option) (context.Context, *Hold, error) {
	ps := (*mutex)(m)
	ctx, hold, err := ps.Acquire(ctx, engine.Want{}, engine.NewConfig(ps.Config(), options), true)
	return ctx, (*Hold)(hold), err
}

// Do is the function [Do] with this lock.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return Do(ctx, m, fn, options...)
}

var (
	// ErrLocked: another owner holds the lock. It is TryLock's answer, and that of a
	// wait that [WaitAtMost] ended. The error is a *[LockedError].
	ErrLocked error = errLocked

	// ErrLost: the lock was held and then lost. Its lease could not be renewed
	// in time, its data in Redis is gone, or it was forcibly unlocked.
	ErrLost error = errLost

	// ErrNotHeld: the hold was unlocked before, or there never was one.
	ErrNotHeld error = errNotHeld

	// ErrClosed: the session is closed.
	ErrClosed error = errClosed
)

// The errors are those of package failure. With these names the documentation of those above shows no
// internal package.
var (
	errLocked  = failure.ErrLocked
	errLost    = failure.ErrLost
	errNotHeld = failure.ErrNotHeld
	errClosed  = failure.ErrClosed
)

// LockedError names the holder of the lock, or one of those that have permits, as far as it is known. It
// matches [ErrLocked], but not inside the error of a wait that the caller's context ended: see [Mutex.Lock].
type LockedError struct {
	What   string // what is not free: "" for a lock, or "semaphore"
	Name   string // of the lock
	Holder string // owner field: session id and number of the acquisition; "" if not known
	About  string // the holder's process, host, label and note in one string: see HeldBy
	// Remaining is what is left of the holder's lease. A holder that lives renews it, unless the lease is
	// fixed ([WithLease]), which Redis does not know. So Remaining does not tell when the lock is free. If
	// Holder ends in "~", the lock only stays taken ([HoldAtLeast]), and is free then: see HeldBy.
	Remaining time.Duration
	Hint      string // what the caller may have done wrong
}

// HeldBy returns the holder as Inspect shows it: with the host, the process id and the label of its session,
// and the note of its call ([WithNote]). Of its fields, Owner, Session, Host, PID, Label, Note, Protocol,
// Library, Remaining and Unlocked are set, as far as they are known.
func (e *LockedError) HeldBy() Holder {
	by := protocol.ReadInfo(e.Holder, e.About)
	return Holder{Owner: e.Holder, Session: by.Session, Host: by.Host, PID: by.PID, Label: by.Label,
		Note: by.Note, Protocol: by.Protocol, Library: by.Library,
		Remaining: e.Remaining, Unlocked: strings.HasSuffix(e.Holder, "~")}
}

func (e *LockedError) Error() string { return (*failure.LockedError)(e).Error() }

// Unwrap makes errors.Is(err, ErrLocked) true.
func (e *LockedError) Unwrap() error { return ErrLocked }
