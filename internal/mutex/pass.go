package mutex

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/handover"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// departure says what the end of an entry was.
type departure uint8

const (
	oneOfMany departure = iota // the tenure goes on as it was
	passedOn                   // the tenure is the next goroutine's now
	theLast                    // the tenure is over
)

// depart ends one entry under outer. If the tenure is over, the root gate stays entered until Redis was told,
// if it is used to compete. Lock.Mu held.
func (t *Tenure) depart(outer *Entry) (departure, term) {
	l := t.Lock
	if !t.Leave() {
		if g := l.gateOf(outer); g.Leave() {
			t.Replace()
		}
		if t.renewed == 0 { // under Mu, or it could follow the next hold's switching on
			t.idle = true
			l.S().Watchdog.SetInterval(&t.lease, 0)
		}
		return oneOfMany, term{}
	}
	was := t.term()
	if t.passOn() {
		return passedOn, was
	}
	t.End(handover.Released)
	l.unlock.Begin() // until released
	t.gone()
	return theLast, was
}

// passOn passes the tenure on to the next goroutine, in memory, if it may have it. Redis is not told: to it,
// the session goes on holding what it was granted, and every request about the tenure is as valid as before.
// Lock.Mu held.
//
// The block of tokens bounds how often, and for kinds without a queue the time bounds for how long, so that
// other sessions have their turn. A waiter with a lease of its own choice needs a grant of its own, and a
// tenure whose lease a holder made longer would outlast its next holder.
func (t *Tenure) passOn() bool {
	l := t.Lock
	s := l.S()
	w := l.Root.Waiters.First()
	switch {
	case w == nil || w.Fixed || t.UsedUp(protocol.Block) || wakeup.Closed(s.Closing()):
		return false
	case t.own || s.Age()-t.begun >= s.Streak:
		return false
	case time.Until(t.Deadline()) < min(s.Lease, s.Liveness, protocol.FirstLease)/4:
		return false // it could not be renewed
	}
	t.PassOn()
	t.since, t.awaited = s.Age(), 0
	l.Root.Install()
	w.Answer(Handoff{In: true, Tenure: t, Token: t.Token}) // last: the waiter then uses the tenure
	return true
}

// Quit ends an entry that no goroutine uses, under outer.
// The caller is counted in the session's work, until here or until the Leaving is sent.
func (t *Tenure) Quit(ctx context.Context, outer *Entry) (Leaving, error) {
	l := t.Lock
	l.Mu.Lock()
	if why := t.State(); why != handover.Held {
		l.Mu.Unlock()
		l.S().End()
		return Leaving{}, l.Fail(handle.ErrorOf(why))
	}
	left, was := t.depart(outer)
	l.Mu.Unlock()
	return t.departed(ctx, left, was), nil
}

// Decline ends an entry that became no hold. Redis is told in the background, of the count or of the release.
// gone is closed when that is done; it is nil if there is nothing to tell. The caller is counted in the
// session's work.
func (t *Tenure) Decline(ctx context.Context, outer *Entry) (gone <-chan struct{}) {
	s := t.Lock.S()
	s.Add(1)
	v, _ := t.Quit(ctx, outer)
	if v.t == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = v.Send(s.Ctx)
	}()
	return done
}

// Leaving is the end of an entry of which Redis has to be notified. It is counted in the session's work until
// that is done. The zero Leaving: there is nothing to tell.
type Leaving struct {
	t    *Tenure
	last bool // the tenure is over
	was  term
}

// departed is what follows depart, once Lock.Mu is released. The caller is counted in the session's work,
// until here or until the Leaving is sent.
func (t *Tenure) departed(ctx context.Context, left departure, was term) Leaving {
	s := t.Lock.S()
	switch left {
	case passedOn:
		was.ended(ctx, t.Lock, nil)
		s.End()
		return Leaving{}
	case theLast:
		s.Watchdog.Remove(&t.lease)
	}
	return Leaving{t: t, last: left == theLast, was: was}
}

// Send tells Redis, and blocks for the answer.
func (v Leaving) Send(ctx context.Context) error {
	f := farewell{Leaving: v, Bounds: wakeup.Bounds{Until: ctx}}
	return v.Released(ctx, f.Send(wire.Tries, nil))
}

// farewell is the request of an Unlock. What it tells Redis holds, though its caller may have left.
type farewell struct {
	Leaving
	wakeup.Bounds
	release protocol.Release
}

func (f *farewell) Send(most int, _ *atomic.Bool) wire.Outcome {
	if f.last {
		f.release = f.t.ReleaseRequest()
		return f.t.Lock.release(f.Until, &f.release, most)
	}
	return f.t.Update(f.Until, 0, most, nil)
}

func (f *farewell) RollBack(o wire.Outcome) { _ = f.Released(context.WithoutCancel(f.Until), o) }
