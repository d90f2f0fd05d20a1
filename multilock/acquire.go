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
	"sync"
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

// An acquisition is one call of Lock or TryLock.
type acquisition struct {
	l       *MultiLock
	ctx     context.Context // context of the caller
	options []rlock.Option
	atLeast time.Duration // HoldAtLeast of the call
	until   time.Time     // end of the time of WaitAtMost; zero: no limit
	try     bool          // the call does not wait for other holders

	parts []part // by index of the member; zero parts for members that are not held
}

// A part is the hold of one member, with the context of that hold. The zero part means that the member is not
// held.
type part struct {
	ctx    context.Context
	hold   *rlock.Hold
	stays  time.Duration // HoldAtLeast of the call or of the member; 0: none
	nested bool          // acquired below the contexts of earlier parts, and perhaps nested in one of them
}

// run acquires all members. It waits for one member at a time, and holds no other member while it waits.
func (a *acquisition) run() error {
	first := -1 // index of the member to wait for; -1: none
	if !a.try {
		first = a.l.memberToAwait(-1)
	}
	var last error
	for restarts := 0; ; restarts++ {
		a.parts = make([]part, len(a.l.members))
		taken, err := a.round(first)
		if err == nil {
			return nil
		}
		a.releaseParts()
		if errors.Is(err, errTimeUp) {
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
		// At the first two restarts, wait for the member that memberToAwait chooses, so that calls wait in
		// one queue. Later, and after an outage, wait for the member that caused the restart. If this call
		// never waited for that member, it could start over again and again while another caller holds it.
		if restarts < 2 && errors.Is(taken, rlock.ErrLocked) {
			first = a.l.memberToAwait(first)
		}
		// A random pause separates calls that keep meeting each other. It is at most 4 ms at the third
		// restart, 8 ms at the fourth, and so on up to 128 ms. No member is held during the pause.
		if restarts >= 2 {
			wire.Pause(a.ctx, rand.N(time.Millisecond<<min(restarts, 7)))
		}
	}
}

// If first is not -1, round waits for l.members[first]. Then it tries all members that it does not have yet.
// If a tried member has another holder, or if its server fails, taken is the error of that member, and the
// call may start over. If only taken is nil, err is final. If both results are nil, all members are held.
func (a *acquisition) round(first int) (taken *MemberError, err error) {
	l := a.l
	if first >= 0 {
		if err := a.take(a.ctx, first, l.members[first].Lock, protocol.MinTime); err != nil {
			return nil, l.memberError(first, err)
		}
	}
	if taken, err = a.learnClocks(); err != nil {
		return taken, err
	}
	for some := range slices.Chunk(l.order[:l.numParallel], maxTogether) {
		errs := wire.Gather(a.ctx, len(some), func(ctx context.Context, n int) error {
			return a.take(ctx, some[n], l.members[some[n]].TryLock, minTryTime)
		})
		if taken, err = a.failed(some, errs); err != nil {
			return taken, err
		}
	}
	// The context gets a clone of the parts, because work in the background may use the context after a.parts
	// has changed.
	at := context.Context(&siblingContext{a.ctx, slices.Clone(a.parts)})
	for _, i := range l.order[l.numParallel:] {
		if i == first {
			continue
		}
		err := a.take(at, i, l.members[i].TryLock, minTryTime)
		if taken, err = a.failed([]int{i}, []error{err}); err != nil {
			return taken, err
		}
		a.parts[i].nested = true
		at = a.parts[i].ctx
	}
	for i, p := range a.parts { // a part may have been lost while other parts were acquired
		if err := p.hold.Err(); err != nil {
			return nil, l.memberError(i, err)
		}
	}
	return nil, nil
}

// learnClocks makes sure that the sessions of the members that are tried at the same time know the clock of
// Redis. A request carries the Redis time after which it is void. A session that does not know the clock
// sends 0, so its requests have no effect, and it sets the clock from the replies. Without learnClocks, the
// session would then send each request again alone, not in the shared pipeline. The requests of several
// callers would mix, so each caller could get some members, and no caller all of them. The results of
// learnClocks mean the same as the results of round.
func (a *acquisition) learnClocks() (taken *MemberError, err error) {
	l := a.l
	var members []int // a member for each clock that is not known
	seen := map[*wire.Clock]bool{}
	for _, i := range l.order[:l.numParallel] {
		clock := inner.Mutex(l.members[i].(*rlock.Mutex)).Session().Clock
		if clock.Now(time.Now()) == 0 && !seen[clock] {
			seen[clock] = true
			members = append(members, i)
		}
	}
	if len(members) == 0 {
		return nil, nil
	}
	ctx, cancel := a.bounded()
	defer cancel()
	errs := wire.Gather(ctx, len(members), func(ctx context.Context, n int) error {
		m, begun := inner.Mutex(l.members[members[n]].(*rlock.Mutex)), time.Now()
		err := m.LearnClock(ctx)
		switch {
		case ctx.Err() != nil:
			err = failure.OfWait(a.ctx, false, m.Kind().Noun, m.Name(), nil)
		case err != nil && time.Since(begun) >= m.Session().Lease:
			err = failure.Worded(err.Error(), err, failure.ErrGaveUp) // see isOutage
		}
		return err
	})
	return a.failed(members, errs)
}

// bounded returns a context that ends with the context of the caller, or after the time of WaitAtMost.
func (a *acquisition) bounded() (context.Context, context.CancelFunc) {
	if a.until.IsZero() {
		return a.ctx, func() {}
	}
	return context.WithDeadline(a.ctx, a.until)
}

// memberToAwait returns the index of the member to wait for. i is the index of a taken member, or -1 if no
// member is known to be taken. The candidates are the taken member, and all members of type *rlock.Mutex that
// other goroutines or other sessions are known to want. memberToAwait returns the first candidate in the
// order of tries, or -1 if there is none. So callers that want the same members usually wait in one queue. If
// two callers waited in the queues of different members, Redis could hand each of them a member that the
// other one needs.
func (l *MultiLock) memberToAwait(i int) int {
	for _, j := range l.order[:l.numParallel] {
		here, elsewhere := inner.Mutex(l.members[j].(*rlock.Mutex)).Wanted()
		if here || elsewhere || j == i {
			return j
		}
	}
	return i
}

// A siblingContext is a context below several holds that are not nested in each other.
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

// minTryTime is the shortest time limit of a try that begins before the caller's wait ends. A pipeline of
// several requests takes longer than one request, so with a shorter limit, a try could fail although all
// members are free.
const minTryTime = 2 * time.Millisecond

// take acquires the i-th member by a call of lock, unless the member is held already. The call of lock gets
// the rest of the time of WaitAtMost as its own limit, but at least minTime. If no time is left, take returns
// errTimeUp.
func (a *acquisition) take(ctx context.Context, i int, lock method, minTime time.Duration) error {
	if a.parts[i].hold != nil {
		return nil
	}
	options, kept := a.options, &keptOption{rlock.HoldAtLeast(0), a.atLeast}
	if !a.until.IsZero() {
		left := time.Until(a.until)
		if left <= 0 {
			return errTimeUp
		}
		options = append(slices.Clip(options), rlock.WaitAtMost(max(left, minTime)))
	}
	held, hold, err := lock(ctx, append(slices.Clip(options), kept)...)
	if err == nil {
		a.parts[i] = part{ctx: held, hold: hold, stays: kept.atLeast}
	}
	return err
}

// A keptOption is the last option that take passes to a member. It removes HoldAtLeast, which comes from the
// call or from the member, and keeps the time of HoldAtLeast in atLeast. Otherwise, if the call releases a
// member because another one is taken, the released member would stay taken. The method stay applies
// HoldAtLeast when all members are held.
type keptOption struct {
	rlock.Option // makes keptOption an Option; its value is not used
	atLeast      time.Duration
}

func (o *keptOption) Apply(c *engine.Config) { o.atLeast, c.AtLeast = c.AtLeast, 0 }

// stay applies HoldAtLeast to each member. It returns an error if a member cannot stay taken after its
// Unlock, for example because it is a lock that is shared with Redisson.
func (a *acquisition) stay() error {
	for i, p := range a.parts {
		err := engine.Config{AtLeast: p.stays}.Check()
		of := (*handle.Hold)(p.hold).Of()
		if never, ok := of.(interface{ NeverStays() error }); ok && p.stays > 0 {
			err = never.NeverStays()
		}
		if err != nil {
			return a.l.memberError(i, err)
		}
	}
	for _, p := range a.parts {
		if p.stays > 0 {
			(*handle.Hold)(p.hold).Stay(p.stays)
		}
	}
	return nil
}

var errTimeUp = fmt.Errorf("the wait was over before the lock was requested: %w", os.ErrDeadlineExceeded)

// failed combines the errors of members. If no member has failed, both results are nil. If waiting cannot
// mend an error, failed returns this error as err, and taken is nil. In all other cases, both results are the
// error of one member, which makes the call start over. This is the first member in the order of tries whose
// server fails. If no server fails, it is the first member that has another holder.
func (a *acquisition) failed(members []int, errs []error) (taken *MemberError, err error) {
	for n, err := range errs {
		i := members[n]
		switch {
		case err == nil, errors.Is(err, wire.ErrUnsent):
		case !errors.Is(err, rlock.ErrLocked) && !isOutage(err):
			return nil, a.l.memberError(i, err)
		case taken == nil || errors.Is(taken, rlock.ErrLocked) && !errors.Is(err, rlock.ErrLocked):
			taken = a.l.memberError(i, err)
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
					return nil, a.l.memberError(taken.Index, fmt.Errorf("members[%d] has permits of the "+
						"same semaphore: use one Locker(n) for all permits that the MultiLock takes", i))
				}
				return nil, a.l.memberError(taken.Index, fmt.Errorf("it is the same lock as members[%d], "+
					"for another session: the two exclude each other", i))
			}
		}
	}
	return taken, taken
}

