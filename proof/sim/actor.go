package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/semaphore"
)

// An actor is one goroutine of a process.
type actor struct {
	*world
	p    *process
	name string
	rnd  *rand.Rand
}

// An entry is the result of a Lock: a hold, and its part in each lock.
type entry struct {
	ctx    context.Context
	cancel context.CancelFunc
	hold   *rlock.Hold
	locks  []*lock
	parts  []*held
}

// A way is a way to call Lock.
type way struct {
	try      bool          // the call is TryLock
	most     time.Duration // WaitAtMost; 0: the wait has no limit
	canceled time.Duration // time after which the context is canceled; 0: never
	lease    time.Duration // WithLease; 0: the lease is renewed
	nested   bool
	n        int64 // number of permits; 0: the lock has no permits
}

func (h way) String() string {
	s := []string{"Lock"}
	if h.try {
		s[0] = "TryLock"
	}
	for what, d := range map[string]time.Duration{
		"for at most": h.most, "canceled after": h.canceled, "lease": h.lease,
	} {
		if d != 0 {
			s = append(s, fmt.Sprint(what, " ", d))
		}
	}
	if h.nested {
		s = append(s, "nested")
	}
	if h.n != 0 {
		s = append(s, fmt.Sprint("of ", h.n))
	}
	slices.Sort(s)
	return strings.Join(s, ", ")
}

// act locks and unlocks for as long as the process lives.
func (w *world) act(p *process, name string, rnd *rand.Rand) {
	a := &actor{w, p, name, rnd}
	for {
		d := upTo(rnd, 50*time.Millisecond, time.Second, 4*time.Second)
		if w.asTeam && rnd.IntN(8) != 0 {
			d = together - time.Since(w.start)%together
		}
		if w.greedy {
			d = upTo(rnd, 20*time.Millisecond)
		}
		w.sleep(d)
		w.thawed(p)
		w.mu.Lock()
		over, well := w.ending, !w.quiet.IsZero()
		w.mu.Unlock()
		if over || p.over() {
			return
		}
		locks := a.choose()
		if w.operated && !well && rnd.IntN(20) == 0 {
			w.force(p, locks[0], rnd)
		}
		if l, ok := locks[0].rules.(*permits); ok && l.kind == 'p' && rnd.IntN(10) == 0 {
			l.setLimit(p, rnd)
		}
		switch l := locks[0].rules.(type) {
		case *latched:
			a.count(l)
		case *elected:
			a.campaign(l)
		default:
			a.work(locks)
		}
	}
}

// choose picks locks at random.
func (a *actor) choose() []*lock {
	if a.alike && a.rnd.IntN(3) > 0 { // fair locks are seldom passed on in memory
		return slices.DeleteFunc(slices.Clone(a.locks), func(l *lock) bool { return l.kind == 'f' })
	}
	n := 1 + a.rnd.IntN(a.most)
	var locks []*lock
	for _, i := range a.rnd.Perm(len(a.locks))[:n] {
		locks = append(locks, a.locks[i])
	}
	return locks
}

// locker returns a Locker for these locks, or for n permits.
func (a *actor) locker(locks []*lock, n int64) rlock.Locker {
	if l, ok := locks[0].rules.(*permits); ok {
		return l.locker(a.p.sessions[l.on[0].number], n)
	}
	if len(locks) == 1 {
		return a.p.mutex(locks[0])
	}
	var members []rlock.Locker
	for _, l := range locks {
		members = append(members, a.p.mutex(l))
	}
	return multilock.New(members...)
}

// work enters up to three times, each time nested in the entry before, and leaves in any order.
func (a *actor) work(locks []*lock) {
	var inside []*entry
	ctx := bg
	for {
		e, err := a.enter(locks, ctx, inside)
		if err != nil {
			break
		}
		defer e.cancel() // not earlier, because a nested entry may outlive e
		inside, ctx = append(inside, e), e.ctx
		if a.rnd.IntN(2) == 0 {
			ctx = context.WithoutCancel(ctx) // a nested call must still notice that the hold is lost
		}
		a.stay(e)
		if len(inside) == 3 || a.rnd.IntN(6) != 0 || a.p.crashed.Load() {
			break
		}
		locks = slices.Clone(locks)
		a.rnd.Shuffle(len(locks), func(i, j int) { locks[i], locks[j] = locks[j], locks[i] })
		locks = locks[:1+a.rnd.IntN(len(locks))]
	}
	a.rnd.Shuffle(len(inside), func(i, j int) { inside[i], inside[j] = inside[j], inside[i] })
	for len(inside) > 0 {
		e := inside[0]
		inside = inside[1:]
		a.leave(e, inside)
		if len(inside) > 0 && a.rnd.IntN(2) == 0 {
			a.stay(inside[0])
		}
	}
}

