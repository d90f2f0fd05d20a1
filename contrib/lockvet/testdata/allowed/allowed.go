// Allowed has code that looks like a mistake but is correct.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/lockline/lockline/election"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
)

func work(ctx context.Context) error { return ctx.Err() }

func report(ctx context.Context, err error) error { return errors.Join(ctx.Err(), err) }

func count(context.Context) {}

func nameFromContext(context.Context) string { return "name" }

func Ctx(context.Context) *log.Logger { return log.Default() }

type metadata map[string][]string

func FromIncomingContext(context.Context) (metadata, bool) { return nil, false }

func FromContextOrError(context.Context) (*log.Logger, error) { return nil, nil }

func URLParamFromCtx(context.Context, string) metadata { return nil }

func GetReqID(context.Context) string { return "id" }

func userOf(context.Context) *metadata { return nil }

func WithoutDeadline(context.Context) context.Context { return context.Background() }

type flags interface {
	Enabled(ctx context.Context, flag string) bool
}

// Functions that only read a context may get any context.
func readers(ctx context.Context, m, inner rlock.Locker, f flags, name func(context.Context) string) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	log.Print(FromIncomingContext(ctx))
	log.Print(FromContextOrError(ctx))
	log.Print(URLParamFromCtx(ctx, "id"), GetReqID(ctx), userOf(ctx), f.Enabled(ctx, "new"), name(ctx))
	err = rlock.Do(held, inner, func(nested context.Context) error {
		log.Print(rlock.HoldFrom(held).Token(), slog.Default().Enabled(ctx, slog.LevelDebug))
		return errors.Join(work(nested), work(WithoutDeadline(ctx)))
	})
	err = errors.Join(err, hold.Unlock(ctx))
	log.Print(GetReqID(held), userOf(held), f.Enabled(held, "new"))
	return err
}

// The function of a Do uses the outer context, but only where that is allowed.
func outerInDo(ctx context.Context, m *rlock.Mutex) error {
	return m.Do(ctx, func(held context.Context) error {
		defer report(ctx, nil)
		go work(ctx)
		slog.InfoContext(ctx, "it runs")
		count(ctx)
		log.Print(nameFromContext(ctx), Ctx(ctx))
		time.AfterFunc(time.Second, func() { _ = work(ctx) })
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := rlock.HoldFrom(held).WaitReplicas(ctx, 1); err != nil {
			return err
		}
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return errors.Join(work(held), work(cleanup))
	})
}

func deadlineOfUnlock(ctx context.Context, m rlock.Locker) error {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return hold.Unlock(soon)
}

func derivedFromHeld(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	soon = held
	return work(soon)
}

func shadowed(ctx context.Context, m *rlock.Mutex, s *semaphore.Semaphore) error {
	return m.Do(ctx, func(ctx context.Context) error {
		return s.Do(ctx, 2, func(ctx context.Context) error { return work(ctx) })
	})
}

func assigned(ctx context.Context, m *rlock.Mutex) error {
	return m.Do(ctx, func(held context.Context) error {
		ctx = held
		return work(ctx)
	})
}

// The outer context is used where Lock has failed, after the Unlock, or in deferred code.
func outerWithoutLock(ctx context.Context, m rlock.Locker) (err error) {
	held, hold, err := m.TryLock(ctx)
	switch {
	case errors.Is(err, rlock.ErrLocked):
		return report(ctx, err)
	case err != nil && ctx.Err() == nil, !(err == nil):
		return report(ctx, err)
	}
	defer func() { _ = report(ctx, nil) }()
	if err := work(held); err != nil {
		return errors.Join(err, hold.Unlock(ctx))
	}
	if err := hold.Unlock(ctx); err != nil {
		return report(ctx, err)
	}
	return work(ctx)
}

func retried(ctx context.Context, m rlock.Locker) error {
	for ctx.Err() == nil {
		held, hold, err := m.TryLock(ctx, rlock.WaitAtMost(0))
		if err == nil {
			defer hold.Unlock(ctx)
			return work(held)
		}
		if err := report(ctx, err); err != nil {
			return err
		}
	}
	return work(ctx)
}

