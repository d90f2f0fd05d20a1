package mutex

import (
	"context"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/option"
	"github.com/lockline/lockline/internal/permit"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// What others have made, and this package's users get from it.
type (
	Hold   = handle.Hold
	Config = option.Config
)

// Gate, Waiter, List and Handoff are those of package handover, for tenures.
type (
	Gate    = handover.Gate[*Tenure]
	Waiter  = handover.Waiter[*Tenure]
	List    = handover.List[*Tenure]
	Handoff = handover.Handoff[*Tenure]
)

// Progress is how far a wait for a lock has come. It only grows.
type Progress uint8

const (
	Fresh     Progress = iota
	Contested          // others have had the lock meanwhile
	Refused            // Redis has said so: from then on an outage only lengthens the wait
)

func (p Progress) String() string { return [...]string{"fresh", "contested", "refused"}[p] }

// Acquisition is one call of Lock or TryLock. It belongs to the goroutine of that call, or, once that has
// left, to the one that goes on with its request. While its Waiter is in a list, it does not change, and
// others may look at it with Lock.Mu held.
type Acquisition struct {
	wakeup.Bounds
	Ctx    context.Context // the caller's
	Lock   *Lock
	Config Config
	Try    bool
	Begun  time.Time

	// The attempt in Redis. Its owner field is never used for another.
	Grant    protocol.Grant
	NotAfter int64 // Redis time after which the last copy of its request has expired

	progress  Progress
	lost      bool  // its context descends from a hold of the lock that was lost
	trouble   error // of the last request, in an outage that it rides out; Lock.Mu guards it
	announced bool  // the observer knows that it waits
}

// Acquire returns the hold and the context to go on with. It blocks as rlock's Lock and TryLock do.
func (m *Mutex) Acquire(ctx context.Context, cfg Config, try bool) (context.Context, *Hold, error) {
	if err := m.CheckUse(ctx); err != nil {
		return ctx, nil, err
	}
	if m.kind.Lanes != nil {
		return m.lanes.Acquire(ctx, permit.Exclusive, cfg, try)
	}
	e, err := m.admitted(ctx, cfg, try)
	if err != nil {
		return ctx, nil, err
	}
	ctx, hd := e.Handle(ctx)
	return ctx, hd, nil
}

// admitted is Acquire of an entry. What is wrong with the call is found before anything is counted or kept.
// From Enter on, the session waits for the acquisition, and the lock is known in this process.
func (m *Mutex) admitted(ctx context.Context, cfg Config, try bool) (*Entry, error) {
	fail := func(err error) (*Entry, error) { return nil, failure.Named(m.keys.Name, err) }
	if err := cfg.Check(); err != nil {
		return fail(err)
	}
	if cfg.AtLeast != 0 {
		return fail(errors.New("HoldAtLeast: a lock that is shared with Redisson cannot stay taken"))
	}
	if ctx.Err() != nil {
		return fail(failure.OfContext(ctx))
	}
	l, err := m.Enter()
	if err != nil {
		return fail(err)
	}
	defer l.Leave()
	a := NewAcquisition(ctx, l, cfg)
	until, stop := cfg.Until(ctx)
	defer stop()
	a.Try, a.Until = cfg.Once(try), until
	e, err := a.run()
	if err != nil {
		if errors.Is(err, wire.ErrUnsent) { // it has not been asked for
			return nil, err
		}
		l.Observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(a.Begun), Err: err})
		return nil, err
	}
	return e, nil
}

// NewAcquisition begins now.
func NewAcquisition(ctx context.Context, l *Lock, cfg Config) *Acquisition {
	return &Acquisition{
		Bounds: wakeup.Bounds{Until: ctx, Closing: l.S().Closing()},
		Ctx:    ctx, Lock: l, Config: cfg, Begun: time.Now(),
	}
}

// ownRelease is for how long one that tries waits for a release of its own session: an outage is not worth
// more.
const ownRelease = 250 * time.Millisecond

// run nests under the hold that the context descends from, or has the kind admit a newcomer.
func (a *Acquisition) run() (*Entry, error) {
	l := a.Lock
	for again := false; ; again = true {
		if again && a.Over() { // the hold that has ended may have been its context
			return nil, a.WhyOver(true)
		}
		outer, err := a.outer()
		if err != nil {
			return nil, l.Fail(err)
		}
		l.Mu.Lock()
		if outer != nil && outer.State() != handover.Held {
			l.Mu.Unlock()
			continue
		}
		if over := l.Unlocking(); a.Try && over != nil {
			err := a.LockedHere()
			l.Mu.Unlock()
			if a.Config.GivesWay {
				return nil, failure.Public(err)
			}
			switch heard, ended := a.Sleep(ownRelease, over); {
			case ended:
				return nil, a.WhyOver(false)
			case !heard:
				return nil, failure.Public(err)
			}
			continue
		}
		var e *Entry
		if outer == nil {
			e, err = l.admit(a)
		} else {
			e, err = a.nest(outer)
		}
		if e != nil || err != nil {
			return e, err
		}
	}
}

// outer finds the nearest live hold of this lock that the context descends from; nil for a newcomer, and
// ErrLost if what it descends from was lost. Contexts may run code of their own, and take a RedLock's
// mutexes, so Lock.Mu is not held.
func (a *Acquisition) outer() (*Entry, error) {
	d := (*descent)(a)
	d.lost = false
	if e, _ := a.Ctx.Value(d).(*Entry); e != nil {
		return e, nil
	}
	if d.lost {
		return nil, failure.ErrLost
	}
	return nil, nil
}

// descent is an acquisition as the key by which it finds, in its context, the nearest live hold of its lock.
type descent Acquisition

// Lease is what this acquisition asks of Redis.
func (a *Acquisition) Lease() time.Duration {
	if a.Config.Lease != 0 {
		return a.Config.Lease
	}
	return a.Lock.S().Lease
}

// LeaseArg is Lease in milliseconds, as a script argument.
func (a *Acquisition) LeaseArg() any {
	if a.Config.Lease != 0 {
		return a.Config.Lease.Milliseconds()
	}
	return a.Lock.S().Args.Lease
}

// NewAttempt begins a try for the lock in Redis, with an owner field that is never used again. The token is
// not known until it is granted.
func (a *Acquisition) NewAttempt() {
	a.Grant, a.NotAfter = protocol.Grant{Owner: a.Lock.S().Attempt(), Token: ""}, 0
}

// WelcomeUntil bounds, by the Redis clock, until when a copy of the request that is made now may still take
// the lock, where that is known. Without knowledge of the clock the request has expired on arrival, but its
// reply brings the time.
func (a *Acquisition) WelcomeUntil(now time.Time, lease time.Duration) int64 {
	if t := a.Lock.S().Clock.Now(now); t != 0 {
		a.NotAfter = max(a.NotAfter, t+protocol.Patience(lease).Microseconds())
	}
	return a.NotAfter
}

// Advance notes that the wait has come as far as p.
func (a *Acquisition) Advance(p Progress) { a.progress = max(a.progress, p) }

// Announce tells the observer, once, that the acquisition waits.
func (a *Acquisition) Announce() {
	if !a.announced {
		a.announced = true
		a.Lock.Observe(a.Ctx, session.Event{Kind: session.EventWaiting})
	}
}
