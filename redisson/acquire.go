package redisson

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

// An acquisition is one call of Lock or TryLock. It belongs to the goroutine of the call, which takes these
// steps:
//
//	nested in a live hold? --yes--> one more hold of its grant (hold.go)
//	  | no
//	wait for the turn among the goroutines of the session (a try does not wait, but may be refused)
//	  |
//	request --granted--> grant and hold
//	  |   ^ refused
//	  |   '--wait for a message, the end of the lease, or the heartbeat
//	  '--a bound has ended: leave, and release the lock if a copy of a request may have taken it
type acquisition struct {
	l      *lock
	n      *names
	ctx    context.Context
	cfg    engine.Config
	once   bool        // the call is a try, which does not wait for other holders
	bounds call.Bounds // the end of ctx, the time of WaitAtMost, and the closing of the session
	begun  time.Time
	at     *attempt // present attempt; nil before the first request, and after a request was abandoned
	w      waiter   // the place among the goroutines of the session
	first  attempt  // memory for the first attempt, which saves an allocation

	lost         handle.State // state of a lost or closed hold that ctx descends from; Held: there is none
	waitReported bool         // the observer was notified by EventWaiting
	barred       bool         // the call has waited for another hold that is nested in its outer hold
	refused      bool         // Redis has refused the lock
	trouble      error        // error of the last request, if it failed in an outage; otherwise nil
}

// errStays is the error of HoldAtLeast. Redisson's hash has no field for a lock that was unlocked but stays
// taken.
var errStays = errors.New("HoldAtLeast: a lock that is shared with Redisson cannot stay taken")

// acquire waits until the call holds the lock, or tries once. After an error, the call has no hold. If an
// unanswered request may have taken the lock, the lock is released in the background.
func (m *Mutex) acquire(ctx context.Context, cfg engine.Config, try bool) (*hold, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.AtLeast != 0 {
		return nil, failure.Named(m.n.keys.Name, errStays)
	}
	l := m.all.use(m.n)
	defer l.drop()
	a := &acquisition{l: l, n: m.n, ctx: ctx, cfg: cfg, once: cfg.Once(try), begun: time.Now()}
	a.w.a = a
	h, err := a.run()
	if err != nil && !errors.Is(err, wire.ErrUnsent) {
		l.observe(ctx, session.Event{Kind: session.EventNotAcquired, Wait: time.Since(a.begun), Err: err})
	}
	return h, err
}

func (a *acquisition) run() (*hold, error) {
	l := a.l
	s := l.s
	if !s.Begin() {
		return nil, l.fail(failure.ErrClosed)
	}
	defer s.End() // until End, Shutdown waits for this call, and the call may use s.Go
	until, stop := a.cfg.Until(a.ctx)
	defer stop()
	a.bounds = call.Bounds{Until: until, Closing: s.Closing()}
	if a.ctx.Err() != nil {
		return nil, l.fail(failure.OfContext(a.ctx))
	}
	for again := false; ; again = true {
		outer, err := a.outer()
		if err != nil {
			return nil, err
		}
		if again && a.bounds.Over() { // the end of the outer hold may have ended a.ctx
			return nil, a.endOfWait()
		}
		if outer == nil {
			break
		}
		if h, err := a.nest(outer); h != nil || err != nil {
			return h, err
		}
		// The outer hold has ended meanwhile.
	}
	if a.once {
		return a.try()
	}
	h, err := a.wait()
	l.mu.Lock()
	l.leave(&a.w)
	l.mu.Unlock()
	if err != nil {
		a.giveBack(true)
	}
	return h, err
}

// ownRelease is the longest time for which a try waits for a release of its own session, counted from the
// beginning of the try. Without this limit, a try could wait much longer in an outage.
const ownRelease = 250 * time.Millisecond

