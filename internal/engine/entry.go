package engine

import (
	"context"
	"slices"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/session"
)

// Entry is the share of one goroutine in a grant. When a call of Lock returns successfully, its Entry is a
// hold. When a grant serves a waiter, Grant.numEntries counts the waiter's entry at once, although the Entry
// is made later. A nested entry is counted when it becomes a hold. An Entry must not refer to its
// handle.Hold, because otherwise the garbage collector could not find a Hold that its user has forgotten.
type Entry struct {
	// The following never change once the entry is a hold.
	ctx    context.Context // ends with the hold; the context that Lock returns is made from this one
	cancel context.CancelCauseFunc
	g      *Grant
	token  int64
	began  time.Duration   // age of the session when the hold began
	given  context.Context // context of the call that took the outermost hold of the chain
	write  bool            // the call of this hold wanted all permits

	// lockState.mu guards the following.
	state    handle.State
	fixed    bool // the hold needs no renewal, by default because its call chose a fixed lease (Renew)
	unlocked bool
	last     bool                // the Unlock of this entry ended the last live hold of its chain
	root     *Entry              // outermost hold of its chain; the entry itself if it is not nested
	chain    chain               // the chain of this entry if the entry is a root; otherwise not used
	outer    *Entry              // the live hold in which the entry is nested; nil means none
	inner    map[*Entry]struct{} // the live holds that are nested directly in the entry
	changed  chan struct{}       // see notifyChanged; nil means that no call waits to nest in the entry
}

// chain is an outermost hold and all holds that are nested in it. Observers get one EventReleased or
// EventLost for the whole chain, when the last of these holds has ended.
type chain struct {
	holds     int32          // number of live holds
	announced bool           // the observer got EventAcquired for the root
	lost      *session.Event // the event of the chain's end, if the chain ended before it was announced
}

// newEntry makes e an entry for the waiter's goroutine, and returns e. The entry is not a hold yet. The
// caller must not hold l.mu. The reason is that newEntry calls methods of w.ctx, whose type may be the
// user's. Such a method may call this package.
func (w *waiter) newEntry(e *Entry, g *Grant) *Entry {
	*e = Entry{g: g, write: w.want.exclusive(), fixed: w.cfg.Lease != 0, given: w.ctx}
	e.root = e
	e.ctx, e.cancel = context.WithCancelCause(w.ctx)
	return e
}

// addHold turns an entry into a hold. numEntries must already count the entry.
func (g *Grant) addHold(e *Entry, fx *effects) {
	if e.write {
		g.numWriters++
	}
	e.token, e.began = g.token, fx.age
	g.used = true
	g.holds = append(g.holds, e)
	e.root.chain.holds++
	if !e.fixed {
		g.numRenewed++
		g.renew(true)
	}
}

// removeHold removes a hold from the grant. numEntries still counts its entry.
func (g *Grant) removeHold(e *Entry) {
	if e.write {
		g.numWriters--
	}
	i := slices.Index(g.holds, e)
	g.holds = slices.Delete(g.holds, i, i+1)
	e.root.chain.holds--
	if !e.fixed {
		g.numRenewed--
		// If e is the last entry, the grant may be passed on or kept. So its lease is still renewed.
		g.renew(g.numRenewed > 0 || g.numEntries == 1)
	}
}

// announce records that the observer got EventAcquired for the hold. If endChains has already ended the chain
// of the hold, announce reports the event that endChains has kept.
func (e *Entry) announce() {
	l := e.g.l
	if l.s.Observer == nil {
		return
	}
	l.mu.Lock()
	event := e.chain.lost
	e.chain.announced = true
	l.mu.Unlock()
	if event != nil {
		l.observe(l.s.Ctx, *event)
	}
}

var _ handle.Holding = (*Entry)(nil)

func (e *Entry) Name() string { return e.g.l.keys.Name }

func (e *Entry) Token() int64 { return e.token }

func (e *Entry) Deadline() time.Time { return e.g.deadline() }

func (e *Entry) Parts() []*handle.Hold { return nil }

func (e *Entry) Context() context.Context { return e.ctx }

