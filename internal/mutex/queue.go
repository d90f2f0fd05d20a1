package mutex

import (
	"math"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// The protocol from end to end:
//
//   - A goroutine that wants the lock waits for the next attempt (admit, enqueue, form), which asks
//     (attempt.start, acquire.lua). A free lock with no queue is granted at once. Else the attempt is put
//     into the queue under a ticket, the time at which Redis saw it.
//   - While the attempt stands there, it asks again, which keeps its place and keeps it alive (askAgain). One
//     that is silent for the liveness time is passed over.
//   - Whatever finds the lock free grants it to the first attempt that lives, inside its own script (handOver
//     in queue.lua): the release of the holder, another request, a forced unlock. The session of the new
//     owner learns of it by a message on its own channel, or in the reply if it was the one that asked. The
//     news goes through package inbox and attempt.Told to attempt.learn and attempt.granted in answer.go.
//   - An attempt that no goroutine waits with any more leaves the queue by a release (attempt.withdraw,
//     release.lua).
//
// The members of an attempt are the goroutines of one session that had come when its request was sent, in
// their order. Those that arrive while that is under way make the next one. An attempt is granted as a whole:
// its members have the lock one after the other, in one tenure.

// line is what a session knows of those that want the lock. Lock.Mu guards it.
type line struct {
	forming  List        // goroutines that have not asked yet
	formed   *time.Timer // when they ask at the latest
	expect   int         // how many had the lock one after the other, and may come back
	others   bool        // other sessions want the lock, as far as is known
	asking   *attempt    // whose first request is under way: the next one waits for its end
	standing []*attempt  // those that are asking or stand
	ear      ear
}

// wanted notes whether other sessions want the lock. Mu held.
func (l *Lock) wanted(others bool) {
	if l.line == nil {
		if !others {
			return
		}
		l.line = &line{}
	}
	l.others = others
}

// Goroutines that take turns at a lock stay together in the queue if they ask together.
// So goroutines that arrive while this session has the lock wait a moment for its unlock.
// Where other sessions wait, too, they also wait for the goroutine that unlocks last to
// come back: at most formTime, and not longer than formLong if its Unlock takes that long.
// Behind attempts of this session they wait for formLong, which saves requests.
// Each is about as long as a request takes, so waiting hardly costs them a later place.
const (
	formTime = 200 * time.Microsecond
	formLong = 2 * time.Millisecond
)

// admit has a newcomer wait for the lock. It blocks until the lock is held or the wait is over. Neither an
// entry nor an error: what it waited for has changed, look again. Mu is held; admit releases it.
func (l *Lock) admit(a *Acquisition) (*Entry, error) {
	if a.Try && a.Config.GivesWay && l.line != nil && l.others {
		err := a.LockedHere()
		l.Mu.Unlock()
		return nil, failure.Public(err)
	}
	if !l.Kind.Ordered {
		return l.enter(a)
	}
	if a.Try {
		if l.Tenure() == nil {
			l.Mu.Unlock()
			return l.try(a)
		}
		err := a.LockedHere()
		l.Mu.Unlock()
		return nil, failure.Public(err)
	}
	return l.stand(a)
}

// stand has a newcomer wait in the queue. Mu is held; stand releases it.
func (l *Lock) stand(a *Acquisition) (*Entry, error) {
	w := a.NewWaiter()
	next := l.enqueue(w)
	l.Mu.Unlock()
	if next != nil {
		next.start(a.Until)
	}
	h, err := l.wait(a, w)
	if err != nil || !h.In {
		return nil, err
	}
	return a.Succeed(h)
}

// wait waits for the answer to w, which stands in the queue, or may come to.
func (l *Lock) wait(a *Acquisition, w *Waiter) (Handoff, error) {
	var gone <-chan struct{}
	h, err := a.Wait(w, func(withdrawn bool) {
		place, _ := w.Place.(*attempt)
		if l.refused() {
			a.Advance(Refused)
		}
		if place != nil && withdrawn {
			gone = place.memberLeft()
		}
	}, func(h Handoff) {
		if h.Passed() {
			gone = h.Tenure.Decline(a.Ctx, nil)
		} else {
			l.Pass()
		}
	})
	wakeup.AwaitLeaving(gone, l.S().Closing())
	return h, err
}

// refused: Redis has said to this session that it waits. Mu held.
func (l *Lock) refused() bool {
	if l.line != nil {
		for _, a := range l.standing {
			if a.redis != 0 {
				return true
			}
		}
	}
	return false
}

// enqueue has a goroutine wait with the next attempt, and returns that if it is to ask now. Mu held.
func (l *Lock) enqueue(w *Waiter) *attempt {
	l.forming.Push(w)
	if !l.Kind.Ordered {
		return l.form()
	}
	long := l.behindOwn()
	switch {
	case l.Tenure() == nil && l.forming.Len() >= l.expect && !long:
		return l.form()
	case l.forming.First() != w:
	case long:
		l.formWithin(formLong)
	default:
		l.formWithin(formTime)
	}
	return nil
}

// behindOwn: as far as is known, only this session's attempts stand before the goroutines that make the next
// one. So these lose nothing by waiting for more to join. Mu held.
func (l *Lock) behindOwn() bool { return !l.others && len(l.standing) > 0 }

// formWithin lets the next attempt ask after d at the latest. Mu held.
func (l *Lock) formWithin(d time.Duration) {
	if l.formed == nil {
		l.formed = time.AfterFunc(d, l.askNow)
	} else {
		l.formed.Reset(d)
	}
}

func (l *Lock) askNow() {
	if !l.S().Begin() {
		return
	}
	defer l.S().End()
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.ask()
}

// ask sends the next attempt's request, if there is one and none is under way. The caller must be counted in
// the session's work. Mu held.
func (l *Lock) ask() {
	if a := l.form(); a != nil {
		go a.runFirst()
	}
}

// unlocked is called when a tenure is over, and when Redis has been told. Mu held.
func (l *Lock) unlocked(told bool) {
	switch {
	case l.forming.First() == nil && !told:
	case l.behindOwn(): // their time runs
	case !l.others:
		l.ask()
	case told:
		l.formWithin(formTime)
	default:
		l.formWithin(formLong)
	}
}

// waits: some goroutine of this session waits elsewhere than at the root gate. Mu held.
func (l *Lock) waits() bool {
	return l.line != nil && (l.forming.First() != nil || len(l.standing) > 0)
}

// unused: a tenure is over by its last Unlock, and Redis was not told yet. Goroutines that were granted the
// lock together, and could not have it passed on, ask again. Where the kind is not Ordered, the next one at
// the root gate does so once Redis was told. Mu held.
func (l *Lock) unused() {
	if !l.Kind.Ordered {
		return
	}
	l.Root.Clear()
	l.Root.Waiters.Recheck()
	l.unlocked(false)
}

// lost has the other goroutines of the same grant ask again. The next attempt does not wait for them. Mu
// held.
func (l *Lock) lost() {
	if !l.Kind.Ordered {
		return
	}
	l.Root.Waiters.Recheck()
	l.expect = 0
}

// released lets the next goroutine or attempt ask: Redis knows of the end of a tenure, or could not be asked.
func (l *Lock) released(t *Tenure, o wire.Outcome) {
	if !l.Kind.Ordered {
		l.remember(t, o)
		l.Pass()
		return
	}
	l.Mu.Lock()
	l.unlocked(true)
	if o.Unanswered != nil { // the lost reply may have told of a grant to this session
		l.look(nil)
	}
	l.Mu.Unlock()
}

// freed learns from the answer to a release which attempt it made the owner.
func (l *Lock) freed(o wire.Outcome) {
	if l.Kind.Broadcast {
		return // it went to none
	}
	r, _ := protocol.Read(o)
	for _, s := range r.Served {
		if l.S().Owns(s.Owner) {
			l.deliver(s.Owner, award{token: s.Token, lease: s.Lease, since: o.Sent})
			return
		}
	}
	l.Mu.Lock()
	l.wanted(len(r.Served) > 0)
	l.Mu.Unlock()
}

// passFor is for how long a tenure may be passed on in memory: without end where the order in the queue needs
// no bound in time, and else what WithStreak says.
func (l *Lock) passFor() time.Duration {
	if l.Kind.Ordered {
		return math.MaxInt64
	}
	return l.S().Streak
}

// Others reports whether other sessions want a lock of such a kind, as far as this one knows. Lock.Mu is not
// held.
func Others(l *Lock) bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	return l.line != nil && l.others
}

func milliseconds(word string) time.Duration {
	return time.Duration(protocol.TokenOrZero(word)) * time.Millisecond
}
