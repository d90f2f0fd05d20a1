package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
)

// Entry is what one goroutine has of a grant. It must not refer to its Hold, which its user may forget.
type Entry struct {
	// What follows never changes once it is a hold.
	ctx    context.Context // ends with the hold; what the user has descends from it
	cancel context.CancelCauseFunc
	g      *Grant
	token  int64
	write  bool          // it excludes others
	began  time.Duration // age of the session
	nested bool
	part   *Part
	given  context.Context // to the outermost acquisition

	// pool.mu guards the following.
	state    handle.State
	fixed    bool // a lease of its own choice, not renewed
	unlocked bool
	last     bool                // its Unlock has ended the last hold of its chain
	root     *Entry              // outermost hold of its chain; itself, if it nests in none
	chain    chain               // of the holds below root; used in the root alone
	outer    *Entry              // the live one that it is nested in; nil: none
	inner    map[*Entry]struct{} // live ones that are nested in it
	changed  chan struct{}       // closed when another one may nest in it; nil: no goroutine waits for that
}

// chain is an outermost hold and all that nests in it, as observers see them: one Acquired, and one Released
// or Lost when the last of these holds has ended.
type chain struct {
	holds     int32          // live ones
	announced bool           // the observer knows that the root was acquired
	lost      *session.Event // the end of the chain, if that came before the announcement; nil: it did not
}

// newEntry is one of the acquisition's goroutine, which is not a hold yet.
func (a *acquisition) newEntry(g *Grant) *Entry {
	e := new(Entry)
	if g.one.g == nil && a.want.exclusive() { // such a grant has one goroutine at a time
		e = &g.one
	}
	*e = Entry{
		g: g, write: a.want.exclusive(), fixed: a.cfg.Lease != 0, part: a.cfg.Part,
		began: g.p.s.Age(), given: a.ctx,
	}
	e.root = e
	e.ctx, e.cancel = context.WithCancelCause(a.ctx)
	return e
}

