package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/rlock"
)

// Locker is a lock of a [Space]: an [rlock.Locker] whose methods do what those of
// [rlock.Mutex] do. The zero Locker returns an error from every method.
type Locker struct {
	lock *lock
	cfg  engine.Config
	err  error // of New, returned by every use
}

var _ rlock.Locker = (*Locker)(nil)

// Name is the lock's name.
func (l *Locker) Name() string {
	if l == nil || l.lock == nil {
		return ""
	}
	return l.lock.name
}

// Lock waits for the lock, like [rlock.Mutex.Lock]. Waiters are served in the order in which they came.
func (l *Locker) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock never waits, like [rlock.Mutex.TryLock].
func (l *Locker) TryLock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, true)
}

// Do is [rlock.Do] with this lock.
func (l *Locker) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, l, fn, options...)
}

var errZero = errors.New("lockline: a zero Locker; make one with Space.New")

func (l *Locker) check(ctx context.Context, cfg engine.Config) error {
	switch err := cfg.Check(); {
	case l.err != nil:
		return l.err
	case ctx == nil:
		return l.lock.fail(failure.ErrNilContext)
	case err != nil:
		return l.lock.fail(err)
	case ctx.Err() != nil:
		return l.lock.fail(failure.OfContext(ctx))
	}
	return nil
}

func (l *Locker) acquire(
	ctx context.Context, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	if l == nil || l.lock == nil {
		return ctx, nil, errZero
	}
	cfg := engine.NewConfig(l.cfg, options)
	if err := l.check(ctx, cfg); err != nil {
		return ctx, nil, err
	}
	h := &hold{l: l.lock, lease: cfg.Lease, since: time.Now(), answered: make(chan error, 1)}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	if err := l.lock.take(ctx, h, cfg, cfg.Once(try)); err != nil {
		h.cancel(err) // or its context would stay registered with ctx
		return ctx, nil, err
	}
	if cfg.AtLeast > 0 {
		h.Stay(cfg.AtLeast)
	}
	ctx, hd := handle.New(ctx, h)
	return ctx, (*rlock.Hold)(hd), nil
}

// take has h hold the lock, or says why it does not. It is asked for again whenever the lock
// has changed, in the order in which the callers came.
func (l *lock) take(ctx context.Context, h *hold, cfg engine.Config, try bool) error {
	leave := l.enter() // released before it waits
	if l.s.outage != nil {
		defer leave()
		return l.fail(l.s.outage)
	}
	l.grants++
	h.number = l.grants
	if in, err := l.admit(h); in || err != nil {
		leave()
		return err
	}
	if try {
		defer leave()
		return failure.Public(l.locked())
	}
	l.queue = append(l.queue, h)
	leave()

	until, stop := cfg.Until(ctx)
	defer stop()
	select {
	case err := <-h.answered:
		return err
	case <-until.Done():
	}
	defer l.enter()()
	if i := slices.Index(l.queue, h); i >= 0 { // not answered yet, and never will be
		l.queue = slices.Delete(l.queue, i, i+1)
	} else if err := <-h.answered; err != nil { // whichever call took it off the queue has sent that
		return err
	} else { // admitted in that instant
		l.leave(h) // as if it had unlocked at once
	}
	return failure.OfWait(ctx, false, "", l.name, l.locked())
}

// locked describes the holder.
func (l *lock) locked() *failure.LockedError {
	e := &failure.LockedError{Name: l.name}
	if st := l.st; st != nil {
		e.Holder, e.Remaining = st.owner, time.Until(st.deadline())
		e.About = fmt.Sprintf("%d@%s", st.by.pid, st.by.host)
		if len(st.holds) > 0 {
			e.Hint = failure.SelfHint
		}
	}
	return e
}