// Find returns the entry if its hold is live, and key is a *descent for the same lock. A descent is the
// context key by which a call looks for the hold in which it nests. If the hold was lost or closed, Find
// records its state in descent.lost. Unless it returns the entry, Find returns nil.
func (e *Entry) Find(key any) any {
	l := e.g.l
	d, ok := key.(*descent)
	// Compare keys and not lockStates, because a lost hold may belong to a former lockState of the lock.
	if !ok || d.l.s != l.s || d.l.keys.LockKey() != l.keys.LockKey() {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.state {
	case handle.Held:
		return e
	case handle.Lost, handle.Closed:
		d.lost = e.state
	}
	return nil
}

// Err returns nil while the hold is held and its deadline has not passed. Afterward, Err returns the error
// that describes the end of the hold.
func (e *Entry) Err() error {
	l := e.g.l
	l.mu.Lock()
	err := handle.ErrorOf(e.state)
	l.mu.Unlock()
	// The timer that ends the grant may be late, because the process may have been stopped for a while.
	if err == nil && !time.Now().Before(e.g.deadline()) {
		return failure.ErrLost
	}
	return err
}

// LossReason returns the reason why the grant of the hold was lost. It returns nil if the session has not
// noticed a loss of the grant.
func (e *Entry) LossReason() error {
	l := e.g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	return e.g.lossReason
}

// Stay keeps the permits for at least d from now, even if the hold is unlocked earlier.
func (e *Entry) Stay(d time.Duration) {
	g := e.g
	fx := g.l.begin()
	until := fx.age + d
	g.takenUntil = max(g.takenUntil, until)
	if e.write {
		g.allTakenUntil = max(g.allTakenUntil, until)
	}
	fx.unlock() // without settle, because until the Unlock the hold keeps the permits in any case
}

// StayNoLonger ends the effect of Stay, so that the release of the grant frees the permits.
func (e *Entry) StayNoLonger() {
	fx := e.g.l.begin()
	e.g.takenUntil, e.g.allTakenUntil = 0, 0
	fx.unlock()
}

// WaitReplicas blocks until n replicas have the grant, or until an error has ended the wait.
func (e *Entry) WaitReplicas(ctx context.Context, n int) error {
	l := e.g.l
	if !l.s.Begin() {
		return l.named(failure.ErrClosed)
	}
	defer l.s.End()
	return l.s.Link.WaitReplicas(ctx, e, l.keys.LockKey(), n, l.s.Go)
}

// Renew sets whether this hold needs renewal of the lease. The session renews the lease while at least one
// hold of the grant needs renewal. By default, a hold needs renewal unless its call chose a fixed lease. If
// the hold has ended, Renew does nothing.
func (e *Entry) Renew(on bool) {
	g := e.g
	fx := g.l.begin()
	defer fx.unlock()
	if e.state != handle.Held || e.fixed != on {
		return
	}
	e.fixed = !on
	if on {
		g.numRenewed++
	} else {
		g.numRenewed--
	}
	g.renew(g.numRenewed > 0)
}

// Reserve makes sure that Redis grants later holders only tokens above the given one. For an exclusive lock,
// the next request of the holder stores the given token in Redis, for example a renewal or the release. To
// store the token at once, call Extend. For permits, only the release stores the token.
func (e *Entry) Reserve(token int64) {
	fx := e.g.l.begin()
	defer fx.unlock()
	e.g.reservedToken = max(e.g.reservedToken, token)
}

// Extend makes the lease last for at least d from now. It returns an error if Redis no longer has the hold.
// It blocks for the reply, at most until ctx ends.
func (e *Entry) Extend(ctx context.Context, d time.Duration) error {
	s := e.g.l.s
	if !s.Begin() {
		return e.g.l.named(failure.ErrClosed)
	}
	defer s.End()
	return e.g.extend(ctx, d)
}

// Forgotten releases a hold that its user can no longer reach. It does nothing if the lease of the hold is
// fixed. The release runs in a goroutine of its own, because the runtime runs cleanups one after another.
func (e *Entry) Forgotten() {
	l := e.g.l
	go func() {
		l.mu.Lock()
		held, fixed := e.state == handle.Held, e.fixed
		l.mu.Unlock()
		switch {
		case fixed: // the lock stays held in Redis until its lease ends
			return
		case held:
			l.s.Warn("a Hold and its context were forgotten without Unlock; releasing it",
				"lock", l.keys.Name, "kind", l.kind.Letter, "token", e.token)
			e.cancel(failure.ErrForgotten)
		}
		_ = e.Unlock(context.Background())
	}()
}

// OwnerField returns the owner field of the grant in Redis.
func (e *Entry) OwnerField() string { return e.g.owner.(string) }

// OwnerField returns the owner field of a hold in Redis. For a RedLock, it returns the part of the owner
// fields that is the same on all servers. For a zero Hold, and for any other hold of several locks, it
// returns "".
func OwnerField(hd *handle.Hold) string {
	if one, ok := hd.Of().(interface{ OwnerField() string }); ok {
		return one.OwnerField()
	}
	return ""
}
