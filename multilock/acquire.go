package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// acquisition is one call of Lock or TryLock.
type acquisition struct {
	l       *MultiLock
	ctx     context.Context // of the caller
	options []rlock.Option
	atLeast time.Duration // HoldAtLeast of the call
	until   time.Time     // when the wait that is allowed is over; zero: never
	try     bool

	parts []part // what it has, by member
}

// part is the hold of one member, and its context. The zero part is not held.
type part struct {
	ctx    context.Context
	hold   *rlock.Hold
	stays  time.Duration // HoldAtLeast of the call or of the member; 0: none
	nested bool          // taken with the context of the parts before it, and perhaps nested in one
}

// run takes all members. It waits for one at a time, and holds none during a wait.
func (a *acquisition) run() error {
	first := -1 // the member to wait for
	if !a.try {
		first = a.l.first(-1)
	}
	var last error
	for restarts := 0; ; restarts++ {
		a.parts = make([]part, len(a.l.members))
		taken, err := a.round(first)
		if err == nil {
			return nil
		}
		a.giveBack()
		if errors.Is(err, errTooSlow) {
			err = cmp.Or(last, err)
		}
		if taken == nil || a.try {
			return err
		}
		last = err
		if a.l.restarted != nil {
			a.l.restarted(restarts + 1)
		}
		first = taken.Index
		// Later it waits for the member that refused it, which may be held for long.
		if restarts < 2 && errors.Is(taken, rlock.ErrLocked) {
			first = a.l.first(first)
		}
		// Rounds that keep meeting each other fall out of step. From the third on each waits a random time of
		// up to 4 ms, 8 ms, and so on to 128 ms. Nothing is held meanwhile.
		if restarts >= 2 {
			wire.Pause(a.ctx, rand.N(time.Millisecond<<min(restarts, 7)))
		}
	}
}

// round waits for the first member, unless first is -1, and tries the others. If a member has another
// holder, or if its server fails, taken is the error of that member.
func (a *acquisition) round(first int) (taken *MemberError, err error) {
	l := a.l
	if first >= 0 {
		if err := a.take(a.ctx, first, l.members[first].Lock, protocol.MinTime); err != nil {
			return nil, l.about(first, err)
		}
	}
	if taken, err = a.learnClocks(); err != nil {
		return taken, err
	}
	for some := range slices.Chunk(l.order[:l.numParallel], maxTogether) {
		errs := wire.Gather(a.ctx, len(some), func(ctx context.Context, n int) error {
			return a.take(ctx, some[n], l.members[some[n]].TryLock, leastTry)
		})
		if taken, err = a.failed(some, errs); err != nil {
			return taken, err
		}
	}
	// A clone, because work in the background may look into this context later.
	at := context.Context(&siblingContext{a.ctx, slices.Clone(a.parts)})
	for _, i := range l.order[l.numParallel:] {
		if i == first {
			continue
		}
		err := a.take(at, i, l.members[i].TryLock, leastTry)
		if taken, err = a.failed([]int{i}, []error{err}); err != nil {
			return taken, err
		}
		a.parts[i].nested = true
		at = a.parts[i].ctx
	}
	for i, p := range a.parts { // a part may have been lost meanwhile
		if err := p.hold.Err(); err != nil {
			return nil, l.about(i, err)
		}
	}
	return nil, nil
}

