package election

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// Leadership is what a leader has until it resigns or loses the lock. All methods are safe for concurrent
// use, and on a nil Leadership.
//
// Resign each one. One that is forgotten is resigned and logged, once neither the Leadership nor its context
// can be reached any more.
type Leadership struct {
	hold     *rlock.Hold
	record   *record
	ended    <-chan struct{} // closed with the context
	resigned atomic.Bool
	cleanup  runtime.Cleanup // of one that is forgotten
}

// leadershipKey is that of a Leadership in its context.
type leadershipKey struct {
	s    *session.Session
	lock string
}

// of is the live leadership that ctx descends from, or nil.
func (e *Election) of(ctx context.Context) *Leadership {
	l, _ := ctx.Value(leadershipKey{e.session, e.channel()}).(*Leadership)
	if l.Err() != nil {
		return nil
	}
	return l
}

// maxLost bounds how often a candidate begins again that has lost the lock before it could lead.
const maxLost = 8

// Campaign waits until the caller leads. Then it stores the value, of at most [MaxValue] bytes, and returns
// the context to go on with and the Leadership. That context is canceled when the leadership ends: with cause
// [rlock.ErrLost] before Redis gives the lock to another candidate, with [rlock.ErrClosed] if the session is
// closed, and with [rlock.ErrNotHeld] by Resign. It also inherits the end of ctx. The leadership itself does
// not end with ctx. Resign it.
//
// If ctx descends from a live leadership of this election and session, Campaign is [Leadership.Proclaim]. It
// returns ctx and that Leadership then, also with an error. Each other call is a candidate of its own, also
// below one [rlock.WithOwner].
//
// It blocks until ctx ends. On error the context is the one given and the Leadership is nil, but for the case
// above. Nothing is left behind. What an unanswered request may have taken is given back in the background.
// The error matches
//   - ctx.Err() and context.Cause(ctx), if ctx ended;
//   - [rlock.ErrClosed], if the session is closed or closes meanwhile;
//   - [rlock.ErrLost], if ctx descends from a leadership that was lost, or if the lock was lost eight times
//     in a row before the value could be stored;
//   - else it is an error of go-redis. An outage only lengthens the wait, as of [rlock.Mutex.Lock].
func (e *Election) Campaign(ctx context.Context, value string) (context.Context, *Leadership, error) {
	if err := e.check(ctx); err != nil {
		return ctx, nil, err
	}
	if l := e.of(ctx); l != nil {
		return ctx, l, l.Proclaim(ctx, value)
	}
	if err := e.checkValue(value); err != nil {
		return ctx, nil, err
	}
	for lost := 1; ; lost++ {
		// A grant whose lease is of its own choice is passed to no other goroutine in memory, so Redis knows
		// each leader. An owner that ctx has does not note it: others below it would lead, too.
		held, hold, err := e.lock.Lock(handle.As(ctx, nil), rlock.WithLease(e.session.Lease))
		if err != nil {
			return ctx, nil, err
		}
		l, err := e.assume(held, hold, value)
		if err == nil {
			led := handle.As(held, handle.OwnerOf(ctx))
			return context.WithValue(led, leadershipKey{e.session, e.channel()}, l), l, nil
		}
		if !errors.Is(err, failure.ErrLost) || lost == maxLost {
			return ctx, nil, err
		}
	}
}

// assume makes a leadership of the lock. If it cannot, the lock is given back in the background.
func (e *Election) assume(held context.Context, hold *rlock.Hold, value string) (*Leadership, error) {
	entry := (*handle.Hold)(hold).Of().(*engine.Entry)
	entry.Renew(true) // though it is of its own choice
	l := &Leadership{hold: hold, ended: held.Done(),
		record: &record{e: e, owner: entry.OwnerField(), token: protocol.Number(hold.Token())}}
	l.record.set(value)
	if err := l.record.persist(held, hold); err != nil {
		e.background(func() { _ = l.giveBack(e.session.Ctx) })
		return nil, err
	}
	r, ended := l.record, l.ended // neither refers to the Leadership, which its user may forget
	e.background(func() { r.keep(ended) })
	l.cleanup = runtime.AddCleanup(l, (*engine.Entry).Forgotten, entry)
	handle.Keep(l)
	return l, nil
}

// background runs f in the background, unless the session ends, which gives back what it has. It reports
// whether it does.
func (e *Election) background(f func()) bool {
	s := e.session
	if !s.Begin() {
		return false
	}
	defer s.End()
	s.Go(f)
	return true
}

// Proclaim replaces the leader's value, of at most [MaxValue] bytes. It blocks for one request, not longer
// than ctx. Of several values the one that was proclaimed last counts, in whatever order their requests
// arrive. It returns
//   - nil: the value is stored, or a newer one already is;
//   - [rlock.ErrNotHeld] after Resign, or for a nil Leadership;
//   - [rlock.ErrLost] or [rlock.ErrClosed] if the leadership has ended;
//   - else an error of ctx or of go-redis: whether the value is stored is not known. If it is still the
//     newest one, the next renewal of the leadership stores it, after a third of the lease at most.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if l == nil || l.hold == nil {
		return failure.ErrNotHeld
	}
	e := l.record.e
	if err := e.check(ctx); err != nil {
		return err
	}
	if err := e.checkValue(value); err != nil {
		return err
	}
	if err := l.Err(); err != nil {
		return e.fail(err)
	}
	l.record.set(value)
	err := l.record.store(ctx)
	if errors.Is(err, failure.ErrLost) {
		_ = l.hold.Extend(ctx, e.session.Lease) // finds out, and ends the context
	}
	return err
}

