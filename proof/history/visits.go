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

// readWrite acquires a read-write lock, sometimes with nested holds, and releases the holds in random order.
// A writer that has only holds to read left downgrades to a reader. A reader sometimes tries to write, which
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

// visitSemaphore acquires n permits, and sometimes a further permit. It does not wait for the further permit,
// because all owners might wait for each other.
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
			beside.owner += "+" // the further permit has an owner of its own
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

// visitLatch sets a latch, unless there is a run already. Then it counts down until its own Wait has
// returned, so a run ends even if all other users of the latch were killed.
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

// countDown counts down. It reports the count down before the call, too. If the process is killed during the
// call, the parent process still knows that the count down may have taken effect.
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

// late returns the time for which a failed count down may still take effect. The request is void after a
// lease by the server's clock, and the session knows this clock only to within a round trip.
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
		if hold.Deadline().IsZero() { // lost before the first call of Deadline, so its end is not known
			ctx, cancel := context.WithTimeout(context.Background(), u.Lease)
			defer cancel()
			_ = l.Resign(ctx)
			return nil
		}
		u.entered(call, hold, Op{})
		if u.rnd.IntN(3) == 0 {
			// An error is the effect of a fault or of a loss. leave reports a loss.
			_ = l.Proclaim(led, u.owner+" again")
		}
		u.stay(led, hold)
		u.leave(hold, Op{}, map[string]bool{})
		return nil
	}
}

// leader lets a leadership be used as a holding. A leadership has no deadline, so Deadline returns the time
// of its last call at which the leadership was not lost, or zero if there was no such call.
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
