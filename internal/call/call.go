// Package call makes requests whose caller may leave before they are answered, and waits for what may end
// before it comes. Begin with Bounds, which says what ends either.
//
// A request is never interrupted: go-redis reads on when a context ends, and what was sent may have run. So a
// caller that leaves abandons its call. A call is under way, then answered or abandoned, whichever is first,
// and only once. An answered one is its caller's. An abandoned one is rolled back, once, by a goroutine that
// is counted in the session's work.
package call

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Bounds is what may end a wait.
type Bounds struct {
	Until   context.Context // of the call, with its WaitAtMost
	Closing <-chan struct{} // when the session ends
}

// Over reports whether a bound has ended.
func (b *Bounds) Over() bool { return b.Until.Err() != nil || wire.Closed(b.Closing) }

// Endures reports whether a call that began at begun goes on in an outage that began at failing: until a
// deadline of its own, or else for so long.
func (b *Bounds) Endures(failing, begun time.Time, long time.Duration) bool {
	if _, bounded := b.Until.Deadline(); bounded {
		return true
	}
	if failing.Before(begun) {
		failing = begun
	}
	return time.Since(failing) <= long
}

// Sleep waits for news, for d at most. news may be nil. ended: it was neither, but a bound.
func (b *Bounds) Sleep(d time.Duration, news <-chan struct{}) (heard, ended bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-news:
		return true, false
	case <-t.C:
		return false, false
	case <-b.Until.Done():
	case <-b.Closing:
	}
	return false, true
}

// Await receives from c, or reports false when a bound ended that.
func Await[T any](b *Bounds, c <-chan T) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-b.Until.Done():
	case <-b.Closing:
	}
	return v, false
}

// LeavingTime bounds how long a wait that is over waits for Redis to learn it.
const LeavingTime = 100 * time.Millisecond

// AwaitLeaving lets a waiter return only when it has left its queue in Redis, if Redis answers in time: it
// should not be granted anything after its call has returned. The request itself goes on in the background,
// and Shutdown waits for it. gone may be nil.
func AwaitLeaving(gone, closing <-chan struct{}) {
	if gone == nil {
		return
	}
	until, cancel := context.WithTimeout(context.Background(), LeavingTime)
	defer cancel()
	Await(&Bounds{Until: until, Closing: closing}, gone)
}

// Request is a request whose caller may leave before it is answered.
type Request interface {
	// Send sends it, most times at most, and blocks for the answer. abandoned says that the caller has left.
	Send(most int, abandoned *atomic.Bool) wire.Outcome
	// RollBack ends what came of an abandoned request.
	RollBack(o wire.Outcome)
}

// Func is the Send of a Request of which nothing has to be rolled back.
type Func func(most int, abandoned *atomic.Bool) wire.Outcome

func (f Func) Send(most int, abandoned *atomic.Bool) wire.Outcome { return f(most, abandoned) }

func (Func) RollBack(wire.Outcome) {}

var never atomic.Bool // of a caller that can't leave

// Ask sends a request and waits for the answer as long as b lasts, and not longer than atMost if b does not
// end by itself, unless that is 0. An answer counts that comes with the end. If the end is first, ok is
// false, and the request is rolled back once it is answered.
//
// The first copy is sent in the caller's goroutine, which no bound ends, unless Redis is silent
// (wire.Link.Silent). Further ones are sent in another.
func Ask(
	b *Bounds, s *session.Session, silent bool, r Request, atMost time.Duration,
) (o wire.Outcome, ok bool) {
	if !silent {
		if o = r.Send(1, &never); !o.Again {
			return o, true
		}
	}
	if atMost > 0 && b.Until.Done() == nil {
		until, cancel := context.WithTimeout(b.Until, atMost)
		defer cancel()
		b = &Bounds{Until: until}
	}
	return apart(b, s, r, o.Unanswered)
}

// Do is Ask for a caller that is not counted in the work of s, as long as ctx and s last. If an answer is an
// error, what came of the request is rolled back. what is a noun for errors, as failure.Of has it.
func Do(
	ctx context.Context, s *session.Session, keys *protocol.Keys, what string, r Request,
) (wire.Outcome, error) {
	if ctx.Err() != nil { // nothing is sent for a caller that has left already
		return wire.Outcome{}, failure.Of(what, keys.Name, failure.OfContext(ctx))
	}
	if !s.Begin() {
		return wire.Outcome{}, failure.Of(what, keys.Name, failure.ErrClosed)
	}
	defer s.End()
	b := &Bounds{Until: ctx, Closing: s.Closing()}
	o, answered := Ask(b, s, s.Link.Silent(ctx, keys.LockKey()), r, 0)
	switch {
	case !answered:
		return o, failure.Of(what, keys.Name, failure.Ended(ctx))
	case o.Err != nil:
		s.Go(func() { r.RollBack(o) })
		return o, keys.Failed(what, o.Err)
	}
	return o, nil
}

// apart sends a request in a goroutine of its own. earlier is the error of a copy that was not answered, and
// may have run.
func apart(b *Bounds, s *session.Session, r Request, earlier error) (wire.Outcome, bool) {
	var abandoned atomic.Bool // set by the caller that leaves, or by the answer, whichever is first
	var o wire.Outcome
	done := make(chan struct{}) // closed when o is there, and the caller's
	s.Go(func() {
		o = r.Send(wire.Tries, &abandoned)
		o.Unanswered = cmp.Or(o.Unanswered, earlier)
		if abandoned.CompareAndSwap(false, true) {
			close(done)
		} else {
			r.RollBack(o)
		}
	})
	if _, ok := Await(b, done); !ok && abandoned.CompareAndSwap(false, true) {
		return wire.Outcome{}, false
	}
	<-done // also if it was answered in that instant
	return o, true
}
