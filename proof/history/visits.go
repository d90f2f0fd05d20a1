package history

import (
	"context"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

// visitMutex acquires a mutex, and sometimes a nested hold.
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

// readWrite acquires a read-write lock, sometimes with nested holds, and releases the holds in random order:
// if its last holds are to read, a writer downgrades to a reader. A reader sometimes tries to write, which
// must fail.
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

// visitSemaphore acquires n permits, and sometimes a further one. It does not wait for the further one, as
// all owners might wait for each other.
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
			beside.owner += "+" // an owner of its own
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

// visitLatch sets a latch, unless there is a run already, and counts it down until its own Wait has returned.
// So a run ends even if all its other users were killed.
func visitLatch(l *latch.Latch) visit {
	return func(u user, ctx context.Context) error {
		saw := func(kind Kind, n int, call time.Time) {
			u.report(Event{Op: Op{Lock: l.Name(), Owner: u.owner, Kind: kind, Permits: n,
				Call: call.UnixNano(), Return: time.Now().UnixNano()}})
		}
		call := time.Now()
		set, err := l.TrySet(ctx, Counts)
		if err != nil {
			return err
		}
		if set {
			saw(Set, Counts, call)
		}
		waited := make(chan error, 1)
		go func() {
			call := time.Now()
			err := l.Wait(ctx)
			if err == nil {
				saw(Wait, 0, call)
			}
			waited <- err
		}()
		for n := 0; ; n++ {
			pause := time.Duration(u.rnd.Int64N(int64(2 * time.Millisecond)))
			// Wait longer before superfluous count downs, which hide violations from JudgeLatch.
			if n >= Counts {
				pause = u.Lease / 8
			}
			select {
			case err := <-waited:
				return err
			case <-time.After(pause):
				u.countDown(ctx, l)
			}
		}
	}
}

// countDown counts down. It reports that before the call as well: if the process is killed meanwhile, nothing
// shows whether the count down took effect.
func (u user) countDown(ctx context.Context, l *latch.Latch) {
	op := Op{Lock: l.Name(), Owner: u.owner, Kind: counts, Call: time.Now().UnixNano()}
	u.report(Event{Op: op})
	err := l.CountDown(ctx)
	op.Kind, op.Return = Count, time.Now().UnixNano()
	if err != nil {
		op.Return += int64(late(u.Lease))
	}
	u.report(Event{Op: op})
}

// late returns a limit on the time after which a count down whose call has failed takes no effect any more.
// Its request is void after a lease by the server's clock, which the session only knows to within a round
// trip.
func late(lease time.Duration) time.Duration { return 2 * lease }

// visitElection leads for a while, and sometimes changes the value.
func visitElection(e *election.Election) visit {
	return func(u user, ctx context.Context) error {
		call := time.Now()
		led, l, err := e.Campaign(ctx, u.owner)
		if err != nil {
			return err
		}
		hold := &leader{Leadership: l, name: e.Name()}
		if hold.Deadline().IsZero() { // lost before the first look, so no time of leadership is known
			ctx, cancel := context.WithTimeout(context.Background(), u.Lease)
			defer cancel()
			_ = l.Resign(ctx)
			return nil
		}
		u.entered(call, hold, Op{})
		if u.rnd.IntN(3) == 0 {
			// An error is due to a fault, or to a loss, which leave reports.
			_ = l.Proclaim(led, u.owner+" again")
		}
		u.stay(led, hold)
		u.leave(hold, Op{}, map[string]bool{})
		return nil
	}
}

// leader is a leadership as a holding. A leadership has no deadline, so Deadline returns the time of the last
// call at which the leadership was not lost, or zero.
type leader struct {
	*election.Leadership
	name string
	last time.Time
}

func (l *leader) Name() string { return l.name }

func (l *leader) Deadline() time.Time {
	if now := time.Now(); l.Err() == nil {
		l.last = now
	}
	return l.last
}

func (l *leader) Unlock(ctx context.Context) error { return l.Resign(ctx) }
