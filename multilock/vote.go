package multilock

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// desk is where the goroutines of a process take turns for one RedLock. One of them at a time competes for
// the lock at the servers, or holds it. The others receive from free, so they are served in their order.
type desk struct {
	q    *quorum
	name string
	uses int // guarded by quorum.mu

	free chan struct{} // has one element if no goroutine competes for the lock or holds it

	hold  atomic.Pointer[majority]         // the one that is held
	seen  atomic.Pointer[failure.Sighting] // of a holder in another process
	taken atomic.Bool                      // it was, as far as is known: those that wait do so for a holder
}

// desk finds or makes the desk of a name, which is kept until drop, and while it has a hold.
func (q *quorum) desk(name string) *desk {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.desks[name]
	if d == nil {
		d = &desk{q: q, name: name, free: make(chan struct{}, 1)}
		d.free <- struct{}{}
		q.desks[name] = d
	}
	d.uses++
	return d
}

// drop ends a use of it.
func (d *desk) drop() {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	d.uses--
	d.tidy()
}

// tidy forgets a desk without uses. quorum.mu held.
func (d *desk) tidy() {
	if d.uses == 0 && d.hold.Load() == nil {
		delete(d.q.desks, d.name)
	}
}

// next gives the turn to the goroutine that has waited longest. The caller has begun the release of all parts
// (majority.release), so that the next round does not meet parts that are still held.
func (d *desk) next() {
	d.q.mu.Lock()
	d.hold.Store(nil)
	d.tidy()
	d.q.mu.Unlock()
	d.free <- struct{}{}
}

// known is the holder of the lock, as far as this process knows; nil if that is not known.
func (d *desk) known(begun time.Time) *failure.LockedError {
	if m := d.hold.Load(); m != nil {
		return m.locked()
	}
	by := d.seen.Load().Locked(d.name, begun, nil)
	if by == nil && d.taken.Load() {
		return &failure.LockedError{Name: d.name}
	}
	return by
}

// vote is one call of Lock or TryLock of a RedLock. It belongs to the goroutine of that call.
type vote struct {
	l      *RedLock
	q      *quorum
	d      *desk
	ctx    context.Context // the caller's
	values context.Context // the same without its end, which does not end the parts
	cfg    engine.Config
	bounds call.Bounds
	try    bool
	begun  time.Time
	depth  int // of its hold, among those that are nested in each other

	waits    bool                 // the observer knows that it waits
	holder   *failure.LockedError // of the lock, as far as is known; without a name: there is one
	trouble  error                // too few servers answered, the last time
	roundAt  time.Time            // when its last round began
	outage   time.Time            // when the first round began that too few servers answered; zero: they do
	hopeless bool                 // for reasons that time will not mend
}

func (l *RedLock) acquire(
	ctx context.Context, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	if err := l.check(ctx); err != nil {
		return ctx, nil, err
	}
	cfg := engine.NewConfig(l.cfg, options)
	fail := func(err error) (context.Context, *rlock.Hold, error) {
		return ctx, nil, failure.Named(l.name, err)
	}
	if err := cfg.Check(); err != nil {
		return fail(err)
	}
	if ctx.Err() != nil {
		return fail(failure.OfContext(ctx))
	}
	q := l.q
	if !q.home.Begin() {
		return fail(failure.ErrClosed)
	}
	defer q.home.End()
	until, stop := cfg.Until(ctx)
	defer stop()
	v := &vote{l: l, q: q, d: q.desk(l.name), ctx: ctx, values: ctx, cfg: cfg, try: cfg.Once(try),
		begun: time.Now(), depth: 1, bounds: call.Bounds{Until: until, Closing: q.closing}}
	v.cfg.Bounded = false // of the parts: until bounds them
	defer v.d.drop()
	if ctx.Done() != nil {
		v.values = context.WithoutCancel(ctx)
	}
	e, err := v.run()
	if err != nil {
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) { // while servers were asked
			err = v.whyOver()
		}
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(v.begun), Err: err})
		return ctx, nil, err
	}
	l.observe(ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(v.begun), Depth: v.depth,
		Token: e.Token()})
	if cfg.AtLeast > 0 {
		e.Stay(cfg.AtLeast)
	}
	held, hd := handle.New(ctx, e)
	return held, (*rlock.Hold)(hd), nil
}

// run nests in the hold that the context descends from, or competes with others for the lock.
func (v *vote) run() (*entry, error) {
	for {
		d := &descent{q: v.q, name: v.l.name}
		outer, _ := v.ctx.Value(d).(*entry)
		switch {
		case outer == nil && d.lost:
			return nil, failure.Named(v.l.name, failure.ErrLost)
		case outer == nil:
			return v.wait()
		}
		if e, err := v.nest(outer); e != nil || err != nil {
			return e, err
		}
	}
}

