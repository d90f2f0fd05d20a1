package multilock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// vote is one call of Lock or TryLock of a RedLock. It belongs to the goroutine of that call. It is also the
// key by which that finds, in its context, the hold that it nests in.
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
	turn   bool // at the desk
	depth  int  // of its hold, among those that are nested in each other

	lost     bool                 // ctx descends from a hold that was lost
	refused  bool                 // others have, or had, the lock
	waits    bool                 // the observer knows that it waits
	handed   bool                 // in memory, by another goroutine
	holder   *failure.LockedError // who has the lock, as far as is known
	trouble  error                // too few servers answered, the last time
	outage   time.Time            // since when; zero: they do
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
	defer v.d.drop()
	if ctx.Done() != nil {
		v.values = context.WithoutCancel(ctx)
	}
	e, err := v.run()
	if err != nil {
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) { // while servers were asked
			err = v.whyOver(err)
		}
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(v.begun), Err: err})
		return ctx, nil, err
	}
	l.observe(ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(v.begun), Depth: v.depth,
		Token: e.Token(), HandedOver: v.handed})
	if cfg.AtLeast > 0 {
		e.Stay(cfg.AtLeast)
	}
	held, hd := handle.New(ctx, e, !e.fixed)
	return held, (*rlock.Hold)(hd), nil
}

// run nests in the hold that the context descends from, or competes with others for the lock.
func (v *vote) run() (*entry, error) {
	for {
		v.lost = false
		outer, _ := v.ctx.Value(v).(*entry)
		switch {
		case outer != nil:
			if e, err := v.nest(outer); e != nil || err != nil {
				return e, err
			}
		case v.lost:
			return nil, failure.Named(v.l.name, failure.ErrLost)
		default:
			return v.wait()
		}
	}
}

// wait has its turn at the desk, which it leaves if it fails.
func (v *vote) wait() (e *entry, err error) {
	d := v.d
	defer func() {
		if e == nil && v.turn {
			d.free <- struct{}{}
		}
	}()
	select {
	case <-d.free:
		v.turn = true
		return v.compete()
	default:
		if v.try {
			return nil, failure.Public(cmp.Or(d.known(v.begun), &failure.LockedError{Name: d.name}))
		}
	}
	v.announce()
	late := time.NewTicker(engine.LongWait)
	defer late.Stop()
	for {
		select {
		case from := <-d.pass:
			v.turn, v.refused = true, true
			return v.goOn(from)
		case <-d.free:
			v.turn, v.refused = true, d.taken.Load()
			if !v.bounds.Over() {
				return v.compete()
			}
		case <-late.C:
			d.suspect()
			continue
		case <-v.bounds.Until.Done():
		case <-v.bounds.Closing:
		}
		break
	}
	v.holder, v.refused = d.known(v.begun), d.taken.Load()
	return nil, v.whyOver(nil)
}

func (v *vote) announce() {
	if !v.waits {
		v.waits = true
		v.l.observe(v.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// admitted takes the lock of one server, for a round.
func (v *vote) admitted(m *majority, i int, try bool, while context.Context) (*engine.Entry, error) {
	cfg := v.cfg
	cfg.Bounded = false
	cfg.Part = m.part(i, while)
	return v.l.parts[i].Admitted(v.values, engine.Exclusive, cfg, try)
}

// part makes what one server grants part of it.
func (m *majority) part(i int, while context.Context) *engine.Part {
	return &engine.Part{While: while, Lost: func() { m.lost(i) }}
}

// compete votes once, unless others are known to wait. If it is refused, it stands in line, and at the head
// of that it waits for the servers' locks: they are handed to it when they get free.
func (v *vote) compete() (*entry, error) {
	if !v.try && v.l.wanted() { // a vote would only hold them up
		v.taken(true)
	} else if e, err := v.round(true); e != nil || v.try || !v.again(err) {
		return e, err
	}
	v.announce()
	leave := v.stand()
	defer leave()
	for round := 0; ; round++ {
		if v.bounds.Over() {
			return nil, v.whyOver(nil)
		}
		if e, err := v.round(false); e != nil || !v.again(err) {
			return e, err
		}
		// This keeps those apart that have each taken what the others need.
		_, _ = v.bounds.Sleep(time.Millisecond+rand.N(v.q.timeout<<min(round, 4)), nil)
	}
}

// wanted reports whether other processes are known to wait for the lock of a server that works.
func (l *RedLock) wanted() bool {
	return slices.ContainsFunc(l.q.all, func(i int) bool {
		_, elsewhere := l.parts[i].Wanted()
		return elsewhere && !l.q.servers[i].failing()
	})
}

// taken notes whether others have the lock, for the error of this call and of those that wait behind it.
func (v *vote) taken(taken bool) {
	v.refused = taken
	v.d.taken.Store(taken)
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
		v.outage = time.Now()
	}
	if v.q.working() >= v.q.need { // by now
		v.outage = time.Now()
	}
	return !v.hopeless && !v.cfg.Impatient && v.bounds.Endures(v.outage, v.begun, v.q.lead.Lease)
}

// whyOver is the error of a wait that is over, or of one server alone.
func (v *vote) whyOver(err error) error {
	if err != nil && !v.bounds.Over() {
		return err
	}
	var locked *rlock.LockedError
	if errors.As(err, &locked) {
		v.holder = inUse(locked)
	}
	if v.holder == nil && v.refused {
		v.holder = &failure.LockedError{Name: v.l.name}
	}
	err = failure.OfWait(v.ctx, call.Closed(v.bounds.Closing), "", v.l.name, v.holder)
	if v.holder == nil && v.trouble != nil {
		text := v.trouble.Error() // of several servers: one that refuses does not say that all do
		err = failure.Troubled(err, errors.New(text))
	}
	return err
}