func overwritten(ctx context.Context, m rlock.Locker) error {
	ctx, hold, err := m.Lock(ctx)
	if err != nil {
		return report(ctx, err)
	}
	defer hold.Unlock(ctx)
	return work(ctx)
}

func otherCheck(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if failed := err != nil; failed {
		return report(ctx, err)
	}
	defer hold.Unlock(ctx)
	return work(held)
}

func isBad(err error) bool { return err != nil }

func checkedByCondition(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if isBad(err) {
		return report(ctx, err)
	}
	defer hold.Unlock(ctx)
	return work(held)
}

func checkedBySwitch(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	switch err {
	case nil:
		return errors.Join(work(held), hold.Unlock(ctx))
	default:
		return report(ctx, err)
	}
}

func checkedByFunction(ctx context.Context, m rlock.Locker) {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		fatal(err)
	}
	_ = hold.Unlock(ctx)
}

func fatal(err error) { log.Fatal(err) }

func sometimes(ctx context.Context, m rlock.Locker, alone bool) error {
	if alone {
		held, hold, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock(ctx)
		ctx = held
	}
	return work(ctx)
}

// In the following functions, other code unlocks the hold.
func returned(ctx context.Context, m rlock.Locker) (context.Context, *rlock.Hold, error) {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("no lock: %w", err)
	}
	if err := work(ctx); err != nil {
		return nil, nil, errors.Join(err, hold.Unlock(ctx))
	}
	return held, hold, nil
}

func named(ctx context.Context, m rlock.Locker) (held context.Context, hold *rlock.Hold, err error) {
	held, hold, err = m.Lock(ctx)
	return
}

func unlocker(ctx context.Context, m rlock.Locker) (func() error, error) {
	_, hold, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	unlock := func() error { return hold.Unlock(ctx) }
	if err := unlock(); err != nil {
		return nil, report(ctx, err)
	}
	return unlock, nil
}

func methodValue(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	unlock := hold.Unlock
	defer unlock(ctx)
	return work(held)
}

func (s *service) methodValueStored(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	s.stops = append(s.stops, hold.Unlock)
	return work(held)
}

func (s *service) onStop(stop func(context.Context) error) { s.stops = append(s.stops, stop) }

func (s *service) methodValuePassed(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	s.onStop(hold.Unlock)
	if err := work(ctx); err != nil {
		return err
	}
	return work(held)
}

func perhapsUnlocked(ctx context.Context, m rlock.Locker, early bool) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	failed := early && hold.Unlock(ctx) != nil
	if early {
		return report(ctx, fmt.Errorf("unlock failed: %v", failed))
	}
	return errors.Join(work(held), hold.Unlock(ctx))
}

func deferredBefore(ctx context.Context, m rlock.Locker) error {
	var hold *rlock.Hold
	defer func() { _ = hold.Unlock(ctx) }()
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return work(held)
}

func shutDown(ctx context.Context, s *rlock.Session) error {
	held, hold, err := rlock.New(s, "x").Lock(ctx)
	if err != nil {
		return err
	}
	log.Println(hold.Token())
	return errors.Join(work(held), s.Shutdown(ctx))
}

func closed(ctx context.Context, s *rlock.Session) error {
	defer s.Close()
	held, hold, err := rlock.New(s, "x").Lock(ctx)
	if err != nil {
		return err
	}
	log.Println(hold.Token())
	return work(held)
}

type service struct {
	ctx   context.Context
	hold  *rlock.Hold
	mutex *rlock.Mutex
	stops []func(context.Context) error
}

func (s *service) run(m rlock.Locker) error {
	return rlock.Do(s.ctx, m, func(held context.Context) error {
		s.ctx = held
		return work(s.ctx)
	})
}

func (s *service) start(ctx context.Context, m rlock.Locker) (err error) {
	s.ctx, s.hold, err = m.Lock(ctx)
	return err
}

// The lock is free when its lease has expired, so the job runs once a minute at most.
func eachMinute(ctx context.Context, m rlock.Locker) error {
	held, _, err := m.TryLock(ctx, rlock.WithLease(time.Minute))
	if err != nil {
		return err
	}
	return work(held)
}

