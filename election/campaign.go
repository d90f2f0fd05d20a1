package election

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
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

var (
	// errResigned is the error of Proclaim and Resign after an earlier Resign.
	errResigned = failure.Worded("the leadership has ended: Resign was called before", failure.ErrNotHeld)
	// errNilLeadership is the error of Proclaim and Resign for a nil Leadership.
	errNilLeadership = fmt.Errorf("%w: the Leadership is nil, because Campaign failed: check its error first",
		failure.ErrNotHeld)
)

// A Leadership is the handle of a leader. All methods are safe for concurrent use, and may be called on a nil
// Leadership.
//
// Call Resign for each Leadership. A Leadership counts as forgotten if the program has not called Resign and
// can reach neither the Leadership nor its context any more. When the garbage collector finds a forgotten
// Leadership, the session logs a warning and releases the lock.
type Leadership struct {
	hold     *rlock.Hold
	record   *record
	ended    <-chan struct{} // closed when the context of the leadership ends
	resigned atomic.Bool
	cleanup  runtime.Cleanup // releases the lock if the Leadership is forgotten
}

// leadershipKey is the key of a Leadership in its context.
type leadershipKey struct {
	s    *session.Session
	lock string
}

// of returns the live leadership that ctx descends from, or nil.
func (e *Election) of(ctx context.Context) *Leadership {
	l, _ := ctx.Value(leadershipKey{e.session, e.channel()}).(*Leadership)
	if l.Err() != nil {
		return nil
	}
	return l
}

// maxLost is the number of times that one Campaign may get the lock and lose it again before Redis has stored
// the value. After the last of these losses, Campaign returns an error.
const maxLost = 8

