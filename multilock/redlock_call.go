package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
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

// A localQueue is the queue of the goroutines of this process that want one RedLock. One goroutine at a time
// has the turn. This goroutine competes for the lock at the servers, or holds the lock. The other goroutines
// wait to receive from the channel turn, which serves them in the order in which they came.
type localQueue struct {
	q    *quorum
	name string // name of the RedLock
	uses int    // number of calls that use the queue; guarded by quorum.mu

	turn chan struct{} // has one element while no goroutine has the turn

	held atomic.Pointer[majority]         // nil if this process does not hold the lock
	seen atomic.Pointer[failure.Sighting] // the last known holder; nil if the lock is not known to be taken

	// outage is the outage that the goroutine with the turn has found in its last round; nil means none. In
	// the pause between two rounds, outage is not brought up to date. It is nil while this goroutine waits in
	// a line or holds the lock. The goroutine may then send no requests to most servers, so nobody would
	// notice that an outage has ended.
	outage atomic.Pointer[outage]
}

// unknownHolder is a Sighting of a holder of whom nothing is known.
var unknownHolder = new(failure.Sighting)

// localQueue returns the queue for the RedLock with this name, and makes one if there is none. The caller
// must call drop when it does not use the queue any more.
func (q *quorum) localQueue(name string) *localQueue {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.local[name]
	if l == nil {
		l = &localQueue{q: q, name: name, turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		q.local[name] = l
	}
	l.uses++
	return l
}

// drop ends the use of the queue by one call.
func (l *localQueue) drop() {
	l.q.mu.Lock()
	defer l.q.mu.Unlock()
	l.uses--
	l.forget()
}

// forget removes the queue from its quorum if no call uses the queue, and the process does not hold the lock.
// The caller must hold quorum.mu.
func (l *localQueue) forget() {
	if l.uses == 0 && l.held.Load() == nil {
		delete(l.q.local, l.name)
	}
}

// passTurn is called when a hold has ended. It gives the turn to the goroutine that has waited longest, if
// there is one. The parts of the ended hold may not be released yet. So if the next round is a try, this
// round first waits for their release, for a short time (see engine.Kind.Alone).
func (l *localQueue) passTurn() {
	l.q.mu.Lock()
	l.held.Store(nil)
	l.forget()
	l.q.mu.Unlock()
	l.turn <- struct{}{}
}

// A lockCall is one call of RedLock.Lock or TryLock. Only the goroutine of that call changes it.
type lockCall struct {
	l         *RedLock
	q         *quorum
	local     *localQueue
	callerCtx context.Context
	values    context.Context // has the values of callerCtx, and never ends, because parts outlive the call
	cfg       engine.Config
	bounds    call.Bounds
	once      bool      // the call makes only one round, and does not wait for other holders
	begun     time.Time // when the call began
	depth     int       // hold count after the call: 1, or more if the hold is nested

	// holder is nil if the lock is not known to be taken. If the holder is unknown, holder.Holder is "".
	holder       *failure.LockedError
	waitReported bool  // the observer got EventWaiting
	trouble      error // error of a round without enough answers; nil if the last round had enough
	hopeless     bool  // too many servers have permanent errors, so there can be no majority
}

func (l *RedLock) acquire(
	ctx context.Context, options []rlock.Option, try bool,
) (context.Context, *rlock.Hold, error) {
	if err := l.check(ctx); err != nil {
		return ctx, nil, err
	}
	cfg := engine.NewConfig(l.cfg, options)
	if err := cfg.Check(); err != nil {
		return ctx, nil, failure.Named(l.name, err)
	}
	begun := time.Now()
	fail := func(err error) (context.Context, *rlock.Hold, error) {
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(begun), Err: err})
		return ctx, nil, err
	}
	if ctx.Err() != nil {
		return fail(failure.Named(l.name, failure.OfContext(ctx)))
	}
	q := l.q
	if !q.home.Begin() {
		return fail(failure.Named(l.name, failure.ErrClosed))
	}
	defer q.home.End()
	until, stop := cfg.Until(ctx)
	defer stop()
	c := &lockCall{l: l, q: q, local: q.localQueue(l.name), callerCtx: ctx, values: ctx, cfg: cfg,
		once: cfg.Once(try), begun: begun, depth: 1,
		bounds: call.Bounds{Until: until, Closing: q.closing}}
	c.cfg.Bounded = false // the waits of parts are bounded by the round
	defer c.local.drop()
	if ctx.Done() != nil {
		c.values = context.WithoutCancel(ctx)
	}
	e, err := c.run()
	if err != nil {
		if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) { // err hides that ctx ended
			err = c.waitError()
		}
		return fail(err)
	}
	l.observe(ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(c.begun), Depth: c.depth,
		Token: e.Token()})
	if c.depth == 1 {
		close(e.m.announced)
	}
	if cfg.AtLeast > 0 {
		e.Stay(cfg.AtLeast)
	}
	held, hd := handle.New(ctx, e)
	return held, (*rlock.Hold)(hd), nil
}

