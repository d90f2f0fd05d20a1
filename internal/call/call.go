// Package call makes requests whose caller may leave before they are answered, and waits for what may end
// before it comes. Begin with Bounds, which says what ends either.
//
// A request that was sent may have run, whatever becomes of its call. So a caller that leaves abandons its
// call. A call is in flight, then answered or abandoned, whichever is first, and only once. The answer
// belongs to the caller. An abandoned call is rolled back, once, by a goroutine that is counted in the
// session's work.
//
// The rule of bounds: every bound of a call that is known when a request begins is a deadline of that
// request. The caller's context sets one, or WaitAtMost, or the library, for a call without a deadline. The
// call returns at its bound even if its request is stuck (Ask).
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
	// Send sends at most maxTries copies, and blocks until one of them is answered. ctx has the bounds of the
	// call as a deadline. abandoned is set when the caller has left.
	Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome
	// RollBack ends what came of an abandoned request.
	RollBack(o wire.Outcome)
}

// Func is the Send of a Request of which nothing has to be rolled back.
type Func func(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome

func (f Func) Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
	return f(ctx, maxTries, abandoned)
}
func (Func) RollBack(wire.Outcome) {}

var never atomic.Bool // of a caller that can't leave

// Ask sends a request, and waits for the reply as long as b lasts. If b has no deadline, it waits for atMost.
// A reply that comes at the very end counts. Otherwise ok is false, and the request is rolled back when it is
// answered.
//
// The first copy is sent by the caller's goroutine, unless that could take longer than the call may. Further
// copies are sent by another goroutine.
func Ask(
	b *Bounds, s *session.Session, key string, r Request, atMost time.Duration,
) (o wire.Outcome, ok bool) {
	begun := time.Now()
	if !s.Link.NeedsGoroutine(b.Until, key, atMost) {
		if o = r.Send(b.Until, 1, &never); !o.Again {
			return o, true
		}
	}
	ctx := b.Until
	if _, bounded := ctx.Deadline(); !bounded {
		until, cancel := context.WithDeadline(ctx, begun.Add(atMost))
		defer cancel()
		ctx = until
	}
	return apart(&Bounds{Until: ctx, Closing: b.Closing}, s, r, o.Unanswered)
}

// Do is Ask for a caller that is not counted in the work of s, as long as ctx and s last. Without a deadline,
// it waits for as long as the lease of the session, because an outage may last so long. If an answer is
// an error, what came of the request is rolled back. what is a noun for errors, as failure.Of has it.
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
	o, answered := Ask(b, s, keys.LockKey(), r, s.Lease)
	switch {
	case !answered && b.Over():
		return o, failure.Of(what, keys.Name, failure.Ended(ctx))
	case !answered: // ctx has no deadline
		return o, failure.Of(what, keys.Name, failure.ErrNoAnswer)
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
		o = r.Send(b.Until, wire.Tries, &abandoned)
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