// Campaign waits until the caller has the lock of the election, and then stores the value. The value may have
// at most [MaxValue] bytes. When Redis has stored the value, the caller leads. Campaign then returns the
// Leadership and a context for the leader's work. This context is canceled when the leadership ends. Its
// cause then matches [rlock.ErrLost] after a loss, [rlock.ErrClosed] if the session was closed, or
// [rlock.ErrNotHeld] after Resign. If the lease ends, the context is canceled before another candidate can
// lead. The context also ends when ctx ends, but the end of ctx does not end the leadership. So call Resign
// in any case.
//
// If ctx descends from a live leadership of this election and session, Campaign does not wait for the lock.
// It calls [Leadership.Proclaim] of this leadership. Then it returns ctx, this leadership, and the error of
// Proclaim, which is nil after a success. Any other call of Campaign is a separate candidate, even if its
// context has the same owner as the context of another call (see [rlock.WithOwner]).
//
// Campaign blocks until the caller leads, or until ctx or the session ends. In an outage of Redis, Campaign
// keeps waiting. But if ctx has no deadline, Campaign returns an error when the outage has lasted for the
// session's watchdog timeout.
//
// After an error, Campaign returns ctx itself. Unless the error comes from Proclaim, the Leadership is nil,
// and the caller has nothing to release. If an unanswered request may have taken the lock, the session
// releases the lock in the background. The error matches
//   - ctx.Err() and context.Cause(ctx), if ctx ended;
//   - [rlock.ErrClosed], if the session is closed or closes meanwhile;
//   - [rlock.ErrLost], if ctx descends from a leadership that was lost, or if the caller got the lock eight
//     times, and lost it each time before the value was stored.
//
// Any other error is an error of go-redis, or the error of a mistake, such as a value that is too long.
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
		// The lease is fixed only because a grant with a fixed lease is never passed on in memory. So each
		// leader has its own grant in Redis. The function assume switches the renewal of this lease on. The
		// hold is added to no owner, even if ctx has one (rlock.WithOwner). Otherwise other goroutines of
		// that owner would nest in this hold, and would lead, too.
		held, hold, err := e.lock.Lock(handle.As(ctx, nil), rlock.WithLease(e.session.Lease))
		if err != nil {
			return ctx, nil, ofCampaign(err)
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

// If err has a hint about Lock, ofCampaign replaces this hint with a hint about Campaign.
func ofCampaign(err error) error {
	before, after, ok := strings.Cut(err.Error(), failure.SelfHint)
	if !ok {
		return err
	}
	const hint = " (held by this same session: if the leader called this Campaign, " +
		"it must pass the context that its own Campaign returned)"
	return failure.Worded(before+hint+after, err)
}

// assume makes a Leadership from a hold of the lock. If assume fails, it releases the lock in the background.
func (e *Election) assume(held context.Context, hold *rlock.Hold, value string) (*Leadership, error) {
	entry := (*handle.Hold)(hold).Of().(*engine.Entry)
	entry.Renew(true) // a fixed lease is not renewed by default, but this one must be
	l := &Leadership{hold: hold, ended: held.Done(),
		record: &record{e: e, owner: entry.OwnerField(), token: protocol.Number(hold.Token())}}
	l.record.set(value)
	if err := l.record.persist(held, hold); err != nil {
		e.background(func() { _ = l.giveBack(e.session.Ctx) })
		return nil, err
	}
	r, ended := l.record, l.ended // the goroutine must not keep a forgotten Leadership reachable
	e.background(func() { r.keep(ended) })
	l.cleanup = runtime.AddCleanup(l, (*engine.Entry).Forgotten, entry)
	handle.Keep(l)
	return l, nil
}

// background runs f in the background and returns true. If the session is closing, background does not run f,
// and returns false. A closing session releases its locks itself.
func (e *Election) background(f func()) bool {
	s := e.session
	if !s.Begin() {
		return false
	}
	defer s.End()
	s.Go(f)
	return true
}

// Proclaim replaces the leader's value. The new value has at most [MaxValue] bytes. Proclaim blocks for the
// reply, at most until ctx ends. If ctx has no deadline, Proclaim blocks for at most the watchdog timeout of
// the session. The value of the latest call counts, even if the requests of several calls arrive in another
// order. Proclaim returns
//   - nil if this value or a newer value is stored;
//   - [rlock.ErrNotHeld] after Resign, and for a nil Leadership;
//   - [rlock.ErrLost] if the leadership was lost, or [rlock.ErrClosed] if the session was closed.
//
// If ctx is nil or the value is too long, Proclaim returns an error and does not store the value. Any other
// error comes from go-redis, matches ctx.Err() if ctx ended, or matches os.ErrDeadlineExceeded if Redis has
// not replied within the watchdog timeout. After such an error, it is not known whether Redis has stored the
// value. Until the context that Campaign returned has ended, the session sends the newest value again after
// each third of the lease.
func (l *Leadership) Proclaim(ctx context.Context, value string) error {
	if l == nil || l.hold == nil {
		return errNilLeadership
	}
	e := l.record.e
	if err := e.check(ctx); err != nil {
		return err
	}
	if err := e.checkValue(value); err != nil {
		return err
	}
	if l.resigned.Load() {
		return e.fail(errResigned)
	}
	if err := l.Err(); err != nil {
		return e.fail(err)
	}
	l.record.set(value)
	err := l.record.store(ctx)
	if errors.Is(err, failure.ErrLost) {
		// If Resign was called meanwhile, its release usually explains why Redis no longer has the hold.
		if l.resigned.Load() {
			return e.fail(errResigned)
		}
		_ = l.hold.Extend(ctx, e.session.Lease) // Extend notices the loss, and ends the context
	}
	return err
}

// Resign ends the leadership and hands the lock over to the next candidate. The session stays open. First the
// context of the leadership ends. Then Resign sends two requests, which release the lock and delete the
// value. ctx bounds only the wait for their replies. If ctx is nil, can never end, or has ended already, the
// bound is 5 s. Resign returns
//   - nil if this call has released the lock;
//   - [rlock.ErrNotHeld] if Resign was called before, or if the Leadership is nil. Such a call does nothing;
//   - [rlock.ErrLost] if the leadership had been lost before;
//   - [rlock.ErrClosed] if the session has closed and released the lock.
//
// Any other error comes from go-redis, or means that the wait for the replies has ended. In the second case,
// it matches ctx.Err() or context.DeadlineExceeded. After any such error, it is not known whether Redis has
// released the lock. The session sends the release again in the background until the lease has expired,
// unless the error says "not tried again". Until the lease has expired, observers may still see this leader.
//
// After every result, the context of the leadership has ended, and the caller must assume that another
// candidate leads.
func (l *Leadership) Resign(ctx context.Context) error {
	if l == nil || l.hold == nil {
		return errNilLeadership
	}
	if ctx == nil { // the caller's mistake, but the leadership must end all the same
		ctx = context.Background()
	}
	e := l.record.e
	if err := e.check(ctx); err != nil {
		return err
	}
	if !l.resigned.CompareAndSwap(false, true) {
		return e.fail(errResigned)
	}
	l.cleanup.Stop()
	handle.Drop(l)
	done := make(chan error, 1)
	if !e.background(func() { done <- l.giveBack(context.WithoutCancel(ctx)) }) {
		wait, cancel := handle.UnlockBound(ctx)
		defer cancel()
		return l.hold.Unlock(wait) // Session.Close releases the lock, and Unlock returns the outcome
	}
	<-l.ended                               // giveBack ends the context before it sends a request
	wait, cancel := handle.UnlockBound(ctx) // ctx has ended by now if it is the context of the leadership
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-wait.Done():
		return e.fail(failure.OfContext(wait))
	}
}

