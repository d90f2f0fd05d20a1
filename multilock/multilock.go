package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/rlock"
)

// MultiLock is several locks taken as one: all of them or none. It keeps no state of
// any acquisition and serves any number of goroutines. The zero MultiLock returns
// an error from every method.
type MultiLock struct {
	name    string
	members []rlock.Locker // each once
	err     error          // of New, returned by every use

	// order is the order of tries: the first numParallel members are tried at the same time, and then the
	// others one after another, both by name. It is the same for all callers, so they wait in one queue.
	order       []int
	numParallel int

	restarted func(restarts int) // for tests
}

var _ rlock.Locker = (*MultiLock)(nil)

// New makes one lock of its members, which can be of any kind and on any clients:
// Mutexes, semaphores and read-write locks, RedLocks, MultiLocks, or Lockers of your own. It does no I/O.
// What is wrong with a member, Lock says.
//
// A MultiLock among the members stands for its own members. A member given twice is one member:
// Mutexes, also those of package redisson, are the same if they name one lock in one session, other Lockers
// if they are equal.
func New(members ...rlock.Locker) *MultiLock {
	l := &MultiLock{}
	if len(members) == 0 {
		l.err = errors.New("lockline: a MultiLock without members")
	}
	l.add(members)
	if l.err != nil {
		return l
	}
	names := make([]string, len(l.members))
	for i, m := range l.members {
		names[i] = m.Name()
	}
	l.name = strings.Join(names, "+")
	var after []int
	for i, m := range l.members {
		// Other members are tried one after another, because a Locker of users may wait for others, a reader
		// is nested in its writer, and a RedLock sends requests to several servers.
		if _, one := m.(*rlock.Mutex); one {
			l.order = append(l.order, i)
		} else {
			after = append(after, i)
		}
	}
	where := func(i int) string {
		m := inner.Mutex(l.members[i].(*rlock.Mutex))
		return m.Keys().LockKey() + " " + m.Session().Link.Addr()
	}
	slices.SortFunc(l.order, func(i, j int) int {
		if c := cmp.Compare(names[i], names[j]); c != 0 {
			return c
		}
		return cmp.Compare(where(i), where(j))
	})
	l.numParallel = len(l.order)
	// Members of one name stay as they are given: a reader that is nested in its writer comes after it.
	slices.SortStableFunc(after, func(i, j int) int { return cmp.Compare(names[i], names[j]) })
	l.order = append(l.order, after...)
	return l
}

// add flattens the members and leaves out what it has.
func (l *MultiLock) add(members []rlock.Locker) {
	for i, m := range members {
		var err error
		switch m := m.(type) {
		case *MultiLock:
			if err = m.check(context.Background()); err == nil {
				l.add(m.members)
				continue
			}
		case *rlock.Mutex:
			err = inner.Mutex(m).CheckUse(context.Background())
		case *RedLock:
			err = m.check(context.Background())
		default:
			if v := reflect.ValueOf(m); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
				err = errors.New("it is nil")
			}
		}
		if err != nil {
			l.err = failure.Join(l.err, failure.Within(fmt.Sprintf("members[%d] of a MultiLock", i), err))
		} else if !slices.ContainsFunc(l.members, func(other rlock.Locker) bool { return same(m, other) }) {
			l.members = append(l.members, m)
		}
	}
}

func same(a, b rlock.Locker) bool {
	if id := inner.Identity(a); id != nil {
		return id == inner.Identity(b)
	}
	if a, ok := a.(*RedLock); ok {
		if b, ok := b.(*RedLock); ok {
			return a.q == b.q && a.name == b.name
		}
	}
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

var errZero = errors.New("lockline: the MultiLock is nil or a zero value; make one with New")

func (l *MultiLock) check(ctx context.Context) error {
	switch {
	case l == nil || l.members == nil && l.err == nil:
		return errZero
	case l.err != nil:
		return l.err
	case ctx == nil:
		return failure.ErrNilContext
	}
	return nil
}

// Name is the names of the members with plus signs between them.
func (l *MultiLock) Name() string {
	if l == nil {
		return ""
	}
	return l.name
}

// MemberError says which member an error is about. Its text has the member's name and, as members[Index], its
// place.
type MemberError struct {
	// Index counts from 0, as slices do, and is that of [rlock.Hold.Parts]: among the members that [New] was
	// given, where a MultiLock stands for its own members and a member given twice counts once.
	Index int
	Name  string // of the member
	Err   error
}

func (e *MemberError) Error() string {
	lock := fmt.Sprintf("lock %q", e.Name)
	what := strings.TrimPrefix(failure.Bare(e.Err), lock+": ") // it may have named itself
	return fmt.Sprintf("lockline: %s (members[%d]): %s", lock, e.Index, what)
}

func (e *MemberError) Unwrap() error { return e.Err }

func (l *MultiLock) about(i int, err error) *MemberError {
	return &MemberError{Index: i, Name: l.members[i].Name(), Err: err}
}

// Lock waits until all members are held. The context it returns carries the holds of
// all: each member, and this or any other MultiLock of them, re-enters below it. It ends
// when any of the holds does; if one was lost, the cause matches [rlock.ErrLost] and
// names that lock. The others are held until Unlock.
//
// Options count for the whole: [rlock.WaitAtMost] bounds the wait for all, and [rlock.WithLease],
// [rlock.WithNote] and [rlock.HoldAtLeast] are for each member. An option that only a member has counts for
// that member. A try of members that has begun within the wait may take 2 ms, also if the wait is over
// before.
//
// On error the context is the one given, and what was taken is given back: before Lock
// returns, or in the background if ctx has ended. The error is a
// *[MemberError] of the member that failed, around the error of its Lock or TryLock.
func (l *MultiLock) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock is Lock that never waits for another holder: its error is a
// *[MemberError] around the *[rlock.LockedError] of a member that is taken.
//
// If several goroutines or processes try a free MultiLock at the same instant, one of them gets it, provided
// that its members are reentrant or fair locks on one server. Their requests leave in one pipeline, in an
// order that all callers share, and Redis carries out a pipeline as a whole. Otherwise each caller may get
// some of the members, and none all. Then all calls return [rlock.ErrLocked], where Lock would start over.
// This can happen
//   - if the members are on several servers, or on several masters of a Cluster;
//   - with members that are tried one after another, as the package documentation says;
//   - with so many members that their pipeline does not reach Redis in one piece.
func (l *MultiLock) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, true)
}

// Do is [rlock.Do] with all members.
func (l *MultiLock) Do(
	ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option,
) error {
	return rlock.Do(ctx, l, fn, options...)
}

func (l *MultiLock) acquire(
	ctx context.Context, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	if err := l.check(ctx); err != nil {
		return ctx, nil, err
	}
	cfg := engine.NewConfig(engine.Config{}, options)
	if err := cfg.Check(); err != nil {
		return ctx, nil, err
	}
	a := &acquisition{l: l, ctx: ctx, options: options, atLeast: cfg.AtLeast, try: cfg.Once(try)}
	if cfg.Bounded && cfg.Wait > 0 {
		a.until = time.Now().Add(cfg.Wait)
	}
	defer a.giveBack() // if a member's Lock panics
	if err := a.run(); err != nil {
		return ctx, nil, err
	}
	if err := a.stay(); err != nil {
		return ctx, nil, err
	}
	held, hold := l.hold(ctx, a.parts)
	a.parts = nil
	return held, hold, nil
}