// newNested is one that is to nest in outer.
func (a *acquisition) newNested(outer *Entry) *Entry {
	if a.want.exclusive() {
		e := a.newEntry(outer.g)
		e.nested, e.given, e.root = true, outer.given, outer.root
		return e
	}
	// The context of one that reads does not end when one that writes is unlocked first, from which it
	// descends: it goes on with what the outermost was given.
	e := &Entry{
		g: outer.g, fixed: a.cfg.Lease != 0, part: a.cfg.Part,
		began: a.p.s.Age(), nested: true, given: outer.given, root: outer.root,
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	e.ctx, e.cancel = ctx, cancel
	follow := func(of context.Context, ended func()) {
		stop := context.AfterFunc(of, ended)
		context.AfterFunc(ctx, func() { stop() }) // or that context would keep the entry while it lives
	}
	follow(a.ctx, func() {
		// A loss, the end of the session, or the caller ends the hold. An Unlock above it does not.
		if !errors.Is(context.Cause(a.ctx), failure.ErrUnlocked) {
			cancel(failure.OfContext(a.ctx))
			return
		}
		// A writer above was unlocked, and the caller's own context still counts.
		follow(e.given, func() { cancel(failure.OfContext(e.given)) })
	})
	return e
}

// Forgotten ends a hold that its user can no longer reach. The runtime's cleanups wait for each other, so
// what takes time has its own goroutine.
func (e *Entry) Forgotten() {
	p := e.g.p
	go func() {
		p.mu.Lock()
		held, fixed := e.state == handle.Held, e.fixed
		p.mu.Unlock()
		switch {
		case fixed: // it goes on in Redis
			return
		case held:
			p.s.Warn("a Hold and its context were forgotten without Unlock; releasing it",
				"lock", p.keys.Name, "kind", p.kind.Letter, "token", e.token)
			e.cancel(failure.ErrForgotten)
		}
		_ = e.Unlock(context.Background())
	}()
}

// An Entry is a handle.Holding.

func (e *Entry) Name() string { return e.g.p.keys.Name }

func (e *Entry) Token() int64 { return e.token }

// Deadline is until when the hold is valid.
func (e *Entry) Deadline() time.Time { return e.g.deadline() }

func (e *Entry) Parts() []*handle.Hold { return nil }

func (e *Entry) Context() context.Context { return e.ctx }

// Find is for acquisitions below: a live hold of its name.
func (e *Entry) Find(key any) any {
	p := e.g.p
	d, ok := key.(*descent)
	// Not by the pools: a lost one may be of a former pool.
	if !ok || d.p.s != p.s || d.p.keys.LockKey() != p.keys.LockKey() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.state {
	case handle.Held:
		return e
	case handle.Lost, handle.Closed:
		d.lost = e.state
	}
	return nil
}

// Err is why it is not held any more.
func (e *Entry) Err() error {
	p := e.g.p
	p.mu.Lock()
	err := handle.ErrorOf(e.state)
	p.mu.Unlock()
	// The timer may be late, in a process that was stopped for a while.
	if err == nil && !time.Now().Before(e.g.deadline()) {
		return failure.ErrLost
	}
	return err
}

// LossReason returns why the hold was lost; nil: that is not known.
func (e *Entry) LossReason() error {
	p := e.g.p
	p.mu.Lock()
	defer p.mu.Unlock()
	return e.g.lossReason
}

// Stay leaves the permits taken until d from now, whenever they are given back.
func (e *Entry) Stay(d time.Duration) {
	g := e.g
	g.p.mu.Lock()
	until := g.p.s.Age() + d
	g.stays = max(g.stays, until)
	if e.write {
		g.whole = max(g.whole, until)
	}
	g.p.mu.Unlock()
}

// WaitReplicas blocks until n replicas have the grant.
func (e *Entry) WaitReplicas(ctx context.Context, n int) error {
	p := e.g.p
	if !p.s.Begin() {
		return p.fail(failure.ErrClosed)
	}
	defer p.s.End()
	return p.s.Link.WaitReplicas(ctx, e, p.keys.LockKey(), n, p.s.Go)
}

// Renew switches the renewal of its lease on or off, which is on but for a lease of its own choice.
func (e *Entry) Renew(on bool) {
	g := e.g
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	if e.state != handle.Held || e.fixed != on {
		return
	}
	e.fixed = !on
	if on {
		g.renewed++
	} else {
		g.renewed--
	}
	g.renew(g.renewed > 0)
}

// Reserve makes Redis grant no later holder this token or one below. The next request that keeps or releases
// the lock stores the token there, and Extend sends one at once.
func (e *Entry) Reserve(token int64) {
	e.g.p.mu.Lock()
	defer e.g.p.mu.Unlock()
	e.g.floor = max(e.g.floor, token)
}

// Extend makes the lease at least d, and so confirms the hold. It blocks for the answer.
func (e *Entry) Extend(ctx context.Context, d time.Duration) error {
	s := e.g.p.s
	if !s.Begin() {
		return e.g.p.fail(failure.ErrClosed)
	}
	defer s.End()
	return e.g.extend(ctx, d)
}

// OwnerField is that under which Redis knows it.
func (e *Entry) OwnerField() string { return e.g.owner.(string) }

// OwnerField is that under which Redis knows a hold of one lock. Of a RedLock it is the beginning, which is
// the same on all servers. It is "" of any other.
func OwnerField(hd *handle.Hold) string {
	if one, ok := hd.Of().(interface{ OwnerField() string }); ok {
		return one.OwnerField()
	}
	return ""
}

// ErrUpgrade is why a holder of one permit does not get all of them.
var ErrUpgrade = errors.New("lockline: a reader cannot become the writer: unlock the read hold first")

// descent is an acquisition as the key by which it finds, in its context, the nearest live hold of its name.
type descent acquisition

// outer finds the nearest live hold that the context descends from; nil for a newcomer, and an error if all
// that it descends from were lost. mu is not held: contexts may run code of their own.
func (a *acquisition) outer() (*Entry, error) {
	d := (*descent)(a)
	d.lost = handle.Held
	if e, _ := a.ctx.Value(d).(*Entry); e != nil {
		return e, nil
	}
	if d.lost != handle.Held {
		return nil, a.p.fail(handle.ErrorOf(d.lost)) // to acquire afresh would hide the loss
	}
	return nil, nil
}

// nest enters the grant of a hold that it descends from. Neither an entry nor an error: the hold is over,
// look again.
func (a *acquisition) nest(outer *Entry) (*Entry, error) {
	p, g := a.p, outer.g
	e := a.newNested(outer) // without mu: the caller's context may run code of its own
	depth, err := a.enterBelow(outer, e)
	if depth == 0 {
		e.cancel(nil) // frees the context, which nobody has received
		return nil, err
	}
	if a.cfg.Lease != 0 || p.kind.Counts { // the grant lasts as long as any of its holds wants
		err := g.extend(a.bounds.Until, cmp.Or(a.cfg.Lease, p.s.Lease))
		switch over := e.Err(); {
		case over != nil: // while that was asked
			err = cmp.Or(err, p.fail(over))
		case a.bounds.Over(): // also if it was answered
			var holder *failure.LockedError
			p.mu.Lock()
			if a.barred { // otherwise the call has waited for Redis alone
				holder = a.lockedHere(g)
			}
			err = a.endOfWait(holder)
			p.mu.Unlock()
		}
		if err != nil {
			leave := e.Leave()
			p.s.Go(func() { _ = leave(context.WithoutCancel(a.ctx)) }) // a.ctx may be over
			return nil, err
		}
	}
	p.observe(a.ctx, session.Event{Kind: session.EventAcquired, Wait: time.Since(a.begun), Depth: depth,
		Token: e.token})
	return e, nil
}

// enterBelow makes e a hold that is nested in outer, once there is room, and returns how deep it is. 0
// without an error: outer is over.
func (a *acquisition) enterBelow(outer, e *Entry) (depth int, err error) {
	p, g := a.p, outer.g
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case outer.state != handle.Held:
			return 0, nil
		case a.want.exclusive() && !g.exclusive(): // or reduced to a share meanwhile
			return 0, p.fail(ErrUpgrade)
		case !time.Now().Before(g.deadline()): // the timer that ends it is late
			p.mu.Unlock()
			g.end(handle.Lost, failure.ErrExpired)
			p.mu.Lock()
			return 0, nil
		case outer.admits(a):
			e.began = p.s.Age()
			g.entries++
			g.change++
			g.link(e)
			e.outer = outer
			if outer.inner == nil {
				outer.inner = map[*Entry]struct{}{}
			}
			outer.inner[e] = struct{}{}
			for o := e; o != nil; o = o.outer {
				depth++
			}
			return depth, nil
		case a.once:
			return 0, p.kind.locked(a.lockedHere(g))
		}
		if outer.changed == nil {
			outer.changed = make(chan struct{})
		}
		changed := outer.changed
		a.barred = true
		p.mu.Unlock() // whatever it waits for needs mu
		_, ok := call.Await(&a.bounds, changed)
		p.mu.Lock()
		if !ok && outer.state == handle.Held {
			return 0, a.endOfWait(a.lockedHere(g))
		}
	}
}