// run nests in the hold from which the caller's context descends. If that hold was lost, run returns ErrLost.
// If there is no such hold, run competes for the lock.
func (c *lockCall) run() (*entry, error) {
	for {
		d := &descent{q: c.q, name: c.l.name}
		outer, _ := c.callerCtx.Value(d).(*entry)
		switch {
		case outer == nil && d.lost:
			return nil, failure.Named(c.l.name, failure.ErrLost)
		case outer == nil:
			return c.waitForTurn()
		}
		if e, err := c.nest(outer); e != nil || err != nil {
			return e, err
		}
	}
}

// waitForTurn waits for the turn among the goroutines of this process, and then competes for the lock. If the
// call does not get the lock, waitForTurn passes the turn on to the next goroutine. If the call may not wait
// for other holders, and another goroutine has the turn, waitForTurn returns an error at once.
func (c *lockCall) waitForTurn() (e *entry, err error) {
	local := c.local
	select {
	case <-local.turn:
	default:
		if c.once {
			c.holder = cmp.Or(local.holder(c.begun), &failure.LockedError{Name: local.name})
			return nil, failure.Public(c.holder)
		}
		if err := c.awaitTurn(); err != nil {
			return nil, err
		}
	}
	defer func() {
		if e == nil {
			local.turn <- struct{}{}
		}
	}()
	return c.compete()
}

// awaitTurn waits for the turn. It returns nil if the turn came, and an error if the wait has ended or the
// call does not endure an outage.
func (c *lockCall) awaitTurn() error {
	c.reportWaiting()
	gaveUp, done := make(chan error, 1), make(chan struct{})
	defer close(done)
	c.q.home.Go(func() { c.checkWait(gaveUp, done) })
	// A goroutine keeps its place in local.turn only while it waits in one select. So another goroutine
	// makes the checks of a long wait.
	select {
	case <-c.local.turn:
		if !c.bounds.Over() {
			if c.local.seen.Load() != nil {
				c.holder = &failure.LockedError{Name: c.l.name}
			}
			return nil
		}
		c.local.turn <- struct{}{}
	case err := <-gaveUp:
		return err
	case <-c.bounds.Until.Done():
	case <-c.bounds.Closing:
	}
	c.holder = c.local.holder(c.begun)
	return c.waitError()
}

// checkWait makes the checks of a long wait for the turn, until done is closed. If the call does not endure
// an outage, checkWait sends the error of the call to gaveUp, and returns.
func (c *lockCall) checkWait(gaveUp chan<- error, done <-chan struct{}) {
	longWait := time.NewTicker(engine.LongWait)
	defer longWait.Stop()
	outageCheck := c.newOutageCheck()
	defer outageCheck.Stop()
	for {
		select {
		case <-longWait.C:
			if m := c.local.held.Load(); m != nil {
				m.warnSelfWait()
			}
		case <-outageCheck.C:
			if err := c.endures(c.local.outage.Load()); err != nil {
				gaveUp <- err
				return
			}
		case <-done:
			return
		}
	}
}

func (c *lockCall) reportWaiting() {
	if !c.waitReported {
		c.waitReported = true
		c.l.observe(c.callerCtx, session.Event{Kind: session.EventWaiting})
	}
}

// compete tries to get a majority. The caller must have the turn among the goroutines of this process.
//
// A TryLock makes one round, in which it tries all servers at once. A Lock begins with the same round. But if
// other processes are known to wait, the Lock leaves this round out, because the round would only delay them.
// If the round was left out, or if it has failed and another round may succeed (finalError), the Lock joins
// the line, which is a fair lock on one of the servers. When the Lock is at the head of the line, or could
// join no line, it makes further rounds, in which it waits in the queues of all servers. The rounds end with
// a majority, with the end of the wait, or with an error that is final.
func (c *lockCall) compete() (*entry, error) {
	wanted := false
	for i, s := range c.q.servers {
		_, elsewhere := c.l.parts[i].Wanted()
		wanted = wanted || elsewhere && !c.once && s.trouble() == nil
	}
	if wanted {
		c.setTaken(true)
	} else if e, err := c.round(true); e != nil || c.once {
		return e, err
	} else if err = c.finalError(err); err != nil {
		return nil, err
	}
	c.reportWaiting()
	place := c.joinLine()
	defer c.q.unlockInBackground(place)
	for round := 0; ; round++ {
		if c.bounds.Over() {
			return nil, c.waitError()
		}
		e, err := c.round(false)
		if e != nil {
			return e, nil
		}
		if err = c.finalError(err); err != nil {
			return nil, err
		}
		// A random pause separates callers if each of them has taken a server that another caller needs.
		_, _ = c.bounds.Sleep(time.Millisecond+rand.N(c.q.timeout<<min(round, 4)), nil)
	}
}