// stay works under the lock for a while.
func (a *actor) stay(e *entry) {
	d := upTo(a.rnd, 20*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond)
	if a.asTeam {
		d /= 5
	}
	if a.rnd.IntN(25) == 0 {
		d *= 10 // often longer than the time between two renewals
	}
	if a.hurried && e.parts[0].fixed && a.rnd.IntN(4) == 0 {
		d = longest // longer than the lease
	}
	t := time.NewTimer(a.clock.Until(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.ctx.Done():
	}
	a.thawed(a.p)
	if a.rnd.IntN(12) == 0 {
		a.extend(e)
	}
}

// margin returns the time by which a hold is shorter than its lease.
func margin(d time.Duration) time.Duration { return d/100 + 2*time.Millisecond }

func (a *actor) extend(e *entry) {
	d := 200*time.Millisecond + upTo(a.rnd, longest-200*time.Millisecond)
	start := time.Now()
	a.say("%s: extends %s to %v", a.name, e.hold.Name(), d)
	err := e.hold.Extend(bg, d)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: extended: %v, until %v", a.name, err, e.hold.Deadline().Sub(a.start))
	switch {
	case err == nil:
		a.counts.Add("extended")
		if until := start.Add(d - margin(d)); e.hold.Deadline().Before(until) && e.hold.Err() == nil {
			a.fail("%s: extended by %v, only until %v", a.name, d, e.hold.Deadline().Sub(a.start))
		}
	case a.well() && a.sound(e) && !a.p.over():
		a.fail("%s: Extend: %v", a.name, err)
	}
}

// sound reports whether all parts of the hold are valid and not void. The caller must hold a.mu.
func (a *actor) sound(e *entry) bool {
	for i, h := range e.parts {
		if _, ok := e.locks[i].considered[h]; !ok || h.void() || !h.valid() {
			return false
		}
	}
	return true
}

// outer returns the hold in which a new hold of l is nested. This is the part in l of the last entry that has
// such a part. outer returns nil if there is none.
func outer(inside []*entry, l *lock) *held {
	for _, e := range slices.Backward(inside) {
		if i := slices.Index(e.locks, l); i >= 0 {
			return e.parts[i]
		}
	}
	return nil
}

// enter locks in a random way, and checks the result.
func (a *actor) enter(locks []*lock, ctx context.Context, inside []*entry) (*entry, error) {
	var options []rlock.Option
	h := way{nested: len(inside) > 0}
	ways := 8
	if l, ok := locks[0].rules.(*permits); ok {
		h.n, ways = l.choose(a.rnd, h.nested)
	}
	m := a.locker(locks, h.n)
	call := m.Lock
	wait := 1 + upTo(a.rnd, 3*time.Second)
	ctx, cancel := context.WithCancel(ctx)
	switch a.rnd.IntN(ways) { // from 5 on, the wait has no limit
	case 0:
		call, h.try = m.TryLock, true
	case 1, 2:
		h.most = max(time.Millisecond, wait) // the least that WaitAtMost accepts
		options = append(options, rlock.WaitAtMost(h.most))
	case 3, 4:
		// The context is also the parent of the hold's context, so it is canceled only during the wait.
		t := time.AfterFunc(a.clock.Until(wait), cancel)
		defer t.Stop()
		h.canceled = wait
	}
	if a.rnd.IntN(5) == 0 {
		h.lease = 200*time.Millisecond + upTo(a.rnd, 3*time.Second)
		options = append(options, rlock.WithLease(h.lease))
	}
	if _, ok := locks[0].rules.(exclusive); ok && a.rnd.IntN(10) == 0 && locks[0].kind != 'j' {
		options = append(options, rlock.HoldAtLeast(max(time.Millisecond, upTo(a.rnd, 2*time.Second))))
	}
	q := &lockCall{a.p, locks, h.n, time.Now(), map[string]int{}}
	a.mu.Lock()
	a.log("%s: %s of %s", a.name, h, m.Name())
	if !h.nested && !h.try {
		a.asking[q] = struct{}{}
	} else if locks[0].initial != 0 || locks[0].kind == 'q' {
		a.trying[q] = struct{}{}
	}
	a.mu.Unlock()
	var before time.Time
	if h.nested {
		before = inside[len(inside)-1].hold.Deadline()
	}

	ctx, hold, err := call(ctx, options...)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress()
	delete(a.asking, q)
	delete(a.trying, q)
	if err != nil {
		a.log("%s: %v", a.name, err)
		a.refused(q, h, inside, err)
		a.gaveUp(q, h)
		cancel()
		return nil, err
	}
	a.counts.Add("entries")
	e := &entry{ctx: ctx, cancel: cancel, hold: hold, locks: locks}
	parts := hold.Parts()
	if parts == nil {
		parts = []*rlock.Hold{hold}
	}
	if len(parts) != len(locks) {
		a.fail("%s: %d parts of %s", a.name, len(parts), m.Name())
	}
	for i, l := range locks {
		part := a.newHeld(ctx, parts[i], l, h)
		a.log("%s: entered %s, %d", a.name, l.name, part.token)
		e.parts = append(e.parts, part)
		l.rules.entry(part, outer(inside, l))
		l.lastMoment(part)
	}
	a.kept = append(a.kept, hold)
	if o := len(inside) - 1; h.nested && inside[o].shortened(before) {
		a.fail("%s: the re-entry has shortened the lease", a.name)
	}
	return e, nil
}

// shortened reports whether the deadline of a hold is earlier than `before`, its deadline at an earlier time.
// It returns false if a server has lost the hold, because such a server grants a new lease at the next
// request. The deadline of a RedLock is the median, so it can be earlier even if all servers have the hold
// again.
func (e *entry) shortened(before time.Time) bool {
	return len(e.locks) == 1 && e.hold.Err() == nil && e.hold.Deadline().Before(before) &&
		e.locks[0].onAll(e.hold) && !e.locks[0].forgotAt.After(e.parts[0].since)
}

// refused checks the error of a call that did not get the lock. The caller must hold a.mu.
func (a *actor) refused(q *lockCall, h way, inside []*entry, err error) {
	locks := q.locks
	switch {
	case a.p.over() || a.upgrade(h, inside, err):
	case errors.Is(err, rlock.ErrClosed):
		a.fail("%s: %v, and it is not", a.name, err)
	case slices.ContainsFunc(inside, func(e *entry) bool { return e.ctx.Err() != nil }):
	case errors.Is(err, engine.ErrTooLate) && h.try: // the process was stopped
		d := cmp.Or(h.lease, lease)
		if took := time.Since(q.since); took < d-margin(d) {
			a.fail("%s: %v, and it took %v", a.name, err, took)
		}
	case errors.Is(err, rlock.ErrLost):
		// A member of a MultiLock may be lost while the others are locked.
		if (a.most == 1 || a.well()) && !slices.ContainsFunc(locks, (*lock).fellLately) {
			a.fail("%s: %v, and it was not", a.name, err)
		}
	case errors.Is(err, context.Canceled):
		a.counts.Add("not waited")
		if h.canceled == 0 {
			a.fail("%s: %s: %v", a.name, h, err)
		}
	case errors.As(err, new(*semaphore.LimitError)):
		if a.counts.Add("over the limit"); h.n == 1 { // the limit is never below 1
			a.fail("%s: %s: %v", a.name, h, err)
		}
	case errors.Is(err, rlock.ErrLocked):
		a.counts.Add("not waited")
		if !h.try && h.most == 0 {
			a.fail("%s: %s: %v", a.name, h, err)
		}
	case h.try && len(locks[0].on) > 1 && locks[0].wiped.After(q.since): // deleted during the try
		a.counts.Add("failed")
	default:
		a.counts.Add("failed")
		// A wait that is shorter than some round trips may end without a reply.
		if a.well() && (h.most == 0 || a.Kind.most == 1 && h.most > 10*a.latency+200*time.Millisecond) {
			a.fail("%s: %s: %v", a.name, h, err)
		}
	}
}

// gaveUp checks that no waiter of a process is in a queue after the last goroutine of this process has given
// up. The caller must hold a.mu.
func (a *actor) gaveUp(q *lockCall, h way) {
	if h.nested || h.try || a.Kind.most > 1 || a.p.over() || !a.well() || !q.since.After(a.quiet) {
		return
	}
	for _, under := range []map[*lockCall]struct{}{a.asking, a.trying} {
		for other := range under {
			if other.p == a.p {
				return
			}
		}
	}
	for _, l := range q.locks {
		// Only fair locks and permits are checked. If another goroutine has just entered, the session may
		// still be leaving a place in the queue, in the background.
		if l.kind != 'f' && l.initial == 0 || time.Since(l.entered[a.p]) < 200*time.Millisecond {
			continue
		}
		a.counts.Add("gave up")
		session, now := a.p.sessions[l.on[0].number].ID(), l.on[0].tick()
		for attempt, e := range l.waiting {
			// A waiter that old data have brought back is dead, and is removed when it becomes the first one.
			if strings.HasPrefix(attempt, session) && e.alive > now {
				a.fail("%s: gave up, and %s stands in the queue of %s", a.name, short(attempt), l.name)
			}
		}
	}
}

// leave unlocks e. inside has the entries that are left then.
func (a *actor) leave(e *entry, inside []*entry) {
	if a.p.crashed.Load() {
		return
	}
	ctx := bg
	if a.rnd.IntN(3) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(bg, a.clock.Until(upTo(a.rnd, 500*time.Millisecond)))
		defer cancel()
	}
	a.mu.Lock()
	valid, void := true, false
	var next []bool         // for each part, whether the lock may stay with this process
	var expires []time.Time // deadlines of the parts that are not renewed
	for i, l := range e.locks {
		part := e.parts[i]
		l.beliefs()
		_, ok := l.considered[part]
		valid = valid && ok
		void = void || part.void()
		if part.fixed {
			expires = append(expires, part.hold.Deadline())
		}
		delete(l.considered, part)
		kept := false
		for other := range l.considered {
			kept = kept || other.attempt == part.attempt && other.n >= part.n
		}
		if !kept && ok {
			l.free = time.Now()
		}
		for _, under := range []map[*lockCall]struct{}{a.asking, a.trying} {
			for q := range under {
				kept = kept || q.p == a.p && q.of(l)
			}
		}
		next = append(next, kept)
	}
	a.log("%s: unlocks %s, %d left", a.name, e.hold.Name(), len(inside))
	a.mu.Unlock()

	err := e.hold.Unlock(ctx)

	a.mu.Lock()
	defer a.mu.Unlock()
	a.log("%s: unlocked: %v", a.name, err)
	a.outlives(inside)
	void = void || slices.ContainsFunc(e.parts, (*held).void)
	// A lease may end while the request is in flight.
	expired := errors.Is(err, rlock.ErrLost) && slices.ContainsFunc(expires, time.Now().After)
	if expired && valid && a.well() {
		a.counts.Add("expired on the way")
	}
	switch {
	case a.p.over() || void || expired:
	case err == nil && !valid:
		a.fail("%s: Unlock of a lost hold: nil", a.name)
	case err != nil && valid && a.well() && ctx.Err() == nil:
		a.fail("%s: Unlock: %v", a.name, err)
	case errors.Is(err, rlock.ErrNotHeld) || errors.Is(err, rlock.ErrClosed):
		a.fail("%s: Unlock: %v", a.name, err)
	case err == nil:
		for i, l := range e.locks {
			// This is not checked if the session may keep the lock or pass it on. In a world of MultiLocks, a
			// call that gave up may still be releasing the lock.
			if l.kind == 'q' || next[i] || a.most > 1 || a.linger > 0 {
				continue
			}
			if l.rules.doubt(e.parts[i]) == "" {
				a.fail("%s: unlocked %s, and Redis still has it", a.name, l.name)
			}
		}
	}
}