// giveBack ends the leadership in Redis, and deletes its value there. If the value cannot be deleted and no
// other candidate leads, observers notice the end of the leadership only when the lease would have expired.
// The caller must be counted as work of the session (Session.Begin).
func (l *Leadership) giveBack(ctx context.Context) error {
	err := l.hold.Unlock(ctx)
	// The value is deleted after the release, so that a late request of Proclaim cannot store the value
	// again.
	if r := l.record; err == nil {
		_, _ = r.e.do(ctx, retractScript, r.owner, r.token)
	}
	return err
}

// Token returns the fencing token, which is larger than the tokens of all earlier leaders. A database can
// refuse a request with a token that is smaller than the largest token that the database has seen. Token
// returns 0 for a nil Leadership.
func (l *Leadership) Token() int64 {
	if l == nil {
		return 0
	}
	return l.hold.Token()
}

// Err returns nil while the leadership lasts. After that, it returns [rlock.ErrNotHeld] if the leader has
// resigned, [rlock.ErrLost] after a loss, or [rlock.ErrClosed] if the session was closed. For a nil
// Leadership, Err returns [rlock.ErrNotHeld]. Err compares the end of the lease with the local clock. So in a
// process that was stopped, Err reports the loss even before the context ends (see [rlock.Hold.Err]).
func (l *Leadership) Err() error {
	if l == nil || l.resigned.Load() {
		return failure.ErrNotHeld
	}
	return l.hold.Err()
}

// A record stores the value of a leadership in Redis. It must not refer to its Leadership. Otherwise the
// goroutine that runs keep would keep a forgotten Leadership reachable.
type record struct {
	e            *Election
	owner, token string

	mu     sync.Mutex // guards the fields below; no other mutex is locked while mu is held
	number int64      // number of the value, counted from 1
	value  string
}

// set makes value the newest value.
func (r *record) set(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	r.value = value
}

// store sends the newest value, and waits for the reply at most until ctx ends. If the lock was lost, it
// returns ErrLost.
func (r *record) store(ctx context.Context) error {
	r.mu.Lock()
	number, value := r.number, r.value
	r.mu.Unlock()
	o, err := r.e.do(ctx, proclaimScript, r.owner, r.token, number, value, r.e.session.Args.Retention)
	switch {
	case err != nil:
		return err
	case o.Reply != "K":
		return r.e.fail(failure.ErrLost)
	}
	return nil
}

// persist stores the first value. In an outage, it tries again while the lock is held. It returns nil only if
// the value is stored and the lock is still held.
func (r *record) persist(held context.Context, hold *rlock.Hold) error {
	for try := 1; ; try++ {
		err := r.store(held)
		over := hold.Err() // checked even after a success: the lease may have expired before the reply
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

// keep stores the newest value again after each third of the lease, in case Redis has lost it. It returns
// when the context of the leadership has ended.
func (r *record) keep(ended <-chan struct{}) {
	s := r.e.session
	for {
		select {
		case <-ended: // also closed when the session closes, or the context given to Campaign ends
			return
		case <-time.After(s.Lease / 3):
			// The error is ignored. After the next third of the lease, the value is sent again, and the
			// renewal of the lock reports an outage.
			_ = r.store(s.Ctx)
		}
	}
}
