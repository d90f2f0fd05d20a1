package queue

import (
	"math"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inbox"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wakeup"
	"github.com/lockline/lockline/internal/wire"
)

// The protocol from end to end:
//
//   - A goroutine that wants the lock joins the cohort that forms (Admit, enqueue, form), which asks (cohort.run, lock.lua). A
//     free lock with no queue is granted at once. Else the attempt is put into the queue under a ticket, the time at which Redis
//     saw it; asking again keeps the place.
//   - While the attempt waits, heartbeats keep it alive (heartbeat.go, heartbeat.lua). One that is silent for the liveness time
//     is passed over.
//   - Whatever finds the lock free grants it to the first attempt that lives, inside its own script (handOver in queue.lua):
//     the release of the holder, a heartbeat, another request, a forced unlock. The session of the new owner learns of it by a
//     message on its own channel, or in the reply if that session was the one that asked. The news goes through package inbox,
//     cohort.Told, then queue.learn and cohort.granted in answer.go.
//   - A cohort that no goroutine waits with any more leaves the queue by a release of its attempt (cohort.withdraw, release.lua).
//
// A cohort is the goroutines of one session that had come when its request was sent, in their order. While a request is
// under way, goroutines that arrive form the next cohort. A cohort is granted as a whole: its goroutines have the lock one after the other, in one tenure.

// queue is a lock whose waiters stand in Redis' queue. It is the mutex.Waiting of locks with a queue.
type queue struct {
	mutex.Lock
	inbox *inbox.Inbox // of the session
	*line              // set with Lock.Mu held, once; nil until it is needed: very many locks may be held
}

// line is what a session knows of those that want the lock. Lock.Mu guards it.
type line struct {
	forming  mutex.List  // goroutines that have not asked yet
	formed   *time.Timer // when they ask at the latest
	expect   int         // how many had the lock one after the other, and may come back
	others   bool        // other sessions want the lock, as far as is known
	asking   *cohort     // whose first request is under way: the next one waits for its end
	standing []*cohort   // those that are asking or queued
	beat     heartbeat
}

// newFair makes a lock whose goroutines always ask in cohorts.
func newFair(s *session.Session) (*mutex.Lock, mutex.Waiting, error) {
	in, err := inbox.Of(s)
	if err != nil {
		return nil, nil, err
	}
	all := &struct {
		queue
		line
	}{queue: queue{inbox: in}}
	all.queue.line = &all.line
	return &all.Lock, &all.queue, nil
}

// newReentrant makes a lock that may never have a waiter.
func newReentrant(s *session.Session) (*mutex.Lock, mutex.Waiting, error) {
	in, err := inbox.Of(s)
	if err != nil {
		return nil, nil, err
	}
	q := &queue{inbox: in}
	return &q.Lock, q, nil
}

// wanted notes whether other sessions want the lock. Mu held.
func (q *queue) wanted(others bool) {
	if q.line == nil {
		if !others {
			return
		}
		q.line = &line{}
	}
	q.others = others
}

// Goroutines that take turns at a lock stay together in the queue if they ask together.
// So goroutines that arrive while this session has the lock wait a moment for its unlock.
// Where other sessions wait, too, they also wait for the goroutine that unlocks last to
// come back: at most formTime, and not longer than formLong if its Unlock takes that long.
// Behind cohorts of this session they wait for formLong, which saves requests.
// Each is about as long as a request takes, so waiting hardly costs them a later place.
const (
	formTime = 200 * time.Microsecond
	formLong = 2 * time.Millisecond
)

// Admit has a newcomer stand in the queue. One that only tries asks once.
func (q *queue) Admit(a *mutex.Acquisition) (*mutex.Entry, error) {
	if a.Try && a.Config.GivesWay && q.line != nil && q.others {
		err := a.LockedHere()
		q.Mu.Unlock()
		return nil, failure.Public(err)
	}
	if !q.Kind.Ordered {
		return q.enter(a)
	}
	if a.Try {
		if q.Tenure() == nil {
			q.Mu.Unlock()
			return q.try(a)
		}
		err := a.LockedHere()
		q.Mu.Unlock()
		return nil, failure.Public(err)
	}
	return q.stand(a)
}

// stand has a newcomer wait in the queue. Mu is held; stand releases it.
func (q *queue) stand(a *mutex.Acquisition) (*mutex.Entry, error) {
	w := a.NewWaiter()
	c := q.enqueue(w)
	q.Mu.Unlock()
	if c != nil {
		c.start(a.Until)
	}
	h, err := q.wait(a, w)
	if err != nil || !h.In {
		return nil, err
	}
	return a.Succeed(h)
}

// wait waits for the answer to w, which stands in the queue, or may come to.
func (q *queue) wait(a *mutex.Acquisition, w *mutex.Waiter) (mutex.Handoff, error) {
	var gone <-chan struct{}
	h, err := a.Wait(w, func(withdrawn bool) {
		c, _ := w.Place.(*cohort)
		if q.refused() {
			a.Advance(mutex.Refused)
		}
		if c != nil && withdrawn {
			gone = c.memberLeft()
		}
	}, func(h mutex.Handoff) {
		if h.Passed() {
			gone = h.Tenure.Decline(a.Ctx, nil)
		} else {
			q.Pass()
		}
	})
	wakeup.AwaitLeaving(gone, q.S().Closing())
	return h, err
}