// try requests the lock once. If another goroutine of the session holds the lock or waits for it, try returns
// an error instead. While the session is releasing the lock, try waits for at most ownRelease. Otherwise
// Redis could refuse a lock that this process has already unlocked.
func (a *acquisition) try() (*hold, error) {
	l := a.l
	l.mu.Lock()
	for {
		if l.grant == nil && len(l.waiters) == 0 && l.releases == 0 {
			break
		}
		holder := cmp.Or(l.holder(a), &failure.LockedError{Name: l.n.keys.Name})
		if l.grant != nil || len(l.waiters) > 0 {
			l.mu.Unlock()
			return nil, failure.Public(holder)
		}
		released := l.nextRelease()
		l.mu.Unlock()
		free, ended := a.bounds.Sleep(time.Until(a.begun.Add(ownRelease)), released)
		switch {
		case ended:
			return nil, a.endOfWaitFor(holder)
		case !free:
			return nil, failure.Public(holder)
		}
		l.mu.Lock()
	}
	l.mu.Unlock()
	h, refused, err := a.request()
	failed, _ := err.(*failedRequest)
	switch {
	case h != nil:
		return h, nil
	case failed != nil && a.bounds.Over():
		a.trouble = troubleOf(failed)
		err = a.endOfWait()
	case failed != nil:
		err = l.failed(failed.error)
	case refused != nil:
		e := refused.Locked(l.n.keys.Name)
		if l.s.Holds(refused.Holder) {
			e.Hint = failure.SelfHint
		}
		err = failure.Public(e)
	}
	a.giveBack(false)
	return nil, err
}

// wait waits for the turn, and then requests the lock until it is granted or an error ends the wait. The
// caller must call l.leave afterward, even after an error.
func (a *acquisition) wait() (*hold, error) {
	l := a.l
	l.mu.Lock()
	l.join(&a.w)
	turn := a.w.turn
	l.mu.Unlock()
	if !turn {
		a.reportWait()
		if err := a.awaitTurn(); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	next := l.rest // the first request is delayed until this time at most
	l.mu.Unlock()
	if time.Until(next) > 0 {
		a.reportWait()
		if a.rest(next); a.bounds.Over() {
			return nil, a.endOfWait()
		}
	}
	for {
		h, refused, err := a.request()
		failed, _ := err.(*failedRequest)
		switch {
		case failed != nil:
			if err := a.endure(failed); err != nil {
				return nil, err
			}
			next = time.Now().Add(wire.Backoff(2, 20*time.Millisecond, time.Second))
		case refused != nil:
			next = a.refuse(refused)
			a.reportWait()
		default:
			return h, err
		}
		if a.awaitNews(next); a.bounds.Over() {
			return nil, a.endOfWait()
		}
	}
}

// rest lets other clients go first. It waits until the time `at`, or until a bound ends the wait. If few
// clients want the lock, rest ends as soon as two messages have arrived. The first message is from the
// session's own release, and the second message is from the release of another client.
func (a *acquisition) rest(at time.Time) {
	l := a.l
	for published := 0; published < 2 && time.Until(at) > 0 && !a.bounds.Over(); {
		a.awaitNews(at)
		l.mu.Lock()
		if l.news != nil {
			if messages, _ := l.news.Take(); !l.crowded {
				published += len(messages)
			}
		}
		l.mu.Unlock()
	}
}

// awaitTurn waits for the turn. It returns an error if a bound or an outage ends the wait.
func (a *acquisition) awaitTurn() error {
	var timeout <-chan time.Time // fires when an outage may be too long; nil if the call has a deadline
	var timer *time.Timer
	if _, bounded := a.bounds.Until.Deadline(); !bounded {
		timer = time.NewTimer(a.l.s.Lease)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case <-a.w.next:
			if !a.bounds.Over() {
				return nil
			}
		case <-timeout:
			if left := a.patience(); left > 0 {
				timer.Reset(left)
				continue
			}
			return a.outage()
		case <-a.bounds.Until.Done():
		case <-a.bounds.Closing:
		}
		return a.endOfWait()
	}
}

// refuse records a refusal, subscribes to the lock's channel, and returns the latest time of the next
// request.
func (a *acquisition) refuse(r *refusal) time.Time {
	l, now := a.l, time.Now()
	a.refused = true
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribe(r)
	l.suspect()
	l.refusedAt = r.sent
	l.seen = &failure.Sighting{Holder: r.Holder, About: r.About, At: now, Until: now.Add(max(0, r.Left))}
	heartbeat := l.s.WaiterTimeout / 5 * 3
	if r.Left >= 0 { // a negative Left means that the lease has no end
		heartbeat = min(heartbeat, r.Left+time.Millisecond)
	}
	return now.Add(heartbeat)
}

