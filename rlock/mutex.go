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

// A Locker is a lock of any kind. The function [Do] runs a function while a Locker is held. Code that locks
// items by name can take a func(name string) Locker.
type Locker interface {
	// Name returns the name of the lock.
	Name() string
	// Lock waits for the lock.
	Lock(ctx context.Context, options ...Option) (context.Context, *Hold, error)
	// TryLock does not wait for other holders.
	TryLock(ctx context.Context, options ...Option) (context.Context, *Hold, error)
}

var _ Locker = (*Mutex)(nil)

// Do runs fn while l is held. It unlocks l even if fn panics or calls runtime.Goexit. fn gets the context
// that Lock returned, in which [HoldFrom] finds the Hold. fn must watch that context, because Do waits for fn
// even if the lock is lost. The Unlock takes at most 5 s. Do returns the error of Lock, or the error of fn
// joined with the error of Unlock. If the lock was lost before fn returned, the error matches [ErrLost]. If l
// or fn is nil, Do returns an error and does not take the lock.
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

// A Mutex names a lock for one session. It keeps no state of an acquisition, so any number of goroutines may
// use it. Several Mutexes of one kind with the same name are the same lock. Every method of the zero Mutex,
// except Name, returns an error.
type Mutex mutex

type mutex = engine.Lock

var kind = func() *engine.Kind {
	k := engine.NewLock(protocol.Reentrant, false)
	k.Lingers = true
	return k
}()

// New returns a reentrant lock with this name. It sends no request and is cheap. The name may be any string
// of 1 to 512 bytes. If the name or the session is not valid, every method except Name returns an error that
// says so.
//
// Locks of different kinds with the same name do not exclude each other. A holder of this lock and a holder
// of a lock of package fairlock can be inside at the same time, without an error. So use the same kind for a
// name in all programs.
func New(s *Session, name string, options ...Option) *Mutex {
	m := engine.New((*outer)(s).Session(), kind, name, engine.NewConfig(engine.Config{}, options))
	return (*Mutex)(&m)
}

// Name returns the name of the lock.
func (m *Mutex) Name() string { return (*mutex)(m).Name() }

// Lock waits until its caller holds the lock. It returns the hold, and a context for the protected work. This
// context carries the hold, and ends when the hold ends. If ctx descends from a live hold of this lock, Lock
// re-enters.
//
// Lock waits until ctx ends at the latest. With [WaitAtMost], it waits for at most the given time. The
// returned context descends from ctx. The end of ctx does not end the hold. A hold ends by Unlock, by a loss
// such as the end of a fixed lease, or when its session is closed.
//
// After an error, the call holds nothing, and Lock returns ctx itself and a nil hold. All methods of a nil
// hold may be called. If a request without a reply may have taken the lock, the session releases the lock in
// the background. If ctx ends just when the lock is granted, Lock may return no error, and a context that has
// ended. Then the caller has the hold, and must unlock it as usual. An error matches
//   - ctx.Err() and context.Cause(ctx), if ctx has ended. The error then does not match ErrLocked. But if the
//     holder of the lock is known, errors.As finds a *[LockedError]. If this session was the holder, the
//     error says so;
//   - [ErrLocked], as a *[LockedError], if the time of WaitAtMost has ended. If no holder is known, because
//     Redis has not replied, the error matches os.ErrDeadlineExceeded instead;
//   - [ErrLost], if ctx descends from a hold that was lost, or if each reply took longer than a short fixed
//     lease;
//   - [ErrClosed], if the session is closed, or closes during the wait;
//   - otherwise an error of go-redis, unless the call itself is not valid.
//
// An outage of Redis does not end the wait at once. If ctx has a deadline, or the call has WaitAtMost, the
// call keeps waiting until this limit. A call without such a limit waits through an outage for at most the
// watchdog timeout of the session. Its error then says for how long no request has succeeded, and why the
// last request has failed. A call that re-enters repeats its request only as often as TryLock. Wrong
// passwords, missing rights, a URL instead of an address and similar mistakes cause an error at once. A panic
// in the client, for example in one of its hooks, causes an error at once, too. This error has the value of
// the panic, and the logger of the session gets the stack.
//
// A call returns at most 100 ms after its deadline, even if its request is stuck. If ctx is canceled, the
// call also returns within 100 ms, with one exception. If Redis has stopped replying while a request is in
// flight, a canceled call returns only after the ReadTimeout of the client. This timeout is 5 s by default,
// and 3 s in go-redis 9.19.
// docs/faq.md lists the bounds of all calls.
func (m *Mutex) Lock(ctx context.Context, options ...Option) (context.Context, *Hold, error) {
	ps := (*mutex)(m)
	ctx, hold, err := ps.Acquire(ctx, engine.Want{}, engine.NewConfig(ps.Config(), options), false)
	return ctx, (*Hold)(hold), err
}