// wait has its turn at the desk, which it leaves if it fails.
func (v *vote) wait() (e *entry, err error) {
	d, turn := v.d, false
	defer func() {
		if e == nil && turn {
			d.free <- struct{}{}
		}
	}()
	select {
	case <-d.free:
		turn = true
		return v.compete()
	default:
		if v.try {
			v.holder = cmp.Or(d.known(v.begun), &failure.LockedError{Name: d.name})
			return nil, failure.Public(v.holder)
		}
	}
	v.announce()
	late := time.NewTicker(engine.LongWait)
	defer late.Stop()
	for {
		select {
		case <-d.free:
			turn = true
			if d.taken.Load() {
				v.holder = &failure.LockedError{Name: d.name}
			}
			if !v.bounds.Over() {
				return v.compete()
			}
		case <-late.C:
			if m := d.hold.Load(); m != nil {
				m.suspect()
			}
			continue
		case <-v.bounds.Until.Done():
		case <-v.bounds.Closing:
		}
		v.holder = d.known(v.begun)
		return nil, v.whyOver()
	}
}

func (v *vote) announce() {
	if !v.waits {
		v.waits = true
		v.l.observe(v.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// compete votes once, unless others are known to wait. If it is refused, it stands in line, and at the head
// of that it waits for the servers' locks: they are handed to it when they get free.
func (v *vote) compete() (*entry, error) {
	// Other processes are known to wait for the lock of a server that works: a vote would only hold them up.
	wanted := !v.try && slices.ContainsFunc(v.q.all, func(i int) bool {
		_, elsewhere := v.l.parts[i].Wanted()
		return elsewhere && v.q.servers[i].trouble() == nil
	})
	if wanted {
		v.taken(true)
	} else if e, err := v.round(true); e != nil || v.try || !v.again(err) {
		return e, err
	}
	v.announce()
	turn := v.joinLine()
	defer v.giveBack(turn)
	for round := 0; ; round++ {
		if v.bounds.Over() {
			return nil, v.whyOver()
		}
		if e, err := v.round(false); e != nil || !v.again(err) {
			return e, err
		}
		// This keeps those apart that have each taken what the others need.
		_, _ = v.bounds.Sleep(time.Millisecond+rand.N(v.q.timeout<<min(round, 4)), nil)
	}
}

// taken notes whether others have the lock, for the error of this call and of those that wait behind it.
func (v *vote) taken(taken bool) {
	v.d.taken.Store(taken)
	if taken && v.holder == nil {
		v.holder = &failure.LockedError{Name: v.l.name}
	} else if !taken && v.holder != nil && v.holder.Holder == "" {
		v.holder = nil
	}
}

// again reports whether an error of a round lets the wait go on.
func (v *vote) again(err error) bool {
	switch {
	case v.bounds.Over():
		return false
	case errors.Is(err, rlock.ErrLocked), errors.Is(err, errToken), errors.Is(err, engine.ErrTooLate):
		v.outage = time.Time{}
		return true
	}
	if v.outage.IsZero() {
		v.outage = v.roundAt
	}
	if v.q.works() { // by now
		v.outage = time.Now()
	}
	return !v.hopeless && v.bounds.Endures(v.outage, v.begun, v.q.lead.Lease)
}

// whyOver is the error of a wait that is over.
func (v *vote) whyOver() error {
	err := failure.OfWait(v.ctx, wire.Closed(v.bounds.Closing), "", v.l.name, v.holder)
	if v.holder == nil && v.trouble != nil {
		text := v.trouble.Error() // of several servers: one that refuses does not say that all do
		err = failure.Troubled(err, errors.New(text))
	}
	return err
}

// joinLine waits in the line of the first server that answers, in the order in which the sessions were given.
// The name of the lock decides with which server it begins. joinLine returns the entry of the line's lock
// when the turn has come. It returns nil if the wait has ended, or if no server has a line.
func (v *vote) joinLine() *engine.Entry {
	q := v.q
	h := fnv.New32a()
	_, _ = h.Write([]byte(v.l.name))
	first := int(h.Sum32() % uint32(len(q.servers)))
	for i := range q.servers {
		s := q.servers[(first+i)%len(q.servers)]
		if s.trouble() != nil || v.bounds.Over() {
			continue
		}
		if turn := v.joinLineAt(s); turn != nil {
			return turn
		}
	}
	return nil
}

// joinLineAt waits in the line of one server. It returns nil if there is no line, or if the wait has ended.
func (v *vote) joinLineAt(s *server) *engine.Entry {
	q := v.q
	while, skip := context.WithCancel(v.bounds.Until)
	defer skip()
	m := engine.New(s.line, turnKind, v.l.name, engine.Config{})
	come := ask(q, []int{0}, func(int) (*engine.Entry, error) {
		part := &engine.Part{While: while, Lost: func() {}}
		return m.Admitted(v.values, engine.Exclusive, engine.Config{Impatient: true, Part: part}, false)
	})
	look := time.NewTicker(turnLease / 4)
	defer look.Stop()
	// The answer first: if it is an error, the server has trouble from then on.
	for good := true; good; good = s.trouble() == nil && !v.bounds.Over() {
		select {
		case a := <-come:
			if a.err != nil && !v.bounds.Over() && !errors.Is(a.err, failure.ErrClosed) &&
				!wire.Judge(a.err).Transient {
				q.warn(s, "waiters of a RedLock cannot stand in line at a server", v.l.name, a.err)
			}
			return a.value
		case <-look.C:
		case <-v.bounds.Until.Done():
		}
	}
	q.home.Go(func() { v.giveBack((<-come).value) })
	return nil
}
