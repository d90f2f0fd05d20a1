// Package mistakes makes each mistake with each kind of lock.
package mistakes

import (
	"context"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/redisson"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func work(ctx context.Context) error { return ctx.Err() }

func reentrant(ctx context.Context, s *rlock.Session) error {
	m := rlock.New(s, "x")
	held, hold, err := m.Lock(ctx) // want `hold has no Unlock before the return in line 25:`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `ctx is from before this Lock, .*: pass on held`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryLock(ctx, rlock.WithLease(30))          // want `error of TryLock` `30 has no unit, .* multiply`
	m.Do(ctx, func(held context.Context) error { // want `the error of Do is dropped`
		return work(ctx) // want `ctx comes from outside of this Do, .*: pass on held`
	})
	return work(held) // want `held has ended with the Unlock in line 27: pass on`
}

func fair(ctx context.Context, s *rlock.Session) error {
	m := fairlock.New(s, "x", rlock.HoldAtLeast(30)) // want `30 has no unit`
	held, hold, err := m.TryLock(ctx)                // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this TryLock`
		return err
	}
	_ = hold.Unlock(ctx)
	go m.Lock(ctx)                               // want `error of Lock is dropped`
	m.Do(ctx, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	return work(held) // want `held has ended`
}

func writer(ctx context.Context, s *rlock.Session) error {
	m := rwlock.New(s, "x")
	held, hold, err := m.Lock(ctx, rlock.WaitAtMost(2)) // want `2 has no unit` `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Lock`
		return err
	}
	_ = hold.Unlock(ctx)
	m.Do(ctx, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	_, _, _ = m.TryLock(ctx) // want `error of TryLock is dropped` `ends this TryLock is discarded`
	return work(held)        // want `held has ended`
}

func reader(ctx context.Context, s *rlock.Session) error {
	m := rwlock.New(s, "x")
	held, hold, err := m.RLock(ctx) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this RLock`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryRLock(ctx)                                  // want `error of TryRLock is dropped`
	m.RLocker().Lock(ctx)                            // want `error of Lock is dropped`
	m.DoRead(ctx, func(held context.Context) error { // want `error of DoRead is dropped`
		return work(ctx) // want `from outside of this DoRead`
	})
	return work(held) // want `held has ended`
}

func permits(ctx context.Context, s *rlock.Session) error {
	m := semaphore.New(s, "x", 4)
	held, hold, err := m.Acquire(ctx, 2) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := hold.Extend(held, 5); err != nil { // want `5 has no unit, so Extend gets 5ns`
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Acquire`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryAcquire(ctx, 1)                            // want `error of TryAcquire is dropped`
	m.Locker(2).Lock(ctx)                           // want `error of Lock is dropped`
	m.Do(ctx, 1, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	return work(held) // want `held has ended`
}

func several(ctx context.Context, a, b rlock.Locker) error {
	m := multilock.New(a, b)
	held, hold, err := m.Lock(ctx) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Lock`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryLock(ctx)                               // want `error of TryLock is dropped`
	m.Do(ctx, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	return work(held) // want `held has ended`
}

func majority(ctx context.Context, sessions ...*rlock.Session) error {
	q, err := multilock.NewQuorum(sessions, multilock.WithServerTimeout(300)) // want `300 has no unit`
	if err != nil {
		return err
	}
	m := q.New("x")
	held, hold, err := m.Lock(ctx) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Lock`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryLock(ctx)                               // want `error of TryLock is dropped`
	m.Do(ctx, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	return work(held) // want `held has ended`
}

func jvm(ctx context.Context, s *rlock.Session) error {
	m := redisson.New(s, "x")
	held, hold, err := m.Lock(ctx) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Lock`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryLock(ctx)                               // want `error of TryLock is dropped`
	m.Do(ctx, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	return work(held) // want `held has ended`
}

func any(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx) // want `hold has no Unlock`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Lock`
		return err
	}
	_ = hold.Unlock(ctx)
	m.TryLock(ctx)                                      // want `error of TryLock is dropped`
	rlock.Do(ctx, m, func(held context.Context) error { // want `error of Do is dropped`
		return work(ctx) // want `from outside of this Do`
	})
	return work(held) // want `held has ended`
}

func leader(ctx context.Context, s *rlock.Session) error {
	e := election.New(s, "x")
	leading, leadership, err := e.Campaign(ctx, "here") // want `leadership has no Resign .* or use Run`
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil { // want `from before this Campaign, .*: pass on leading`
		return err
	}
	_ = leadership.Resign(ctx)
	e.Campaign(ctx, "here")                                  // want `error of Campaign is dropped`
	e.Run(ctx, "here", func(leading context.Context) error { // want `error of Run is dropped`
		return work(ctx) // want `from outside of this Run, .*: pass on leading`
	})
	return work(leading) // want `leading has ended with the Resign`
}

// lock returns the results of Lock, like a function of a user's program.
func lock(ctx context.Context, s *rlock.Session, id string) (context.Context, *rlock.Hold, error) {
	return rlock.New(s, "order:"+id).Lock(ctx, rlock.WaitAtMost(2)) // want `2 has no unit`
}

func own(ctx context.Context, s *rlock.Session) error {
	_, hold, err := lock(ctx, s, "42")
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	return work(ctx) // want `from before this lock, .*: pass on the context that it returned`
}
