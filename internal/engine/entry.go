package engine

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
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
	state      handle.State
	fixed      bool                // a lease of its own choice, not renewed
	prev, next *Entry              // among the grant's holds
	unlocked   bool                // or forgotten: no goroutine will unlock it
	outer      *Entry              // the live one that it is nested in; nil: none
	inner      map[*Entry]struct{} // live ones that are nested in it
	changed    chan struct{}       // closed when another one may nest in it; nil: no goroutine waits for that
}

// newEntry is one of the acquisition's goroutine, which is not a hold yet.
func (a *acquisition) newEntry(g *Grant) *Entry {
	e := new(Entry)
	if g.one.g == nil && a.want.exclusive() { // such a grant has one goroutine at a time
		e = &g.one
	}
	*e = Entry{
		g: g, write: a.want.exclusive(), fixed: a.cfg.Lease != 0, part: a.cfg.Part,
		began: g.p.s().Age(), given: a.ctx,
	}
	e.ctx, e.cancel = context.WithCancelCause(a.ctx)
	return e
}

// newNested is one that is to nest in outer.
func (a *acquisition) newNested(outer *Entry) *Entry {
	if a.want.exclusive() {
		e := a.newEntry(outer.g)
		e.nested, e.given = true, outer.given
		return e
	}
	// The context of one that reads does not end when one that writes is unlocked first, from which it
	// descends: it goes on with what the outermost was given.
	e := &Entry{
		g: outer.g, fixed: a.cfg.Lease != 0, part: a.cfg.Part,
		began: a.p.s().Age(), nested: true, given: outer.given,
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(a.ctx))
	e.ctx, e.cancel = ctx, cancel
	follow := func(of context.Context, ended func()) {
		stop := context.AfterFunc(of, ended)
		context.AfterFunc(ctx, func() { stop() }) // or that context would keep the entry while it lives
	}
	follow(a.ctx, func() {
		if context.Cause(a.ctx) != failure.ErrUnlocked { // lost, or ended by the caller
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
		if fixed {
			e.unlocked = true
		}
		p.mu.Unlock()
		switch {
		case fixed: // it goes on in Redis
			return
		case held:
			p.s().Warn("a Hold and its context were forgotten without Unlock; releasing it",
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
	if !ok || d.p.s() != p.s() || d.p.keys.Lock() != p.keys.Lock() { // a lost one may be of a former pool
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

// Stay leaves the permits taken until d from now, whenever they are given back.
func (e *Entry) Stay(d time.Duration) {
	g := e.g
	g.p.mu.Lock()
	until := g.p.s().Age() + d
	g.stays = max(g.stays, until)
	if e.write {
		g.whole = max(g.whole, until)
	}
	g.p.mu.Unlock()
}

// WaitReplicas blocks until n replicas have the grant.
func (e *Entry) WaitReplicas(ctx context.Context, n int) error {
	return e.g.p.s().Link.WaitReplicas(ctx, e, e.g.p.keys.Lock(), n)
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

// Raise makes token that of the hold, if it is higher, and makes Redis grant no later holder this token or
// one below. It blocks for the answer. After an error Redis may have it or not, and the hold goes on.
func (e *Entry) Raise(ctx context.Context, token int64) error {
	g := e.g
	g.p.mu.Lock()
	g.token, g.floor = max(g.token, token), max(g.floor, token)
	g.unraised = true // until Redis has it, no other may count on it
	g.p.mu.Unlock()
	err := g.extend(ctx, 0)
	if err == nil {
		g.p.mu.Lock()
		g.unraised = false
		g.p.mu.Unlock()
	}
	return err
}

// Reserve makes Redis grant no later holder this token or one below, as Raise does, but not before the next
// renewal or the release.
func (e *Entry) Reserve(token int64) {
	e.g.p.mu.Lock()
	defer e.g.p.mu.Unlock()
	e.g.floor = max(e.g.floor, token)
}

// Extend makes the lease at least d, and so confirms the hold. It blocks for the answer.
func (e *Entry) Extend(ctx context.Context, d time.Duration) error {
	s := e.g.p.s()
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