// isOutage reports whether err comes from an outage. After such an error of a member, a Lock of the MultiLock
// starts over. It then waits for that member by the Lock of the member, which keeps waiting in an outage. If
// the TryLock of a member has already waited for one lease, isOutage returns false. Otherwise the Lock of
// this member would wait for a second lease. If the client gives up sooner, because its ReadTimeout is
// short, the Lock of the member waits for one lease from then on.
func isOutage(err error) bool {
	if errors.Is(err, failure.ErrGaveUp) {
		return false
	}
	if waits, known := waitsAfter(err); known {
		return waits
	}
	var reply redis.Error
	var network net.Error
	known := errors.As(err, &reply) || errors.As(err, &network) || errors.Is(err, io.EOF)
	return known && wire.Judge(err).Transient
}

// releaseWait is the longest time for which a call waits until its members are released. After that, the
// release continues in the background.
const releaseWait = 5 * time.Second

// releaseParts releases the members that a round has taken, and waits until they are released. If the
// caller's wait or releaseWait ends first, the release continues in the background. Meanwhile the next round
// can run, because each round has its own slice of parts.
func (a *acquisition) releaseParts() {
	parts := a.parts
	a.parts = nil
	if !slices.ContainsFunc(parts, func(p part) bool { return p.hold != nil }) {
		return
	}
	wait := releaseWait
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

// unlock unlocks the held parts, in the reverse order of tries. So the first member, for which other callers
// usually wait, is unlocked last. When one of these callers gets it, the other members are usually free. When
// the Unlock of a part has returned, unlock calls onEnd. Calls of onEnd can run at the same time, in several
// goroutines. If a server answers nothing, unlock soon sends the next pipeline. Otherwise the time limits of
// all pipelines would add up.
func (l *MultiLock) unlock(ctx context.Context, parts []part, onEnd func(i int, err error)) {
	var earlier sync.WaitGroup
	defer earlier.Wait()
	for last := len(l.order); last > 0; last -= maxTogether {
		pipeline := func() {
			wire.Gather(ctx, min(last, maxTogether), func(ctx context.Context, n int) error {
				i := l.order[last-1-n]
				if hold := parts[i].hold; hold != nil {
					onEnd(i, hold.Unlock(ctx))
				}
				return nil // after an error, Gather would not unlock the other parts
			})
		}
		if last <= maxTogether {
			pipeline()
			return
		}
		ended := make(chan struct{})
		earlier.Go(func() { pipeline(); close(ended) })
		select {
		case <-ended:
		case <-time.After(nextPipelineAfter):
		}
	}
}

// nextPipelineAfter is the longest time for which unlock waits for the replies to a pipeline before it sends
// the next one.
const nextPipelineAfter = 100 * time.Millisecond

// maxTogether is the largest number of requests in a pipeline, so that no pipeline keeps a server busy for
// long.
const maxTogether = 100