// awaitNews waits for a message about the lock, or for a confirmation of the subscription. The wait also ends
// at the time `at`, and when a bound ends.
func (a *acquisition) awaitNews(at time.Time) {
	a.l.mu.Lock()
	var news <-chan struct{}
	if a.l.news != nil {
		news = a.l.news.C()
	}
	a.l.mu.Unlock()
	a.bounds.Sleep(time.Until(at), news)
}

// endure decides whether a wait continues after a request has failed. If the wait continues, endure returns
// nil. Otherwise it returns the error of the call. An outage does not end a wait at once. A server that is
// short of memory can still refuse a lock that is taken, but cannot grant a lock. So if the lock was refused
// before, a lack of memory counts as an outage.
func (a *acquisition) endure(f *failedRequest) error {
	full := a.refused && strings.Contains(f.Error(), "OOM ")
	a.trouble = troubleOf(f)
	switch {
	case a.bounds.Over():
		return a.endOfWait()
	case !full && !wire.Judge(f.error).Transient:
		return a.l.failed(f.error)
	case !a.bounds.ToleratesOutage(f.failing, a.begun, a.l.s.Lease):
		return a.l.failed(failure.Outage(f.failing, f.error))
	}
	return nil
}

// troubleOf returns the error of a failed request with a hint at its cause, for the error of a call that ends
// in an outage.
func troubleOf(f *failedRequest) error { return fmt.Errorf("%w%s", f.error, wire.Hint(f.error)) }

// patience returns the time for which a call without a deadline still waits for a reply. Such a call ends
// when Redis has carried out no request for the time of the session's lease. Time before the call began does
// not count.
func (a *acquisition) patience() time.Duration {
	since, err := a.l.s.Link.Trouble(a.bounds.Until, a.l.n.keys.LockKey())
	switch {
	case err == nil:
		return a.l.s.Lease
	case since.Before(a.begun):
		since = a.begun
	}
	return a.l.s.Lease - time.Since(since)
}

// outage returns the error of a call that ends because its patience has ended.
func (a *acquisition) outage() error {
	since, err := a.l.s.Link.Trouble(a.bounds.Until, a.l.n.keys.LockKey())
	if since.Before(a.begun) {
		since = a.begun
	}
	return a.l.failed(failure.Outage(since, cmp.Or(err, failure.ErrNoAnswer)))
}

// reportWait notifies the observer, once, that the call waits.
func (a *acquisition) reportWait() {
	if !a.waitReported {
		a.waitReported = true
		a.l.observe(a.ctx, session.Event{Kind: session.EventWaiting})
	}
}

// endOfWait returns the error of a call that a bound has ended.
func (a *acquisition) endOfWait() error {
	var holder *failure.LockedError
	if !a.once { // a try does not wait for a holder
		a.l.mu.Lock()
		holder = a.l.holder(a)
		a.l.mu.Unlock()
	}
	return a.endOfWaitFor(holder)
}

// endOfWaitFor does the same as endOfWait, for a caller that already has the holder. holder is nil if no
// holder is known.
func (a *acquisition) endOfWaitFor(holder *failure.LockedError) error {
	err := failure.OfWait(a.ctx, wire.Closed(a.bounds.Closing), "", a.l.n.keys.Name, holder)
	switch {
	case holder != nil:
		return err
	case a.trouble == nil:
		return failure.Unanswered(err, time.Since(a.begun), a.cfg.Wait, a.l.s.Link.SilenceHint())
	}
	return failure.Troubled(err, a.trouble)
}

// A refusal is a reply which reports that another owner holds the lock.
type refusal struct {
	protocol.Answer
	sent time.Time // time just before the request was sent
}

// A failedRequest is the error of a request to Redis. It need not end the call: endure decides whether a wait
// continues.
type failedRequest struct {
	error
	failing time.Time // time since which the server has carried out no request
}

