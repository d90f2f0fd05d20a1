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

// Semaphore is a semaphore's name in a session, and how many permits it has. It keeps no state of its own.
// Safe for concurrent use. Any number of Semaphores of one name are one semaphore.
type Semaphore struct {
	mutex *rlock.Mutex // all of the permits
	limit int
	err   error // of New, returned by every use
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

// New names a semaphore that has limit permits, from 1 to [MaxLimit]. It does no I/O and is cheap.
// If Redis has another number, of another New, each Acquire is refused with a *[LimitError]. A number that
// [Semaphore.SetLimit] has set goes before that of New.
//
// Any string of 1 to 512 bytes is a name. What is wrong with a session, name or limit, every method returns.
// The options are those of each acquisition, as of [rlock.New].
//
// A semaphore does not exclude locks of other kinds that have its name, also if it has one permit: both are
// inside at the same time, without an error. So take a name by one kind in all programs.
func New(s *rlock.Session, name string, limit int, options ...rlock.Option) *Semaphore {
	sem := &Semaphore{mutex: inner.New(s, kind, name, options), limit: limit}
	sem.err = sem.checkNumber("New: a limit", limit)
	return sem
}

// checkNumber says why n is no number of permits.
func (s *Semaphore) checkNumber(what string, n int) error {
	if n < 1 || n > MaxLimit {
		return named(s.Name(), fmt.Errorf("%s is from 1 to %d, not %d", what, MaxLimit, n))
	}
	return nil
}

// check says what is wrong with a call, and with its number of permits. A call that has none says 1.
func (s *Semaphore) check(ctx context.Context, what string, n int) error {
	if s == nil {
		return errors.New("lockline: a nil Semaphore; make one with New")
	}
	return cmp.Or(inner.Mutex(s.mutex).CheckUse(ctx), s.err, s.checkNumber(what, n))
}

// Name is the semaphore's name.
func (s *Semaphore) Name() string {
	if s == nil {
		return ""
	}
	return s.mutex.Name()
}

// Acquire waits until n permits are held, all or none, and returns the hold and the context to go on with,
// which ends with the hold. Unlock of the hold gives the permits back. Waiters are served first come, first
// served.
//
// It blocks until ctx ends, or for as long as [rlock.WaitAtMost] says. ctx bounds the wait, and the context
// returned inherits from it. The end of ctx does not end the hold. Only Unlock, loss, Close and a fixed lease
// do. n is from 1 to [MaxLimit]. An n above the limit is refused, also if the limit is reduced during the
// wait.
//
// On error the context is the one given, the hold is nil (its methods are safe to call), and no permit is
// held. What an unanswered request may have taken is given back in the background. The error matches
//   - ctx.Err() and context.Cause(ctx), if ctx ended. errors.As finds a *[rlock.LockedError] in it, if a
//     holder is known;
//   - [rlock.ErrLocked], as a *[rlock.LockedError], if WaitAtMost ran out. It is os.ErrDeadlineExceeded if
//     Redis has not answered, so that no holder is known;
//   - [rlock.ErrClosed], if the session is closed or closes meanwhile;
//   - a *[LimitError], if there are fewer than n permits at all, or another number than New says;
//   - else it is go-redis's error. An outage only lengthens the wait, as of [rlock.Mutex.Lock].
func (s *Semaphore) Acquire(
	ctx context.Context, n int, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return s.acquire(ctx, n, options, false)
}

// TryAcquire is Acquire that never waits for permits: it returns a *[rlock.LockedError] if n are not free, or
// if others wait. It blocks for one request, not longer than ctx and a [rlock.WaitAtMost] above zero say.
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

// Do is [rlock.Do] with n permits.
func (s *Semaphore) Do(
	ctx context.Context, n int, fn func(ctx context.Context) error, options ...rlock.Option,
) error {
	return rlock.Do(ctx, s.Locker(n), fn, options...)
}

// Locker is n permits as a lock, for package multilock and other code that takes an [rlock.Locker].
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

// SetLimit changes how many permits there are, for all sessions. If there are more now, waiters are served.
// If there are fewer, holders keep theirs, and no waiter is served until enough have come back. Redis keeps
// the number while the semaphore is used, and then for 15 to 45 s with the default lease. After that,
// the limit is again the one of the first New whose semaphore is used. So a program that changes the limit
// for good also gives another one to New. It blocks for one request, not longer than ctx.
func (s *Semaphore) SetLimit(ctx context.Context, n int) error {
	if err := s.check(ctx, "SetLimit: a limit", n); err != nil {
		return err
	}
	_, err := inner.Mutex(s.mutex).SetLimit(ctx, int64(n), false)
	return err
}

// TrySetLimit is SetLimit if Redis has no number, because the semaphore was not used lately. It reports
// whether it was set.
func (s *Semaphore) TrySetLimit(ctx context.Context, n int) (set bool, err error) {
	if err := s.check(ctx, "TrySetLimit: a limit", n); err != nil {
		return false, err
	}
	return inner.Mutex(s.mutex).SetLimit(ctx, int64(n), true)
}

// LimitError says that Redis has another limit than New was given, or a lower one than Acquire wants.
type LimitError struct {
	Name   string // of the semaphore
	Wanted int    // permits of Acquire
	New    int    // the limit that New was given
	Limit  int    // the one in Redis
}

func (e *LimitError) Error() string {
	msg := fmt.Sprintf("lockline: semaphore %q: it has %d permits, and New says %d", e.Name, e.Limit, e.New)
	if e.Wanted > e.Limit {
		msg = fmt.Sprintf("lockline: semaphore %q: %d permits are wanted, and there are %d",
			e.Name, e.Wanted, e.Limit)
	}
	return msg + " (SetLimit changes the number for all)"
}

// Inspect asks Redis for the holders and the waiters. It changes nothing, and blocks for one request, not
// longer than ctx.
func (s *Semaphore) Inspect(ctx context.Context) (rlock.State, error) {
	if err := s.check(ctx, "", 1); err != nil {
		return rlock.State{}, err
	}
	return s.mutex.Inspect(ctx)
}

// ForceRelease takes back the permits of the one holder that [Semaphore.Inspect] has shown with this token,
// and reports whether there was one. It is for operators: the holder goes on without them until its next
// request or renewal. That is at most a third of its lease, or the rest of a fixed one. It blocks for one
// request, not longer than ctx.
func (s *Semaphore) ForceRelease(ctx context.Context, token int64) (bool, error) {
	if err := s.check(ctx, "", 1); err != nil {
		return false, err
	}
	return s.mutex.ForceUnlockToken(ctx, token)
}