// admits reports whether one may nest in e now, beside those that are: as in a lock of its own. mu held.
func (e *Entry) admits(a *acquisition) bool {
	for in := range e.inner {
		if in.write || a.want.exclusive() {
			return false
		}
	}
	return true
}

// wake has those look again that wait to nest in e. mu held.
func (e *Entry) wake() {
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// unnest takes e out of the hold that it is nested in. What is nested in e goes on there. mu held.
func (e *Entry) unnest() {
	outer := e.outer
	if outer != nil {
		delete(outer.inner, e)
	}
	for in := range e.inner {
		in.outer = outer
		if outer != nil {
			outer.inner[in] = struct{}{}
		}
	}
	e.inner = nil
	e.wake()
	if outer != nil {
		outer.wake() // there may be room beside e now
	}
}

// link makes e, which counts among the entries already, a hold. mu held.
func (g *Grant) link(e *Entry) {
	if e.write {
		g.writers++
	}
	e.token = g.token // counted up with each pass in memory
	g.used = true
	g.holds = append(g.holds, e)
	e.root.chain.holds++
	if !e.fixed {
		g.renewed++
		g.renew(true)
	}
}

// unlink ends that. mu held.
func (g *Grant) unlink(e *Entry) {
	i := slices.Index(g.holds, e)
	g.holds = slices.Delete(g.holds, i, i+1)
	e.root.chain.holds--
	if !e.fixed {
		g.renewed--
		g.renew(g.renewed > 0 || g.entries == 1) // one that passes goes on
	}
}

// renew switches the renewal of the lease on or off. mu held.
func (g *Grant) renew(on bool) {
	if on != g.unrenewed {
		return
	}
	g.unrenewed = !on
	every := time.Duration(0)
	if on {
		every = g.p.s.Lease / 3
	}
	g.p.s.Watchdog.SetInterval(&g.lease, every)
}

// decline ends an entry that never was a hold. The caller must be counted in the session's work.
func (g *Grant) decline(ctx context.Context) {
	g.p.mu.Lock()
	tell := g.endEntry(false)
	if !g.held() && tell == nil { // lost, and there is no Hold whose Unlock would tell Redis
		g.giveBack()
	}
	g.p.mu.Unlock()
	if tell != nil {
		g.p.s.Go(func() { _ = tell.send(context.WithoutCancel(ctx)) }) // the caller has left
	}
}
