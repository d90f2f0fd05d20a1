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

// A MultiLock is several locks that are taken together, all or none. It keeps no state of an acquisition, so
// any number of goroutines may use it. Every method of the zero MultiLock, except Name, returns an error.
type MultiLock struct {
	name    string
	members []rlock.Locker // without duplicates
	err     error          // error of New; Lock, TryLock and Do return it

	// order has the indexes of the members in the order in which they are tried. The first numParallel
	// members in this order are tried at the same time. After them, the others are tried one after another.
	// Both groups are sorted by name, so that all callers have the same order (see memberToAwait).
	order       []int
	numParallel int

	restarted func(restarts int) // called each time that a call starts over; for tests
}

var _ rlock.Locker = (*MultiLock)(nil)

// New returns a MultiLock of these members. Members can be Mutexes, read-write locks, RedLocks, MultiLocks,
// or Lockers of your own, and can use any clients. For permits of a semaphore, pass the result of its method
// Locker. New sends no request. If there is no member, or if a member is not valid, Lock, TryLock and Do
// return an error that says so.
//
// If a member is a MultiLock, New uses the members of that MultiLock instead. A member that is passed twice
// counts once. Two Mutexes of package rlock, fairlock or redisson are the same member if they name the same
// lock in the same session. Two RedLocks are the same member if they have the same name, and their Quorums
// have the same sessions and options. Two Lockers of any other type are the same member if they are equal by
// the operator ==.
func New(members ...rlock.Locker) *MultiLock {
	l := &MultiLock{}
	if len(members) == 0 {
		l.err = errors.New("lockline: a MultiLock needs at least one member")
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
	var sequential []int
	for i, m := range l.members {
		// Only members of type *rlock.Mutex are tried at the same time. For this, wire.Gather requires that
		// no call waits for another one, and puts only the first request of each call into a pipeline. A
		// user's own Locker may wait for another member, a reader may nest in the hold of its writer, and a
		// RedLock sends requests to several servers.
		if _, isMutex := m.(*rlock.Mutex); isMutex {
			l.order = append(l.order, i)
		} else {
			sequential = append(sequential, i)
		}
	}
	keyAndServer := func(i int) string {
		m := inner.Mutex(l.members[i].(*rlock.Mutex))
		return m.Keys().LockKey() + " " + m.Session().Link.Addr()
	}
	slices.SortFunc(l.order, func(i, j int) int {
		if c := cmp.Compare(names[i], names[j]); c != 0 {
			return c
		}
		return cmp.Compare(keyAndServer(i), keyAndServer(j))
	})
	l.numParallel = len(l.order)
	// Members with the same name keep their order, because the second of them may be a reader that nests in
	// the first, its writer.
	slices.SortStableFunc(sequential, func(i, j int) int { return cmp.Compare(names[i], names[j]) })
	l.order = append(l.order, sequential...)
	return l
}

// add appends the members that l does not have yet. If a member is a MultiLock, add appends the members of
// that MultiLock instead. If a member is not valid, add sets l.err.
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
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
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

// MemberError is the error of one member. Its text has the name of the member, and the index of the member in
// the form members[Index].
type MemberError struct {
	// Index is the index of the member in [rlock.Hold.Parts], from 0. Members are numbered in the order in
	// which they were passed to [New]. A member that was passed twice counts once. If a MultiLock was passed,
	// its members are numbered in its place.
	Index int
	Name  string // name of the member
	Err   error  // error of the member
}

func (e *MemberError) Error() string {
	lock := fmt.Sprintf("lock %q", e.Name)
	what := strings.TrimPrefix(failure.Bare(e.Err), lock+": ") // Err may name the lock already
	return fmt.Sprintf("lockline: %s (members[%d]): %s", lock, e.Index, what)
}

func (e *MemberError) Unwrap() error { return e.Err }

func (l *MultiLock) memberError(i int, err error) *MemberError {
	return &MemberError{Index: i, Name: l.members[i].Name(), Err: err}
}

// Lock waits until all members are held. The returned context carries the holds of all members. With this
// context, a Lock of a member re-enters, unless the member is a semaphore. A Lock of another MultiLock of
// these members re-enters, too. The context ends when the hold of any member ends. If a member was lost, the
// cause matches [rlock.ErrLost] and names that member. The other members stay held until Unlock.
//
// [rlock.WaitAtMost] bounds the wait for all members together. The other options of the call apply to each
// member. If a member was made with an option that the call does not have, this option applies to the member.
// If less than 2 ms of the time of WaitAtMost is left, a try of a member may still take 2 ms. So Lock can
// return up to 2 ms after the end of that time.
//
// After an error, Lock returns ctx itself and a nil hold. Before Lock returns, it releases the acquired
// members. If the releases take longer than 5 s, or if ctx or the time of WaitAtMost ends first, the
// releases continue in the background. If a member could not be acquired or was lost, the error is a
// *[MemberError] with the error of this member.
func (l *MultiLock) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock is like Lock, but does not wait for other holders. If a member is taken, the error is a
// *[MemberError] with the *[rlock.LockedError] of this member.
//
// Suppose that several goroutines or processes try a free MultiLock at the same moment. If its members are
// locks of package rlock or fairlock on one server, usually one caller gets all members. The reason is that
// each caller sends its requests in one pipeline, and that all callers use the same order. If a pipeline
// arrives in one piece, Redis usually carries it out without commands of others in between. But it is
// possible that each caller gets some members, and no caller gets all of them. Then all calls return
// [rlock.ErrLocked], whereas Lock would start over. This can happen
//   - if the members are on several servers, or on several masters of a Cluster;
//   - if members are tried one after another (see the package documentation);
//   - if there are so many members that their pipeline does not reach Redis in one piece.
func (l *MultiLock) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, true)
}

// Do runs fn while all members are held. See [rlock.Do].
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
	defer a.releaseParts() // needed if stay fails, or if a member's Lock panics
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
