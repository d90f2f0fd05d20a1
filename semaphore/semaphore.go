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

// MaxLimit is the highest number of permits.
const MaxLimit = 999_999_999

// Semaphore is a semaphore with a name and a limit, used by one session. It has no state of any acquisition,
// and all Semaphores with the same name are one semaphore. It is safe for concurrent use.
type Semaphore struct {
	mutex *rlock.Mutex // all of the permits
	limit int
	err   error // error of New, which every method returns
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

// New returns a semaphore that has limit permits, from 1 to [MaxLimit]. It sends no request and is cheap. If
// Redis has another limit, from another New, each Acquire is refused with a *[LimitError]. A limit that was
// set by [Semaphore.SetLimit] overrides the limit of New.
//
// The name may be any string of 1 to 512 bytes. If the session, the name or the limit is not valid, every
// method returns an error that says so. The options are the defaults of each call, as with [rlock.New].
//
// A semaphore does not exclude locks of other kinds with the same name, even if it has one permit. Both can
// be held at the same time, without an error. So use the same kind for a name in all programs.
func New(s *rlock.Session, name string, limit int, options ...rlock.Option) *Semaphore {
	sem := &Semaphore{mutex: inner.New(s, kind, name, options), limit: limit}
	sem.err = sem.checkNumber("New: a limit", limit)
	return sem
}

// checkNumber returns an error if n is not a valid number of permits. The error begins with
// the argument what, which names n, such as "New: a limit".
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

// Acquire waits until it gets n permits at once. It never takes fewer. It returns the hold, and a context for
// the protected work, which ends with the hold. Unlock of the hold releases the permits. Waiters are served
// first come, first served.
//
// Acquire blocks at most until ctx ends, or for the time of [rlock.WaitAtMost]. ctx bounds the wait, and the
// returned context inherits from it. The hold does not end when ctx ends. It ends only by Unlock, by a loss,
// with its session, or with a fixed lease. n must be from 1 to [MaxLimit]. If n is above the limit, Acquire
// is refused, even if the limit is reduced only during the wait.
//
// After an error, Acquire returns ctx itself and a nil hold, on which all methods may be called. No permit
// is held then. If an unanswered request may have taken permits, they are released in the background. The
// error matches
//   - ctx.Err() and context.Cause(ctx), if ctx has ended. If a holder is known, errors.As finds a
//     *[rlock.LockedError];
//   - [rlock.ErrLocked], as a *[rlock.LockedError], if the time of WaitAtMost has passed. If Redis has not
//     replied, so that no holder is known, it matches os.ErrDeadlineExceeded instead;
//   - [rlock.ErrClosed], if the session is closed, or closes during the wait;
//   - a *[LimitError], if the limit is below n, or differs from that of New;
//   - otherwise an error of go-redis. An outage does not end the wait at once (see [rlock.Mutex.Lock]).
func (s *Semaphore) Acquire(
	ctx context.Context, n int, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return s.acquire(ctx, n, options, false)
}

// TryAcquire does the same as Acquire, but does not wait for other holders. If fewer than n permits are free,
// or if others wait, it returns a *[rlock.LockedError]. It blocks for one request, bounded by ctx and by a
// [rlock.WaitAtMost] above zero. If the session is just releasing permits, TryAcquire waits for that, for up
// to 250 ms, and may send more requests.
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

// Do calls fn while it holds n permits, see [rlock.Do].
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

// SetLimit sets the limit, which is the number of permits, for all sessions. If it grows, waiters are served.
// If it shrinks, holders keep their permits, and no waiter is served until enough permits are released. Redis
// keeps the limit while the semaphore is used, and then for 15 to 45 s with the default lease. After that,
// the next semaphore that is used sets the limit again, to the limit that was passed to its New. So a program
// that changes the limit permanently must also change the limit of New. SetLimit blocks until Redis has
// replied, at most until ctx ends.
func (s *Semaphore) SetLimit(ctx context.Context, n int) error {
	if err := s.check(ctx, "SetLimit: a limit", n); err != nil {
		return err
	}
	_, err := inner.Mutex(s.mutex).SetLimit(ctx, int64(n), false)
	return err
}

// TrySetLimit sets the limit in the same way as SetLimit, but only if Redis has no limit. (That is so if the
// semaphore was not used lately.) It reports whether the limit was set.
func (s *Semaphore) TrySetLimit(ctx context.Context, n int) (set bool, err error) {
	if err := s.check(ctx, "TrySetLimit: a limit", n); err != nil {
		return false, err
	}
	return inner.Mutex(s.mutex).SetLimit(ctx, int64(n), true)
}

// LimitError means that the limit in Redis differs from the limit that was passed to New, or is lower than
// the number of permits that Acquire wanted.
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
// reports whether there was such a holder. It is for operators, because the holder continues without its
// permits until its next request or renewal. This takes at most a third of its lease, or the rest of a fixed
// lease. ForceRelease blocks for one request, at most until ctx ends.
func (s *Semaphore) ForceRelease(ctx context.Context, token int64) (bool, error) {
	if err := s.check(ctx, "", 1); err != nil {
		return false, err
	}
	return s.mutex.ForceUnlockToken(ctx, token)
}
