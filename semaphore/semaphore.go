package semaphore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/rlock"
)

// MaxLimit is the highest number of permits of a semaphore.
const MaxLimit = 999_999_999

// Semaphore names a semaphore for one session, with the limit that was passed to New. It keeps no state of an
// acquisition, and several Semaphores with the same name are the same semaphore. All methods are safe for
// concurrent use.
type Semaphore struct {
	mutex *rlock.Mutex // has the name, the session and the options
	limit int
	err   error // error of New; every method that can return an error returns it
}

var kind = &engine.Kind{
	Letter:  protocol.Semaphore,
	Lingers: true,
	Noun:    noun,
	Limited: func(name string, want engine.Want, limit int64) error {
		return &LimitError{name, int(want.N), int(want.Limit), int(limit)}
	},
}

const noun = "semaphore"

func named(name string, err error) error { return failure.Of(noun, name, err) }

// New returns a semaphore with this name. limit is the number of permits, from 1 to [MaxLimit]. New sends no
// request and is cheap. If Redis has another limit, which came from another New, Redis refuses each Acquire
// of this Semaphore with a *[LimitError]. If [Semaphore.SetLimit] has set the limit in Redis, the limit of
// New does not count.
//
// The name may be any string of 1 to 512 bytes. If the session, the name or the limit is not valid, every
// method that can return an error returns an error that says so. The options are the defaults of each call,
// as with [rlock.New].
//
// A semaphore does not exclude locks of other kinds with the same name, even if it has only one permit. A
// permit and such a lock can be held at the same time, without an error. So use the same kind for a name in
// all programs.
func New(s *rlock.Session, name string, limit int, options ...rlock.Option) *Semaphore {
	sem := &Semaphore{mutex: inner.New(s, kind, name, options), limit: limit}
	sem.err = sem.checkNumber("New: a limit", limit)
	return sem
}

// checkNumber returns an error if n is not a valid number of permits. The text of the error begins with the
// argument what, a name for n such as "New: a limit".
func (s *Semaphore) checkNumber(what string, n int) error {
	if n < 1 || n > MaxLimit {
		return named(s.Name(), fmt.Errorf("%s is from 1 to %d, not %d", what, MaxLimit, n))
	}
	return nil
}

// check returns an error if a call with these parameters cannot work. Calls without a number of permits pass
// 1.
func (s *Semaphore) check(ctx context.Context, what string, n int) error {
	if s == nil {
		return errors.New("lockline: a nil Semaphore; make one with New")
	}
	return cmp.Or(inner.Mutex(s.mutex).CheckUse(ctx), s.err, s.checkNumber(what, n))
}

// Name returns the name of the semaphore.
func (s *Semaphore) Name() string {
	if s == nil {
		return ""
	}
	return s.mutex.Name()
}

// Acquire waits until n permits are free, and takes them together. It never takes fewer than n. It returns
// the hold and a context for the protected work. The context ends with the hold. Unlock of the hold releases
// the permits. Waiters are served in the order of the queue, with an exception that the package documentation
// names under Waiting.
//
// Acquire blocks at most until ctx ends, or for the time of [rlock.WaitAtMost]. ctx bounds the wait, and the
// returned context descends from ctx. The end of ctx does not end the hold. A hold ends only by Unlock, by a
// loss, by the end of a fixed lease, or when its session is closed. n must be from 1 to [MaxLimit]. If n is
// above the limit, Acquire returns an error, even if SetLimit has reduced the limit during the wait.
//
// After an error, Acquire returns ctx itself and a nil hold, on which all methods may be called. The caller
// then holds no permits of this call. If an unanswered request may have taken permits, the session releases
// them in the background. The error matches
//   - ctx.Err() and context.Cause(ctx), if ctx has ended. If a holder is known, errors.As finds a
//     *[rlock.LockedError];
//   - [rlock.ErrLocked], as a *[rlock.LockedError], if the time of WaitAtMost has passed. If Redis has not
//     replied, so that no holder is known, the error matches os.ErrDeadlineExceeded instead;
//   - [rlock.ErrClosed], if the session is closed, or closes during the wait;
//   - a *[LimitError], if the limit in Redis is below n, or came from a New with another limit;
//   - otherwise an error of go-redis. An outage does not end the wait at once (see [rlock.Mutex.Lock]).
func (s *Semaphore) Acquire(
	ctx context.Context, n int, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return s.acquire(ctx, n, options, false)
}