// setTaken records whether the lock is taken. The error of this call depends on that, and so do the errors of
// calls that wait in the local queue.
func (c *lockCall) setTaken(taken bool) {
	if !taken {
		c.local.seen.Store(nil)
		if c.holder != nil && c.holder.Holder == "" {
			c.holder = nil
		}
		return
	}
	c.local.seen.CompareAndSwap(nil, unknownHolder)
	c.holder = cmp.Or(c.holder, &failure.LockedError{Name: c.l.name})
}

// finalError returns nil if the call makes another round after a round with this error. Otherwise it returns
// the error of the call.
func (c *lockCall) finalError(err error) error {
	switch {
	case c.bounds.Over():
		return err
	case errors.Is(err, rlock.ErrLocked), errors.Is(err, errToken), errors.Is(err, engine.ErrTooLate):
		c.local.outage.Store(nil)
		return nil
	}
	tooLong := c.checkOutage()
	if c.hopeless {
		return err
	}
	return tooLong
}

// checkOutage stores the present outage for the calls in the local queue, and returns the result of endures.
// Only a call that has the turn and makes rounds may use checkOutage.
func (c *lockCall) checkOutage() error {
	o := c.q.outage()
	c.local.outage.Store(o)
	return c.endures(o)
}

// endures returns nil if the call keeps waiting in this outage (call.Bounds.ToleratesOutage), and otherwise
// the error of the call. If o is nil, there is no outage.
func (c *lockCall) endures(o *outage) error {
	if o == nil || c.bounds.ToleratesOutage(o.since, c.begun, c.q.lead.Lease) {
		return nil
	}
	waited := min(time.Since(o.since), time.Since(c.begun)).Round(100 * time.Millisecond)
	return failure.Named(c.l.name, fmt.Errorf("gave up after %v: %w", waited, o.err))
}

// hasLasted reports whether this outage has lasted for one lease since the call began. If o is nil, there is
// no outage.
func (c *lockCall) hasLasted(o *outage) bool {
	return o != nil && call.OutageIsTooLong(o.since, c.begun, c.q.lead.Lease)
}

// newOutageCheck returns a ticker that fires whenever a waiting call must check whether it endures an outage.
func (c *lockCall) newOutageCheck() *time.Ticker { return time.NewTicker(c.q.lead.Lease / 15) }

// joinLine waits in the line of a server until the call is at the head of this line. It tries the servers in
// the order in which the sessions were given, beginning with the server that the name of the lock determines.
// It skips servers that are known to fail. If a server fails or refuses while the call waits in its line, the
// call joins the line of the next server. joinLine returns the entry of the line's lock, which the caller
// must unlock. It returns nil if the wait has ended, if no server is left, or if an outage has lasted for one
// lease (hasLasted). In the last case, the next round shows whether the outage still lasts. A call with a
// deadline also makes this round, because calls behind it in the local queue may have no deadline.
func (c *lockCall) joinLine() *engine.Entry {
	servers := c.q.servers
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.l.name))
	first := int(h.Sum32() % uint32(len(servers)))
	for i := range servers {
		s := servers[(first+i)%len(servers)]
		if s.trouble() != nil || c.bounds.Over() {
			continue
		}
		if place := c.joinLineAt(s); place != nil {
			return place
		}
	}
	return nil
}

// joinLineAt waits in the line of one server, and returns the entry of the line's lock. It returns nil if the
// server cannot be reached, if the server refuses, if the wait has ended, or if an outage has lasted for one
// lease.
func (c *lockCall) joinLineAt(s *server) *engine.Entry {
	ctx, leave := context.WithCancel(c.bounds.Until)
	defer leave()
	c.local.outage.Store(nil)
	line := engine.New(s.line, lineKind, c.l.name, engine.Config{})
	head := startPoll(c.q, newTally(1, pending), func(int) (*engine.Entry, error) {
		return line.AcquireEntry(ctx, engine.Exclusive, engine.Config{}, false)
	})
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	// Do not check for trouble before the first tick, because joinLine has just checked. If the request for
	// the line fails at once, an earlier check could take the error of this request for a trouble of the
	// server, and end the loop before the error is logged.
	for reachable := true; reachable && !c.bounds.Over(); {
		select {
		case a := <-head.answers:
			if a.err != nil && !c.bounds.Over() && !errors.Is(a.err, failure.ErrClosed) &&
				!wire.Judge(a.err).Transient {
				c.q.warn(s, "waiters of a RedLock cannot queue on a server", c.l.name, a.err)
			}
			return a.value
		case <-ticker.C:
			reachable = s.trouble() == nil && !c.hasLasted(c.q.outage())
		case <-c.bounds.Until.Done():
		}
	}
	c.q.home.Go(func() { c.q.unlockInBackground((<-head.answers).value) })
	return nil
}

// checkInterval is the time between two checks that the server of the line, and a majority, still answer.
const checkInterval = 100 * time.Millisecond