func eachMinuteAtMost(ctx context.Context, m rlock.Locker) error {
	_, _, err := m.TryLock(ctx, rlock.WithLease(time.Minute))
	if errors.Is(err, rlock.ErrLocked) {
		return nil
	}
	return errors.Join(err, work(ctx))
}

// In the following functions, the lock may have a fixed lease that the call does not show.
func leaseOfNew(ctx context.Context, s *rlock.Session) error {
	m := rlock.New(s, "x", rlock.WithLease(time.Minute))
	held, _, err := m.TryLock(ctx)
	if err != nil {
		return err
	}
	return work(held)
}

func leaseOfNewWithToken(ctx context.Context, s *rlock.Session) error {
	held, hold, err := rlock.New(s, "x", rlock.WithLease(time.Minute)).TryLock(ctx)
	if err != nil {
		return err
	}
	log.Print(hold.Token())
	return work(held)
}

func leaseOfVar(ctx context.Context, s *rlock.Session) error {
	var m = rlock.New(s, "x", rlock.WithLease(time.Minute))
	held, hold, err := m.TryLock(ctx)
	if err != nil {
		return err
	}
	log.Print(hold.Token())
	return work(held)
}

func leaseOfAssigned(ctx context.Context, s *rlock.Session) error {
	m := rlock.New(s, "x")
	if s.ID() == "" {
		m = rlock.New(s, "y", rlock.WithLease(time.Minute))
	}
	held, hold, err := m.TryLock(ctx)
	if err != nil {
		return err
	}
	log.Print(hold.Token())
	return work(held)
}

func leaseOfMember(ctx context.Context, s *rlock.Session) error {
	a, b := rlock.New(s, "a"), rlock.New(s, "b", rlock.WithLease(time.Minute))
	_, _, err := multilock.New(a, b).TryLock(ctx)
	return err
}

func leaseOfReader(ctx context.Context, s *rlock.Session) error {
	m := rwlock.New(s, "x", rlock.WithLease(time.Minute))
	_, _, err := m.RLocker().TryLock(ctx)
	return err
}

func unknownOptions(ctx context.Context, s *rlock.Session, options ...rlock.Option) error {
	held, _, err := rlock.New(s, "x").TryLock(ctx, options...)
	if err != nil {
		return err
	}
	return work(held)
}

func unknownOption(ctx context.Context, m rlock.Locker, lease rlock.Option) error {
	_, hold, err := m.TryLock(ctx, lease)
	log.Print(hold.Token())
	return err
}

func unknownOptionOfCall(ctx context.Context, m rlock.Locker, lease func() rlock.Option) error {
	_, hold, err := m.TryLock(ctx, lease())
	log.Print(hold.Token())
	return err
}

func unknownLock(ctx context.Context, m rlock.Locker) error {
	_, _, err := m.TryLock(ctx)
	return err
}

func (s *service) ofService(ctx context.Context) error {
	_, _, err := s.mutex.TryLock(ctx)
	return err
}

func unknownFunction(ctx context.Context, m rlock.Locker) error {
	_, _, err := returned(ctx, m)
	return err
}

func otherLock(ctx context.Context, s *rlock.Session, other *rlock.Mutex) error {
	m := rlock.New(s, "x")
	if other != nil {
		m = other
	}
	_, _, err := m.TryLock(ctx)
	return err
}

func otherLockOfRange(ctx context.Context, s *rlock.Session, locks []*rlock.Mutex) error {
	m := rlock.New(s, "x")
	for _, m = range locks {
	}
	_, _, err := m.TryLock(ctx)
	return err
}

func otherLockOfPointer(ctx context.Context, s *rlock.Session, set func(**rlock.Mutex)) error {
	m := rlock.New(s, "x")
	set(&m)
	_, _, err := m.TryLock(ctx)
	return err
}

func discardedAndClosed(ctx context.Context, s *rlock.Session) error {
	defer s.Close()
	held, _, err := rlock.New(s, "x").Lock(ctx)
	if err != nil {
		return err
	}
	return work(held)
}

