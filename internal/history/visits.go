package history

import (
	"context"
	"time"

	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// visitMutex locks, sometimes twice.
func visitMutex(l rlock.Locker) visit {
	return func(u user, ctx context.Context) error {
		call := time.Now()
		held, hold, err := l.Lock(ctx)
		if err != nil {
			return err
		}
		u.entered(call, hold, Op{})
		lost := map[string]bool{}
		if u.rnd.IntN(3) == 0 {
			call := time.Now()
			if _, nested, err := l.Lock(held); err == nil {
				u.entered(call, nested, Op{})
				u.stay(held, nested)
				u.leave(nested, Op{}, lost)
			}
		}
		u.stay(held, hold)
		u.leave(hold, Op{}, lost)
		return nil
	}
}

func visitReader(m *rwlock.RWMutex) visit {
	return func(u user, ctx context.Context) error { return u.readWrite(m, true, ctx) }
}

func visitWriter(m *rwlock.RWMutex) visit {
	return func(u user, ctx context.Context) error { return u.readWrite(m, false, ctx) }
}

// readWrite locks a read-write lock, sometimes more than once, and unlocks in any order: if the last holds are to read, a writer goes on as a
// reader. One that reads tries to write at times, which must not succeed.
func (u user) readWrite(m *rwlock.RWMutex, read bool, ctx context.Context) error {
	type part struct {
		ctx  context.Context
		hold *rlock.Hold
		read bool
	}
	var all []part
	enter := func(ctx context.Context, read bool) error {
		lock := m.Lock
		if read {
			lock = m.RLock
		}
		call := time.Now()
		held, hold, err := lock(ctx)
		if err == nil {
			u.entered(call, hold, Op{Read: read})
			all = append(all, part{held, hold, read})
		}
		return err
	}
	if err := enter(ctx, read); err != nil {
		return err
	}
	for len(all) < 4 && u.rnd.IntN(2) == 0 {
		nested := u.rnd.IntN(2) == 0
		if read {
			nested = u.rnd.IntN(10) > 0
		}
		if enter(all[len(all)-1].ctx, nested) != nil {
			break
		}
	}
	lost := map[string]bool{}
	for _, i := range u.rnd.Perm(len(all)) {
		u.stay(all[i].ctx, all[i].hold)
		u.leave(all[i].hold, Op{Read: all[i].read}, lost)
	}
	return nil
}

// visitSemaphore acquires n permits, and sometimes a further one beside them. That does not wait, or all might wait for each other.
func visitSemaphore(s *semaphore.Semaphore, n int) visit {
	return func(u user, ctx context.Context) error {
		call := time.Now()
		held, hold, err := s.Acquire(ctx, n)
		if err != nil {
			return err
		}
		u.entered(call, hold, Op{Permits: n})
		if u.rnd.IntN(3) == 0 {
			beside := u
			beside.owner += "+" // which holds it by itself
			call := time.Now()
			if _, further, err := s.TryAcquire(held, 1); err == nil {
				beside.entered(call, further, Op{Permits: 1})
				beside.stay(held, further)
				defer beside.leave(further, Op{}, map[string]bool{})
			}
		}
		u.stay(held, hold)
		u.leave(hold, Op{}, map[string]bool{})
		return nil
	}
}