// learnClocks makes sessions that do not know the clock of Redis find it out, for the members that are tried
// at the same time. Otherwise their requests would be void, and each would be sent again by itself. Then the
// requests of several callers would mix, and each caller could get some of the members, and none all. Its
// results are the results of round.
func (a *acquisition) learnClocks() (taken *MemberError, err error) {
	l := a.l
	var members []int // a member for each clock that is not known
	asked := map[*wire.Clock]bool{}
	for _, i := range l.order[:l.numParallel] {
		clock := inner.Mutex(l.members[i].(*rlock.Mutex)).Session().Clock
		if clock.Now(time.Now()) == 0 && !asked[clock] {
			asked[clock] = true
			members = append(members, i)
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	ctx, cancel := a.bounded()
	defer cancel()
	errs := wire.Gather(ctx, len(members), func(ctx context.Context, n int) error {
		m := inner.Mutex(l.members[members[n]].(*rlock.Mutex))
		err := m.LearnClock(ctx)
		if ctx.Err() != nil {
			err = failure.OfWait(a.ctx, false, m.Kind().Noun, m.Name(), nil)
		}
		return err
	})
	return a.failed(members, errs)
}

// bounded returns a context that ends with the context of the caller, or when the allowed wait is over.
func (a *acquisition) bounded() (context.Context, context.CancelFunc) {
	if a.until.IsZero() {
		return a.ctx, func() {}
	}
	return context.WithDeadline(a.ctx, a.until)
}

// first returns the member to wait for if the i-th member is taken, or none if i is -1. It returns the first
// in the order of tries of the i-th member and all members that others are known to want, or -1 if there is
// none. So all callers that want the same members wait in one queue. If they waited in several queues, each
// would be handed a member that another one needs.
func (l *MultiLock) first(i int) int {
	for _, j := range l.order[:l.numParallel] {
		here, elsewhere := inner.Mutex(l.members[j].(*rlock.Mutex)).Wanted()
		if here || elsewhere || j == i {
			return j
		}
	}
	return i
}

// siblingContext is a context below holds that were taken side by side.
type siblingContext struct {
	context.Context
	parts []part
}

func (c *siblingContext) Value(key any) any {
	if found := find(c.parts, key); found != nil {
		return found
	}
	return c.Context.Value(key)
}

// method is Lock or TryLock of a member.
type method func(context.Context, ...rlock.Option) (context.Context, *rlock.Hold, error)

// leastTry is the time that a try may take at least if it has begun during the caller's wait. The pipeline
// of several requests takes longer than one request. With a shorter bound it would fail although all members
// are free.
const leastTry = 2 * time.Millisecond

// take acquires member i, unless it is held already. It may take until the caller's wait ends, and in any
// case for the time least.
func (a *acquisition) take(ctx context.Context, i int, lock method, least time.Duration) error {
	if a.parts[i].hold != nil {
		return nil
	}
	options, kept := a.options, &keptOption{rlock.HoldAtLeast(0), a.atLeast}
	if !a.until.IsZero() {
		left := time.Until(a.until)
		if left <= 0 {
			return errTooSlow
		}
		options = append(slices.Clip(options), rlock.WaitAtMost(max(left, least)))
	}
	held, hold, err := lock(ctx, append(slices.Clip(options), kept)...)
	if err == nil {
		a.parts[i] = part{ctx: held, hold: hold, stays: kept.atLeast}
	}
	return err
}

// A keptOption is the last option of the Lock of a member. It removes HoldAtLeast from the options and keeps
// its time, whether the call or the member has the option. A member that is released because another one is
// taken must be free. Only the members that are held in the end stay taken.
type keptOption struct {
	rlock.Option // makes it an Option, and is not used
	atLeast      time.Duration
}

func (o *keptOption) Apply(c *engine.Config) { o.atLeast, c.AtLeast = c.AtLeast, 0 }

// stay applies HoldAtLeast to each member. It returns an error if a member cannot stay taken after its
// Unlock, for example because it is shared with another library.
func (a *acquisition) stay() error {
	for i, p := range a.parts {
		err := engine.Config{AtLeast: p.stays}.Check()
		of := (*handle.Hold)(p.hold).Of()
		if never, ok := of.(interface{ NeverStays() error }); ok && p.stays > 0 {
			err = never.NeverStays()
		}
		if err != nil {
			return a.l.about(i, err)
		}
	}
	for _, p := range a.parts {
		if p.stays > 0 {
			(*handle.Hold)(p.hold).Stay(p.stays)
		}
	}
	return nil
}

var errTooSlow = fmt.Errorf("not answered before the wait was over: %w", os.ErrDeadlineExceeded)

// failed combines the errors of members. It returns an error that no wait will mend, or otherwise, as taken,
// the error of the member to wait for. That is the first one in the order of tries whose server fails, or
// otherwise the first one that has another holder.
func (a *acquisition) failed(members []int, errs []error) (taken *MemberError, err error) {
	for n, err := range errs {
		i := members[n]
		switch {
		case err == nil, errors.Is(err, wire.ErrUnsent):
		case !errors.Is(err, rlock.ErrLocked) && !passing(err):
			return nil, a.l.about(i, err)
		case taken == nil || errors.Is(taken, rlock.ErrLocked) && !errors.Is(err, rlock.ErrLocked):
			taken = a.l.about(i, err)
		}
	}
	if taken == nil {
		return nil, nil
	}
	var locked *rlock.LockedError
	if errors.As(taken, &locked) && locked.Holder != "" {
		for i, p := range a.parts {
			if engine.OwnerField((*handle.Hold)(p.hold)) == locked.Holder && p.hold.Name() == locked.Name {
				if locked.What == "semaphore" {
					return nil, a.l.about(taken.Index, fmt.Errorf("members[%d] has permits of the same "+
						"semaphore: use one Locker(n) for all that the MultiLock takes of it", i))
				}
				return nil, a.l.about(taken.Index, fmt.Errorf("it is the same lock as members[%d], "+
					"for another session: they exclude each other", i))
			}
		}
	}
	return taken, taken
}

// passing reports whether an error comes from an outage. The Lock of a member keeps waiting in an outage.
func passing(err error) bool {
	if outage, known := outageOf(err); known {
		return outage
	}
	var reply redis.Error
	var network net.Error
	known := errors.As(err, &reply) || errors.As(err, &network) || errors.Is(err, io.EOF)
	return known && wire.Judge(err).Transient
}

// giveBackWait bounds the wait for the release of members. The rest is released in the background.
const giveBackWait = 5 * time.Second

// giveBack releases the members that a round has taken. It may continue in the background, because a later
// round has its own parts.
func (a *acquisition) giveBack() {
	parts := a.parts
	a.parts = nil
	if !slices.ContainsFunc(parts, func(p part) bool { return p.hold != nil }) {
		return
	}
	wait := giveBackWait
	if !a.until.IsZero() {
		wait = min(wait, time.Until(a.until))
	}
	ctx, cancel := context.WithTimeout(a.ctx, wait)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.l.unlock(context.WithoutCancel(ctx), parts, func(int, error) {})
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// unlock unlocks the held parts. The first one is last, because other callers wait for that one, and then
// try the rest. unlock calls onEnd when the Unlock of a part has returned, in several goroutines at once.
func (l *MultiLock) unlock(ctx context.Context, parts []part, onEnd func(i int, err error)) {
	for last := len(l.order); last > 0; last -= maxTogether {
		wire.Gather(ctx, min(last, maxTogether), func(ctx context.Context, n int) error {
			i := l.order[last-1-n]
			if hold := parts[i].hold; hold != nil {
				onEnd(i, hold.Unlock(ctx))
			}
			return nil // or the others stayed locked
		})
	}
}

// maxTogether is the number of requests that may share a pipeline, which occupies a server.
const maxTogether = 100