// TryAcquire does the same as Acquire, but does not wait for other holders. If fewer than n permits are free,
// or if there are waiters, TryAcquire returns a *[rlock.LockedError]. TryAcquire blocks for one request. ctx
// and a [rlock.WaitAtMost] above zero bound this wait. If Redis refuses the request while the session is
// releasing permits, TryAcquire waits for a release, for up to 250 ms, and then sends its request again.
func (s *Semaphore) TryAcquire(
	ctx context.Context, n int, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return s.acquire(ctx, n, options, true)
}

func (s *Semaphore) acquire(
	ctx context.Context, n int, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	if err := s.check(ctx, "Acquire: a number of permits", n); err != nil {
		return ctx, nil, err
	}
	want := engine.Want{N: int64(n), Limit: int64(s.limit)}
	return inner.Acquire(ctx, s.mutex, want, options, try)
}

// Do calls fn while it holds n permits. See [rlock.Do].
func (s *Semaphore) Do(
	ctx context.Context, n int, fn func(ctx context.Context) error, options ...rlock.Option,
) error {
	return rlock.Do(ctx, s.Locker(n), fn, options...)
}

// Locker returns an [rlock.Locker] that takes n permits, for package multilock and other code that uses
// Lockers.
func (s *Semaphore) Locker(n int) rlock.Locker { return locker{s, n} }

type locker struct {
	*Semaphore
	n int
}

func (l locker) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.Acquire(ctx, l.n, options...)
}

func (l locker) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.TryAcquire(ctx, l.n, options...)
}

// SetLimit sets the limit, which is the number of permits, for all sessions. If the new limit is higher,
// Redis serves the waiters for whom enough permits are free now. If it is lower, holders keep their permits,
// and Redis serves no waiter until enough permits are released. But a session may still pass permits on to
// its own goroutines for the time of rlock.WithHandover, 5 ms by default.
//
// Redis keeps the limit while the semaphore is used. With the default lease, Redis keeps it for 15 to 45 s
// after that. When Redis has dropped the limit, the next Acquire sets the limit that was passed to New. So a
// program that changes the limit permanently must also change the limit of New. SetLimit blocks until Redis
// has replied, at most until ctx ends.
func (s *Semaphore) SetLimit(ctx context.Context, n int) error {
	if err := s.check(ctx, "SetLimit: a limit", n); err != nil {
		return err
	}
	_, err := inner.Mutex(s.mutex).SetLimit(ctx, int64(n), false)
	return err
}

// TrySetLimit is like SetLimit, but sets the limit only if Redis has none. Redis has no limit if the
// semaphore was not used lately. TrySetLimit reports whether it has set the limit.
func (s *Semaphore) TrySetLimit(ctx context.Context, n int) (set bool, err error) {
	if err := s.check(ctx, "TrySetLimit: a limit", n); err != nil {
		return false, err
	}
	return inner.Mutex(s.mutex).SetLimit(ctx, int64(n), true)
}

// LimitError means that Acquire wanted more permits than the limit in Redis, or that the limit in Redis came
// from a New with another limit.
type LimitError struct {
	Name   string // name of the semaphore
	Wanted int    // number of permits that Acquire wanted
	New    int    // the limit passed to New
	Limit  int    // the limit in Redis
}

func (e *LimitError) Error() string {
	msg := fmt.Sprintf("lockline: semaphore %q: it has %d permits, and New says %d", e.Name, e.Limit, e.New)
	if e.Wanted > e.Limit {
		msg = fmt.Sprintf("lockline: semaphore %q: %d permits are wanted, and there are %d",
			e.Name, e.Wanted, e.Limit)
	}
	return msg + " (SetLimit changes the number for all)"
}

// Inspect returns the holders and the waiters. It sends one request, which changes nothing, and blocks for
// the reply, at most until ctx ends.
func (s *Semaphore) Inspect(ctx context.Context) (rlock.State, error) {
	if err := s.check(ctx, "", 1); err != nil {
		return rlock.State{}, err
	}
	return s.mutex.Inspect(ctx)
}

// ForceRelease takes the permits from the holder that [Semaphore.Inspect] has returned with this token, and
// reports whether there still was such a holder. ForceRelease is for operators, because the holder continues
// without its permits for a while. The holder notices the loss at its next request or renewal. A lease is
// renewed after each third of its length, but a fixed lease is not renewed. So a holder with a fixed lease
// may notice the loss only when the lease ends. ForceRelease blocks for the reply, at most until ctx ends.
func (s *Semaphore) ForceRelease(ctx context.Context, token int64) (bool, error) {
	if err := s.check(ctx, "", 1); err != nil {
		return false, err
	}
	return s.mutex.ForceUnlockToken(ctx, token)
}