// request sends requests until Redis grants or refuses the lock, or there is an error. If the error is a
// failedRequest, the caller decides whether the call continues. Any other error ends the call, and is for the
// user.
func (a *acquisition) request() (*hold, *refusal, error) {
	l := a.l
	for tries := 1; ; tries++ {
		if a.at == nil {
			a.first = attempt{l: l, n: a.n, owner: l.s.Attempt(), info: l.s.Args.Info(a.cfg.Note),
				lease: cmp.Or(a.cfg.Lease, l.s.Lease), hasTurn: a.w.turn}
			a.at = &a.first
		}
		at := a.at
		patience := max(a.patience(), time.Millisecond)
		o, answered := call.Ask(&a.bounds, l.s, l.n.keys.LockKey(), at, patience)
		if !answered {
			a.at = nil // the abandoned request still uses the attempt, and rolls it back
			if a.bounds.Over() {
				return nil, nil, a.endOfWait()
			}
			return nil, nil, a.outage()
		}
		r, err := at.read(o)
		if err != nil {
			return nil, nil, &failedRequest{err, o.Failing}
		}
		a.trouble = nil
		over := a.bounds.Over()
		switch {
		case r.Status == protocol.Queued:
			return nil, &refusal{r, o.Sent}, nil
		case r.Status == protocol.Granted && !over:
			var h *hold
			if h, err = a.granted(r.Token, o.Sent); err == nil {
				return h, nil, nil
			}
			err = l.fail(err)
		case r.Status == protocol.Expired: // the copy came too late, or the clock was not known before
			err = l.fail(protocol.TooLate(min(at.lease, l.s.WaiterTimeout)))
		case r.Status == protocol.Stale: // an earlier copy got the lock, and ForceUnlock freed it
			err = l.fail(protocol.ErrGrantEnded)
		case !over:
			err = l.failed(wire.Unexpected(o.Reply))
		}
		again := r.Status == protocol.Expired || r.Status == protocol.Stale ||
			errors.Is(err, engine.ErrTooLate)
		switch {
		case over:
			return nil, nil, a.endOfWait()
		case !again || tries > protocol.MaxExpired:
			return nil, nil, err
		case r.Status != protocol.Expired: // the attempt has ended, so the next request needs a new one
			a.giveBack(false)
			a.at = &attempt{l: l, n: a.n, owner: l.s.Attempt(), info: at.info, lease: at.lease,
				hasTurn: at.hasTurn}
		}
	}
}

// giveBack withdraws the attempt in the background if the attempt may hold the lock, or may still get it by a
// copy of its request. If await is true, giveBack waits until the attempt is withdrawn, but for at most
// call.LeavingTime. So usually no lock is granted to a call that has returned. The caller must be counted as
// work of the session (Session.Begin).
func (a *acquisition) giveBack(await bool) {
	at := a.at
	if at == nil || !at.mayHold {
		return
	}
	gone := make(chan struct{})
	a.l.s.Go(func() {
		defer close(gone)
		at.withdraw()
	})
	if await {
		call.AwaitLeaving(gone, a.bounds.Closing)
	}
}

// An attempt requests the lock, with one request in flight at a time. Each attempt has its own owner field.
// An attempt that was withdrawn, or whose grant has ended, requests the lock no more. Only one goroutine at a
// time uses the attempt. Usually this is the goroutine of the acquisition. If another goroutine sends a
// request, that goroutine uses the attempt while the request is in flight.
type attempt struct {
	l       *lock
	n       *names
	owner   any // string
	info    any // holder info with the note of the call, a string
	lease   time.Duration
	hasTurn bool // the goroutine has the turn, so each of its requests drops earlier messages

	notAfter int64 // Redis time in µs after which the last copy that was sent is void
	late     int64 // Redis time in µs until which a copy without a reply may arrive; 0: no such copy
	mayHold  bool  // the attempt may have the lock, or get it by a copy without a reply
}

// Request returns the next copy of the request.
func (at *attempt) Request(now time.Time) *wire.Request {
	s := at.l.s
	if t := s.Clock.Now(now); t != 0 { // while the clock is unknown, 0 is sent, and the reply sets the clock
		// The waiter timeout also limits the time for which a copy is valid.
		at.notAfter = max(at.notAfter, t+protocol.Patience(min(at.lease, s.WaiterTimeout)).Microseconds())
	}
	if at.hasTurn {
		at.l.mu.Lock()
		if at.l.news != nil {
			at.l.news.Take() // drops older messages, because the reply will be newer
		}
		at.l.mu.Unlock()
	}
	lease := s.Args.Lease
	if at.lease != s.Lease {
		lease = protocol.Milliseconds(at.lease)
	}
	n := at.n
	return n.keys.Request(scripts.acquire, at.owner, at.notAfter, lease, at.info, s.Args.Retention,
		s.SoleChannel(), n.channel, n.how, n.counter)
}