// refused: Redis has said to this session that it waits. Mu held.
func (q *queue) refused() bool {
	if q.line != nil {
		for _, c := range q.standing {
			if c.redis != 0 {
				return true
			}
		}
	}
	return false
}

// enqueue has a goroutine wait with the next cohort, and returns that if it is to ask now. Mu held.
func (q *queue) enqueue(w *mutex.Waiter) *cohort {
	q.forming.Push(w)
	if !q.Kind.Ordered {
		return q.form()
	}
	long := q.behindOwn()
	switch {
	case q.Tenure() == nil && q.forming.Len() >= q.expect && !long:
		return q.form()
	case q.forming.First() != w:
	case long:
		q.formWithin(formLong)
	default:
		q.formWithin(formTime)
	}
	return nil
}

// behindOwn: as far as is known, only this session's cohorts stand before the goroutines that form the next one.
// So these lose nothing by waiting for more to join. Mu held.
func (q *queue) behindOwn() bool { return !q.others && len(q.standing) > 0 }

// formWithin lets the next cohort ask after d at the latest. Mu held.
func (q *queue) formWithin(d time.Duration) {
	if q.formed == nil {
		q.formed = time.AfterFunc(d, q.askNow)
	} else {
		q.formed.Reset(d)
	}
}

func (q *queue) askNow() {
	if !q.S().Begin() {
		return
	}
	defer q.S().End()
	q.Mu.Lock()
	defer q.Mu.Unlock()
	q.ask()
}

// ask sends the next cohort's request, if there is one and none is under way. The caller must be counted in the
// session's work. Mu held.
func (q *queue) ask() {
	if c := q.form(); c != nil {
		go c.run()
	}
}

// unlocked is called when a tenure is over, and when Redis has been told. Mu held.
func (q *queue) unlocked(told bool) {
	switch {
	case q.forming.First() == nil && !told:
	case q.behindOwn(): // their time runs
	case !q.others:
		q.ask()
	case told:
		q.formWithin(formTime)
	default:
		q.formWithin(formLong)
	}
}

// Waits: some goroutine of this session waits in the queue, or to ask.
func (q *queue) Waits() bool {
	return q.line != nil && (q.forming.First() != nil || len(q.standing) > 0)
}

// Stands: heartbeats report the holder of the lock.
func (q *queue) Stands() *time.Time { return nil }

// Ended leaves the root gate, from which no goroutine competes. Goroutines that were granted the lock together, and could
// not have it passed on, ask again. Where the kind is not Ordered, the next goroutine does so once Redis was told.
func (q *queue) Ended() {
	if !q.Kind.Ordered {
		return
	}
	q.Root.Clear()
	q.Root.Waiters.Recheck()
	q.unlocked(false)
}

// Lost has the other goroutines of the same grant ask again. The next cohort does not wait for them.
func (q *queue) Lost() {
	if !q.Kind.Ordered {
		return
	}
	q.Root.Waiters.Recheck()
	q.expect = 0
}

// Released lets the next cohort ask.
func (q *queue) Released(_ *mutex.Tenure, o wire.Outcome) {
	if !q.Kind.Ordered {
		q.remember()
		q.Pass()
		return
	}
	q.Mu.Lock()
	q.unlocked(true)
	if o.Unanswered != nil && len(q.standing) > 0 { // the lost reply may have reported a grant to this session
		q.schedule(0)
	}
	q.Mu.Unlock()
}

// Freed learns which attempt a release made the owner: 'R OWNER TOKEN LEASE' or 'L OWNER TOKEN LEASE'.
func (q *queue) Freed(reply string, sent time.Time) {
	_, next, handed := strings.Cut(reply, " ")
	if words := strings.Fields(next); len(words) == 3 && q.S().Owns(words[0]) {
		q.deliver(words[0], award{token: protocol.TokenOrZero(words[1]), lease: milliseconds(words[2]), since: sent})
		return
	}
	q.Mu.Lock()
	q.wanted(handed)
	q.Mu.Unlock()
}

// PassFor is without end where the order in the queue needs no bound in time, and else what WithStreak says.
func (q *queue) PassFor() time.Duration {
	if q.Kind.Ordered {
		return math.MaxInt64
	}
	return q.S().Streak
}

// Others reports whether other sessions want a lock of such a kind, as far as this one knows. Lock.Mu is not held.
func Others(l *mutex.Lock) bool {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	q := l.Waiting().(*queue)
	return q.line != nil && q.others
}

// Idle has nothing to end.
func (q *queue) Idle() {}

func milliseconds(word string) time.Duration {
	return time.Duration(protocol.TokenOrZero(word)) * time.Millisecond
}
