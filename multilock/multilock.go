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

// MultiLock is several locks that are taken together, all or none. It has no state of any acquisition, so
// any number of goroutines may use one. Every method of the zero MultiLock returns an error.
type MultiLock struct {
	name    string
	members []rlock.Locker // each once
	err     error          // of New, returned by every use

	// order is the order of tries. The first numParallel members are tried at the same time, and then the
	// others one after another, both by name. It is the same for all callers, so they wait in one queue.
	order       []int
	numParallel int

	restarted func(restarts int) // for tests
}

var _ rlock.Locker = (*MultiLock)(nil)

// New returns a MultiLock of its members. They can be of any kind and use any clients: Mutexes, semaphores,
// read-write locks, RedLocks, MultiLocks, or Lockers of your own. New sends no request. If a member is not
// valid, every method returns an error that says so.
//
// If a member is a MultiLock, its members are used instead. If a member is given twice, it counts once.
// Mutexes, also of package redisson, are the same member if they name one lock in one session. Other Lockers
// are the same member if they are equal.
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
	// Members with the same name keep their order, because a reader may be nested in the writer before it.
	slices.SortStableFunc(after, func(i, j int) int { return cmp.Compare(names[i], names[j]) })
	l.order = append(l.order, after...)
	return l
}

// add appends members that are not there yet. It replaces a MultiLock by its members.
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

// Name returns the names of the members with plus signs between them.
func (l *MultiLock) Name() string {
	if l == nil {
		return ""
	}
	return l.name
}

// MemberError is an error of one member. Its text has the name of the member, and its place in the form
// members[Index].
type MemberError struct {
	// Index is the index of the member in [rlock.Hold.Parts], from 0. It counts the members that were passed
	// to [New], with the members of a MultiLock instead of the MultiLock, and each member once.
	Index int
	Name  string // of the member
	Err   error
}

func (e *MemberError) Error() string {
	lock := fmt.Sprintf("lock %q", e.Name)
	what := strings.TrimPrefix(failure.Bare(e.Err), lock+": ") // the member may have named itself
	return fmt.Sprintf("lockline: %s (members[%d]): %s", lock, e.Index, what)
}

func (e *MemberError) Unwrap() error { return e.Err }

func (l *MultiLock) about(i int, err error) *MemberError {
	return &MemberError{Index: i, Name: l.members[i].Name(), Err: err}
}

// Lock waits until all members are held. The returned context carries all of their holds. So a Lock of a
// member, or of any MultiLock of these members, re-enters with this context. The context ends when any of
// the holds ends. If a member was lost, the cause matches [rlock.ErrLost] and names that member. The other
// members are held until Unlock.
//
// Options of the call apply to all members. [rlock.WaitAtMost] bounds the wait for all of them together.
// [rlock.WithLease], [rlock.WithNote] and [rlock.HoldAtLeast] apply to each member. If only a member has an
// option, it counts for that member. Lock tries members without waiting. Such a try may take 2 ms even if
// less of the wait is left, so Lock can return that much later.
//
// After an error, Lock returns ctx itself, and no member is held. Members that were taken are released
// before Lock returns, or in the background if ctx has ended. The error is a *[MemberError] with the error
// of the member that failed.
func (l *MultiLock) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock is Lock without waiting for other holders. If a member is taken, the error is a *[MemberError]
// with its *[rlock.LockedError].
//
// If several goroutines or processes try a free MultiLock at the same moment, one of them gets it, provided
// that its members are reentrant or fair locks on one server. Their requests are sent in one pipeline, in an
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
