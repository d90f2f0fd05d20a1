package multilock

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/rlock"
)

// vote is one call of Lock or TryLock of a RedLock. It belongs to the goroutine of that call. It is also the
// key by which that finds, in its context, the hold that it nests in.
type vote struct {
	l      *RedLock
	q      *quorum
	d      *desk
	outer  *majority       // in which it nests
	ctx    context.Context // the caller's
	values context.Context // the same without its end, which does not end the parts
	cfg    engine.Config
	bounds wakeup.Bounds
	try    bool
	begun  time.Time

	refused  bool                 // others have, or had, the lock
	lost     bool                 // ctx descends from a hold that was lost
	waits    bool                 // the observer knows that it waits
	handed   bool                 // in memory, by another goroutine
	holder   *failure.LockedError // who has the lock, as far as is known
	trouble  error                // too few servers answered, the last time
	outage   time.Time            // since when; zero: they do
	hopeless bool                 // for reasons that time will not mend
}

func (l *RedLock) acquire(ctx context.Context, options []rlock.Option, try bool) (context.Context, *rlock.Hold, error) {
	if err := l.check(ctx); err != nil {
		return ctx, nil, err
	}
	cfg := engine.NewConfig(l.cfg, options)
	fail := func(err error) (context.Context, *rlock.Hold, error) { return ctx, nil, failure.Named(l.name, err) }
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
		begun: time.Now(), bounds: wakeup.Bounds{Until: until, Closing: q.home.Closing()}}
	defer v.d.drop()
	if ctx.Done() != nil {
		v.values = context.WithoutCancel(ctx)
	}
	m, err := v.run()
	if err != nil {
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(v.begun), Err: err})
		return ctx, nil, err
	}
	l.observe(ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(v.begun), Depth: int(m.root.holds.Load()),
		Token: m.token, HandedOver: v.handed})
	if cfg.AtLeast > 0 {
		m.Stay(cfg.AtLeast)
	}
	return m.handle(ctx)
}

// ownRelease is for how long one that tries waits for a release of its own process.
const ownRelease = 250 * time.Millisecond

// run nests in the hold that the context descends from, or has its turn at the desk.
func (v *vote) run() (*majority, error) {
	d := v.d
	for {
		v.lost = false
		outer, _ := v.ctx.Value(v).(*majority)
		d.mu.Lock()
		lost := v.lost
		switch {
		case outer != nil:
			in, err := v.enterIn(outer)
			switch {
			case err != nil:
				return nil, err
			case in:
				return v.nest(outer)
			}
			continue
		case lost:
			d.mu.Unlock()
			return nil, failure.Named(v.l.name, failure.ErrLost)
		case !d.busy:
			d.busy = true
			d.mu.Unlock()
			return v.compete()
		case v.try:
			over, holder := d.unlock.Over(), d.known(v.begun)
			d.mu.Unlock()
			if over != nil {
				switch heard, ended := v.bounds.Sleep(ownRelease, over); {
				case ended:
					return nil, v.whyOver(nil)
				case heard:
					continue
				}
			}
			return nil, failure.Public(cmp.Or(holder, &failure.LockedError{Name: v.l.name}))
		}
		s := &seat{vote: v, turn: make(chan *grant, 1)}
		d.waiting = append(d.waiting, s)
		d.mu.Unlock()
		v.announce()
		g, err := v.sit(s)
		switch {
		case err != nil:
			return nil, err
		case g != nil:
			if m := v.hold(g, nil); m != nil {
				v.handed = true
				return m, nil
			} // else it was lost meanwhile, and the turn is ours
		}
		return v.compete()
	}
}

func (v *vote) announce() {
	if !v.waits {
		v.waits = true
		v.l.observe(v.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// sit waits at the desk.
func (v *vote) sit(s *seat) (*grant, error) {
	g, ok := wakeup.Await(&v.bounds, s.turn)
	if ok && !v.bounds.Over() {
		return g, nil
	}
	d := v.d
	d.mu.Lock()
	v.holder = d.known(v.begun)
	v.refused = d.refused
	d.mu.Unlock()
	if !ok {
		if d.quit(s) {
			return nil, v.whyOver(nil)
		}
		g = <-s.turn
	}
	v.refused = true
	switch m := (*majority)(nil); {
	case g == lookAgain:
	case g != nil:
		if m = v.hold(g, nil); m != nil {
			m.quiet = true
			v.q.home.Go(func() { _ = m.Unlock(context.Background()) })
			break
		}
		fallthrough
	default:
		d.next()
	}
	return nil, v.whyOver(nil)
}

// admitted takes the lock of one server.
func (v *vote) admitted(i int, try bool, while context.Context, cell *atomic.Pointer[grant]) (*engine.Entry, error) {
	cfg := v.cfg
	cfg.Bounded = false
	cfg.Part = &engine.Part{While: while, Lost: func() {
		if g := cell.Load(); g != nil {
			g.lost(i)
		}
	}}
	return v.l.parts[i].Admitted(v.values, engine.Exclusive, cfg, try)
}

// begin makes a grant of the parts of a round. From then on it learns of their ends, so it is complete by
// then.
func (v *vote) begin(c *count, token int64, stop func()) *grant {
	g := &grant{l: v.l, q: v.q, ctx: v.values, fixed: v.cfg.Lease != 0, begun: time.Now(), token: token,
		parts: slices.Clone(c.parts)}
	if c.outer != nil {
		g.outer = c.outer.g
	}
	seek, end := context.WithCancel(context.Background())
	g.seek, g.stop = seek, func() { stop(); end() }
	c.cell.Store(g)
	return g
}

// compete votes once. If it is refused, it stands in line, and at the head of that it waits for the servers'
// locks: they are handed to it when they get free. It has the turn at the desk, and leaves it if it fails.
func (v *vote) compete() (m *majority, err error) {
	d := v.d
	defer func() {
		if m == nil {
			if ended := v.ctx.Err(); ended != nil && !errors.Is(err, ended) { // while servers were asked
				err = v.whyOver(err)
			}
			d.next()
		}
	}()
	d.mu.Lock()
	wanted := time.Now().Before(d.wanted)
	d.mu.Unlock()
	if v.refused = wanted; v.try || !wanted {
		m, err = v.round(true, nil)
		if m != nil || v.try || !v.again(err) {
			return m, err
		}
	}
	v.announce()
	d.mu.Lock()
	d.refused = true
	d.mu.Unlock()
	leave := v.stand()
	defer leave()
	for round := 0; ; round++ {
		if v.bounds.Over() {
			return nil, v.whyOver(nil)
		}
		if m, err = v.round(false, nil); m != nil || !v.again(err) {
			return m, err
		}
		v.pause(round)
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
		v.outage = time.Now()
	}
	if v.q.working() >= v.q.need { // by now
		v.outage = time.Now()
	}
	return !v.hopeless && !v.cfg.Impatient && v.bounds.Endures(v.outage, v.begun, v.q.lead.Lease)
}

// pause keeps those apart that have each taken what the others need.
func (v *vote) pause(round int) {
	_, _ = v.bounds.Sleep(time.Millisecond+rand.N(v.q.timeout<<min(round, 4)), nil)
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
	err = failure.OfWait(v.ctx, wakeup.Closed(v.bounds.Closing), v.l.name, v.holder)
	if v.holder == nil {
		err = failure.Troubled(err, v.trouble)
	}
	return err
}