// TryLock is like Lock, but does not wait for other holders. If another owner holds the lock, TryLock returns
// a *[LockedError]. It blocks for one request, which is sent up to five times in an outage. If its own
// session is just releasing the lock, TryLock first waits up to 250 ms for that release. ctx and a
// [WaitAtMost] above zero bound TryLock as they bound Lock. TryLock can be refused although no goroutine
// holds the lock. docs/faq.md says when.
func (m *Mutex) TryLock(ctx context.Context, options ...Option) (context.Context, *Hold, error) {
	ps := (*mutex)(m)
	ctx, hold, err := ps.Acquire(ctx, engine.Want{}, engine.NewConfig(ps.Config(), options), true)
	return ctx, (*Hold)(hold), err
}

// Do calls the function [Do] with this lock.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error, options ...Option) error {
	return Do(ctx, m, fn, options...)
}

var (
	// ErrLocked means that another owner holds the lock. TryLock returns it, and so does a Lock whose time of
	// [WaitAtMost] has ended. The error is a *[LockedError].
	ErrLocked error = errLocked

	// ErrLost means that the lock was held and then lost. Its lease has ended, Redis has lost its data, or an
	// operator has freed it by force.
	ErrLost error = errLost

	// ErrNotHeld means that the hold was unlocked before, or that there never was a hold.
	ErrNotHeld error = errNotHeld

	// ErrClosed means that the session is closed.
	ErrClosed error = errClosed
)

// The errors are defined in package failure. These names keep the internal package out of the documentation
// of the variables above.
var (
	errLocked  = failure.ErrLocked
	errLost    = failure.ErrLost
	errNotHeld = failure.ErrNotHeld
	errClosed  = failure.ErrClosed
)

// LockedError names the holder of the lock, or one of the holders of permits, as far as it is known. A
// LockedError matches [ErrLocked]. The error of a wait that ended with its context may contain a LockedError,
// but that error does not match ErrLocked (see [Mutex.Lock]).
type LockedError struct {
	What   string // noun for the lock in errors, for example "semaphore"; "" means "lock"
	Name   string // name of the lock
	Holder string // owner field: session id and number of the acquisition; "" if not known
	About  string // the holder's process, host, label and note in one string: see HeldBy
	// Remaining is the time until the lease of the holder ends. It does not say when the lock will be free,
	// because a living holder renews a lease that is not fixed, and Redis does not know which leases are
	// fixed ([WithLease]). There is one exception. If Holder ends in "~", the hold has ended, and the lock
	// stays taken for Remaining ([HoldAtLeast]). HeldBy then sets the field Unlocked.
	Remaining time.Duration
	Hint      string // a likely cause, such as a mistake of the caller; "" if none is known
}

// HeldBy returns the holder in the form in which Inspect returns it. It sets the fields Owner, Session, Host,
// PID, Label, Note, Protocol, Library, Remaining and Unlocked, as far as they are known.
func (e *LockedError) HeldBy() Holder {
	by := protocol.ReadInfo(e.Holder, e.About)
	return Holder{Owner: e.Holder, Session: by.Session, Host: by.Host, PID: by.PID, Label: by.Label,
		Note: by.Note, Protocol: by.Protocol, Library: by.Library,
		Remaining: e.Remaining, Unlocked: strings.HasSuffix(e.Holder, "~")}
}

func (e *LockedError) Error() string { return (*failure.LockedError)(e).Error() }

// Unwrap returns ErrLocked, so that errors.Is(err, ErrLocked) is true.
func (e *LockedError) Unwrap() error { return ErrLocked }
