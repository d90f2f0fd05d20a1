// Package call sends requests whose callers may leave before the reply arrives. It also has the bounds of a
// call, and the loop of a goroutine that follows a value in Redis (Watch). Begin with Bounds.
//
// A request that was sent may run even if its caller leaves. So a caller that leaves abandons its request.
// Each request is either answered or abandoned, and never both. If it is answered, the reply belongs to the
// caller. If it is abandoned, a goroutine that is counted in the session's work rolls the request back once.
//
// The bound of a call is the deadline of the caller's context or the end of WaitAtMost, whichever is earlier.
// If there is neither, the library limits the wait for the reply. The call returns at its bound even if its
// request is stuck (see [Ask]). File reading.go of package wire describes the exceptions.
package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// Bounds are a context and a session. A wait ends when one of these two bounds ends.
type Bounds struct {
	Until   context.Context // the call's context, with the bound of WaitAtMost
	Closing <-chan struct{} // closed when Shutdown of the session begins; nil means never
}

// Over reports whether a bound has ended.
func (b *Bounds) Over() bool { return b.Until.Err() != nil || wire.Closed(b.Closing) }

// ToleratesOutage reports whether a call that began at begun keeps waiting in an outage that began at
// failing. A call with a deadline keeps waiting, because the deadline will end its wait. Any other call waits
// until OutageIsTooLong returns true.
func (b *Bounds) ToleratesOutage(failing, begun time.Time, atMost time.Duration) bool {
	_, bounded := b.Until.Deadline()
	return bounded || !OutageIsTooLong(failing, begun, atMost)
}

// OutageIsTooLong reports whether a call has waited in an outage for more than atMost. The outage began at
// the time failing, and the call at the time begun.
func OutageIsTooLong(failing, begun time.Time, atMost time.Duration) bool {
	if failing.Before(begun) {
		failing = begun
	}
	return time.Since(failing) > atMost
}

// Sleep waits until there is news, a bound ends, or d has passed. news may be nil. notified is true if there
// was news, and ended is true if a bound ended the wait.
func (b *Bounds) Sleep(d time.Duration, news <-chan struct{}) (notified, ended bool) {
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

// Await receives from c. If a bound ends before a value arrives or c is closed, ok is false.
func Await[T any](b *Bounds, c <-chan T) (v T, ok bool) {
	select {
	case v = <-c:
		return v, true
	case <-b.Until.Done():
	case <-b.Closing:
	}
	return v, false
}

// LeavingTime is the longest time for which AwaitLeaving blocks.
const LeavingTime = 100 * time.Millisecond

// A call whose wait has ended calls AwaitLeaving, which waits until the attempt of the call is withdrawn from
// Redis. Otherwise the attempt could get the lock after the call has returned. gone is closed when the
// attempt is withdrawn; nil means that there is nothing to withdraw.
//
// After LeavingTime, or when Shutdown of the session begins, AwaitLeaving returns in any case. Then the
// request that withdraws the attempt continues in the background, and Shutdown waits for it.
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
	// Send sends at most maxTries copies, and blocks until one of them is answered or no further copy is sent
	// (wire.Link.Call). The deadline of ctx is the bound of the call. abandoned is set when the caller has
	// left.
	Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome
	// RollBack undoes the effect of a request that was abandoned or has failed.
	RollBack(o wire.Outcome)
}

// Func is the Send method of a Request whose effect need not be rolled back.
type Func func(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome

func (f Func) Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
	return f(ctx, maxTries, abandoned)
}
func (Func) RollBack(wire.Outcome) {}

var never atomic.Bool // never set, because a caller that sends its request itself cannot leave

// Ask sends a request, and waits for the reply until a bound of b ends. If b has no deadline, the wait takes
// at most atMost. A reply that arrives just when the wait ends still counts. If there is no reply in time, ok
// is false, and r.RollBack is called in the background when r.Send has returned.
//
// The first copy is sent by the caller's goroutine, unless its reply could take longer than the call may
// take. Further copies are sent by another goroutine.
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

// Do sends a request like [Ask], for a caller that is not counted in the work of s. Do waits for the reply
// until ctx ends or Shutdown of s begins. If ctx has no deadline, Do waits for at most the session's lease,
// because an outage may last that long. If the request has failed, Do calls r.RollBack in the background. The
// argument noun is passed to failure.Of.
func Do(
	ctx context.Context, s *session.Session, keys *protocol.Keys, noun string, r Request,
) (wire.Outcome, error) {
	if ctx.Err() != nil { // nothing is sent for a caller that has left already
		return wire.Outcome{}, failure.Of(noun, keys.Name, failure.OfContext(ctx))
	}
	if !s.Begin() {
		return wire.Outcome{}, failure.Of(noun, keys.Name, failure.ErrClosed)
	}
	defer s.End()
	begun := time.Now()
	b := &Bounds{Until: ctx, Closing: s.Closing()}
	o, answered := Ask(b, s, keys.LockKey(), r, s.Lease)
	switch {
	case !answered:
		return o, Unanswered(b, s, keys, noun, begun)
	case o.Err != nil:
		s.Go(func() { r.RollBack(o) })
		if ctx.Err() != nil && timedOut(o.Err) { // the client has ended the request with ctx
			return o, Unanswered(b, s, keys, noun, begun)
		}
		return o, keys.Failed(noun, o.Err)
	}
	return o, nil
}

// Unanswered returns the error of a call that began at begun and has stopped waiting for the reply, because a
// bound of b or the library's own limit has ended the wait. If the server is known to have a problem, the
// error names the problem. The argument noun is passed to failure.Of.
func Unanswered(b *Bounds, s *session.Session, keys *protocol.Keys, noun string, begun time.Time) error {
	err := failure.Of(noun, keys.Name, failure.ErrNoAnswer)
	if b.Over() {
		err = failure.Of(noun, keys.Name, failure.Ended(b.Until))
	}
	_, trouble := s.Link.Trouble(b.Until, keys.LockKey())
	if trouble == nil || wire.Silent(trouble) || timedOut(trouble) {
		return failure.Unanswered(err, time.Since(begun), 0, s.Link.SilenceHint())
	}
	return failure.Troubled(err, fmt.Errorf("%w%s", trouble, wire.Hint(trouble)))
}

// timedOut reports whether a request failed because of a timeout, or because its context has ended.
func timedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)
}

// apart sends a request in another goroutine, and waits for the reply until a bound of b ends. earlier is the
// error of an earlier copy that may have run; nil means that there was no such copy.
func apart(b *Bounds, s *session.Session, r Request, earlier error) (wire.Outcome, bool) {
	var abandoned atomic.Bool // set when the caller leaves or the sender has the reply, whichever comes first
	var o wire.Outcome
	done := make(chan struct{}) // closed when o is set and belongs to the caller
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
	<-done // the reply may have arrived in the instant in which the bound ended
	return o, true
}