// Resign ends the leadership and hands the lock to the next candidate. The session lives on. The context ends
// before Redis is told. ctx bounds only the wait for the answers to two requests. If ctx is nil, never ends,
// or has ended, the bound is 5 s. It returns
//   - nil: the leadership has ended;
//   - [rlock.ErrNotHeld] for a second call, or for a nil Leadership, which does nothing;
//   - [rlock.ErrLost] if the leadership had been lost before;
//   - [rlock.ErrClosed] if the session gave it back;
//   - else an error of ctx or of go-redis: whether Redis was told is not known. It is tried again in the
//     background until the lease is over, unless the error says that it is not. Observers may see the end
//     only then.
//
// Whatever it returns, the context has ended. Act as if another one leads.
func (l *Leadership) Resign(ctx context.Context) error {
	if l == nil || l.hold == nil {
		return failure.ErrNotHeld
	}
	if ctx == nil { // the caller's mistake, but the leadership must end all the same
		ctx = context.Background()
	}
	e := l.record.e
	if err := e.check(ctx); err != nil {
		return err
	}
	if !l.resigned.CompareAndSwap(false, true) {
		return e.fail(failure.ErrNotHeld)
	}
	l.cleanup.Stop()
	handle.Drop(l)
	wait, cancel := handle.UnlockBound(ctx)
	defer cancel()
	done := make(chan error, 1)
	if !e.background(func() { done <- l.giveBack(context.WithoutCancel(ctx)) }) {
		return l.hold.Unlock(wait) // Close has given it back, or does so now
	}
	<-l.ended // before anything is sent
	select {
	case err := <-done:
		return err
	case <-wait.Done():
		return e.fail(failure.OfContext(wait))
	}
}

// giveBack ends the leadership in Redis, and deletes its value there. If that fails, observers look when the
// lease is over. The caller is counted in the session's work.
func (l *Leadership) giveBack(ctx context.Context) error {
	err := l.hold.Unlock(ctx)
	if r := l.record; err == nil { // behind the release, or a late copy of a Proclaim could store it again
		_, _ = r.e.do(ctx, retractScript, r.owner, r.token)
	}
	return err
}

// Token is the fencing token: larger than that of every leader before. What the leader changes can refuse a
// request whose token is smaller than one it has seen. 0 of a nil Leadership.
func (l *Leadership) Token() int64 {
	if l == nil {
		return 0
	}
	return l.hold.Token()
}

// Err is nil while the leadership lasts, and then says why it has ended: [rlock.ErrNotHeld] after Resign,
// [rlock.ErrLost], or [rlock.ErrClosed]. It looks at the clock, so a process that stood still finds a lease
// that is over.
func (l *Leadership) Err() error {
	if l == nil || l.resigned.Load() {
		return failure.ErrNotHeld
	}
	return l.hold.Err()
}

// record is the value of a leadership in Redis. It must not refer to a Leadership, which its user may forget.
type record struct {
	e            *Election
	owner, token string

	mu     sync.Mutex // guards what follows; a leaf
	number int64      // of the value, which counts on from 1
	value  string
}

// set makes value the newest one.
func (r *record) set(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	r.value = value
}

// store sends the newest value and blocks for the answer, not longer than ctx.
func (r *record) store(ctx context.Context) error {
	r.mu.Lock()
	number, value := r.number, r.value
	r.mu.Unlock()
	o, err := r.e.do(ctx, proclaimScript, r.owner, r.token, number, value, r.e.session.Args.Keep)
	switch {
	case err != nil:
		return err
	case o.Reply != "K":
		return r.e.fail(failure.ErrLost)
	}
	return nil
}

// persist stores the first value, also through an outage, while the lock is held. It returns nil only if the
// lock is held still.
func (r *record) persist(held context.Context, hold *rlock.Hold) error {
	for try := 1; ; try++ {
		err := r.store(held)
		over := hold.Err() // also if that succeeded: its reply may have come when the lease was over
		switch {
		case over != nil:
			return r.e.fail(over)
		case err == nil:
			return nil
		case errors.Is(err, failure.ErrLost), !wire.Judge(err).Unsettled(),
			!wire.Pause(held, wire.Backoff(try, 20*time.Millisecond, 500*time.Millisecond)):
			return err
		}
	}
}

// keep stores the newest value again as often as the lock is renewed, in case Redis loses it, until the
// leadership has ended.
func (r *record) keep(ended <-chan struct{}) {
	s := r.e.session
	for {
		select {
		case <-ended: // as it does when the session closes
			return
		case <-time.After(s.Lease / 3):
			_ = r.store(s.Ctx) // the lock's own renewal reports what is wrong
		}
	}
}