// After the Unlock, the variable held gets another context before a function gets it.
func again(ctx context.Context, m rlock.Locker) error {
	var held context.Context
	var hold *rlock.Hold
	var err error
	for range 2 {
		if held, hold, err = m.Lock(ctx); err != nil {
			return err
		}
		if err := work(held); err != nil {
			_ = hold.Unlock(ctx)
			return err
		}
		if err := hold.Unlock(ctx); err != nil {
			return fmt.Errorf("the lock of %v: %w", rlock.HoldFrom(held).Token(), context.Cause(held))
		}
		held = ctx
		if err := work(held); err != nil {
			return err
		}
	}
	return nil
}

func once(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	for {
		if err := work(held); err != nil {
			return errors.Join(err, hold.Unlock(ctx))
		}
		_ = hold.Unlock(ctx)
		return nil
	}
}

func onceIfUnlocked(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	for {
		if work(held) != nil {
			continue
		}
		if err := hold.Unlock(ctx); err != nil {
			return err
		} else {
			return nil
		}
	}
}

func onceBySwitch(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	for {
		err := work(held)
		_ = hold.Unlock(ctx)
		switch {
		case err != nil:
			return err
		default:
			return nil
		}
	}
}

func onceByContinue(ctx context.Context, locks []rlock.Locker) error {
	var held context.Context
	var hold *rlock.Hold
	var err error
each:
	for _, m := range locks {
		if held, hold, err = m.Lock(ctx); err != nil {
			return err
		}
		for {
			if work(held) != nil {
				continue
			}
			_ = hold.Unlock(ctx)
			continue each
		}
	}
	return nil
}

func againAndAgain(ctx context.Context, m rlock.Locker) (err error) {
	var held context.Context
	var hold *rlock.Hold
	for err == nil {
		if held, hold, err = m.Lock(ctx); err == nil {
			err = work(held)
		}
		_ = hold.Unlock(ctx)
	}
	return err
}

func onlyTheSecond(ctx context.Context, a, b rlock.Locker, kept **rlock.Hold) error {
	first, hold, err := a.Lock(ctx)
	if err != nil {
		return err
	}
	*kept = hold
	_, hold, err = b.Lock(first)
	if err != nil {
		return err
	}
	_ = hold.Unlock(ctx)
	return work(first)
}

func each(ctx context.Context, locks []rlock.Locker) error {
	for _, m := range locks {
		_, hold, err := m.Lock(ctx)
		if err != nil {
			return err
		}
		defer hold.Unlock(ctx)
	}
	return nil
}

func hidden(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx) //lockvet:ignore the second program does not look at its context
	if err != nil {
		return err
	}
	return errors.Join(work(ctx), hold.Unlock(ctx), context.Cause(held))
}

func hiddenAbove(ctx context.Context, m rlock.Locker) error {
	held, hold, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	_ = hold.Unlock(ctx)
	//lockvet:ignore the error is wanted
	return work(held)
}

func units(s *rlock.Session) []*rlock.Mutex {
	const lease, handover = 30 * time.Second, 100 * time.Microsecond
	_ = rlock.WithHandover(handover)
	return []*rlock.Mutex{
		rlock.New(s, "a", rlock.WithLease(lease), rlock.HoldAtLeast(2*time.Second), rlock.WaitAtMost(0)),
		rlock.New(s, "b", rlock.WithLease(time.Duration(5)), rlock.HoldAtLeast(time.Second/2)),
		rlock.New(s, "c", rlock.WithLease(3e10), rlock.HoldAtLeast(-1)),
	}
}

func background(ctx context.Context, e *election.Election) {
	go e.Run(ctx, "here", work)
	_ = e.Run(ctx, "here", work)
}

// The end of a process frees its locks, sooner or later.
func main() {
	_, hold, err := rlock.New(nil, "x").Lock(context.Background())
	if err != nil {
		return
	}
	log.Println(hold.Token())
	if _, _, err := rlock.New(nil, "y").Lock(context.Background()); err != nil {
		log.Print(err)
	}
}