// Send sends at most maxTries copies of the request, until one of them has a reply.
func (at *attempt) Send(ctx context.Context, maxTries int, abandoned *atomic.Bool) wire.Outcome {
	return at.l.s.Link.Call(ctx, at, maxTries, abandoned)
}

// read records the outcome of a request, and returns the reply.
func (at *attempt) read(o wire.Outcome) (protocol.Answer, error) {
	r, err := protocol.Read(o)
	if r.Now != 0 {
		at.l.s.Clock.Sync(r.Now, o.Sent)
	}
	if o.Unanswered != nil {
		at.late, at.mayHold = at.notAfter, true
	}
	at.mayHold = at.mayHold || r.Status == protocol.Granted
	return r, err
}

// RollBack withdraws an attempt whose caller has left, if the attempt may hold the lock.
func (at *attempt) RollBack(o wire.Outcome) {
	if _, _ = at.read(o); at.mayHold {
		at.withdraw()
	}
}

// withdraw ends the attempt in Redis. It sends a release until one succeeds, but only as long as the attempt
// may hold the lock.
func (at *attempt) withdraw() {
	r := at.n.release(at.l.s, at.owner, "", at.late)
	at.l.repeat(&r, time.Now().Add(at.lease+at.l.s.WaiterTimeout))
}

// repeat sends copies of a release until one succeeds. It stops earlier at the time `until`, at the end of
// the session, or if Verdict.Again of package wire excludes another copy. It blocks until then.
func (l *lock) repeat(r wire.Copier, until time.Time) {
	for try := 1; ; try++ {
		o := l.s.Link.Call(l.s.Ctx, r, 1, nil) // sends one copy, because this loop sends the further copies
		_, _, err := readRelease(o)
		over := err == nil || !wire.Judge(err).Again(l.s.Closing()) || time.Now().After(until)
		if over || !wire.Pause(l.s.Ctx, wire.Backoff(try, 4*time.Millisecond, 2*time.Second)) {
			return
		}
	}
}

// granted makes a grant with the token from the reply, and returns its first hold, which is the hold of this
// call. sent is a time just before the request was sent. If the session cannot use the grant, the error is
// engine.ErrTooLate, failure.ErrNoToken or failure.ErrClosed.
func (a *acquisition) granted(token int64, sent time.Time) (*hold, error) {
	l, s, at := a.l, a.l.s, a.at
	g := &grant{l: l, owner: at.owner, info: at.info, token: token, boxed: token, late: at.late}
	h := a.newHold(g) // called under no mutex, because the caller's context may run code of its own
	deadline := sent.Add(protocol.Valid(at.lease))
	l.mu.Lock()
	former := l.grant
	var err error
	switch {
	case wire.Closed(s.Closing()): // checked with l.mu held, because Shutdown could miss the grant otherwise
		err = failure.ErrClosed
	case token == 0:
		err = failure.ErrNoToken
	case !time.Now().Before(deadline), former != nil && former.token > token:
		// Either the lease has ended before the reply came, or l.grant is a newer grant, which has a higher
		// token.
		err = engine.ErrTooLate
	}
	if err != nil {
		l.mu.Unlock()
		h.cancel(nil) // no caller has the context of this hold
		return nil, err
	}
	if former != nil { // Redis has granted the lock again, so it does not have the former grant any more
		s.Go(former.terminate(handle.Lost, failure.ErrGone))
	}
	l.grant, l.refusedAt = g, time.Time{}
	l.retain() // dropped by terminate, or at the end of the release
	g.add(h)
	g.lease.Owner = g
	s.Watchdog.Add(&g.lease, deadline, g.interval())
	l.mu.Unlock()
	l.observe(a.ctx, session.Event{
		Kind: session.EventAcquired, Wait: time.Since(a.begun), Depth: 1, Token: token,
	})
	g.announce()
	return h, nil
}
