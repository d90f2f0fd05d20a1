package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// attemptState is the state of an attempt. It changes as follows:
//
//	requested --reply: wait--> queued
//
//	requested or queued
//	    |
//	    +-- granted, refused or failed --> done
//	    +-- no waiter needs it ----------> withdrawn, until its release has ended
type attemptState uint8

const (
	requested attemptState = iota // no reply or message has granted, refused or queued the attempt yet
	queued                        // the attempt waits in the queue in Redis, and repeats its request at times
	withdrawn                     // no waiter needs the attempt any more (withdraw)
	done                          // a reply, a message or an error has ended the attempt
)

func (s attemptState) String() string {
	return [...]string{"requested", "queued", "withdrawn", "done"}[s]
}

// attempt requests a grant from Redis on behalf of a lane, and may wait in the queue there. It has at most
// one request in flight. Usually the goroutine of a waiter sends the first request (sendFirst), which saves
// starting another goroutine. Each later request has a goroutine of its own (send).
//
// If a reply is lost, Redis may have run the request, or may still run a copy of it later. Sending the
// request again does no harm. If the attempt already has a grant, the reply repeats that grant (acquire.lua).
// inRedis records whether Redis may have a place or a grant for the attempt. staleUntil records until when a
// copy of the request may arrive. The release of the attempt leaves a tombstone until staleUntil, so that a
// copy which arrives after the release has no effect. When no waiter needs the attempt any more, withdraw
// sets abandoned, and then no further copy is sent.
type attempt struct {
	// The following never change.
	lane  *lane
	lease time.Duration   // fixed lease of the call; 0 means the session's lease
	nonce string          // proves that a message about a grant is from Redis; "" for a TryLock
	joins *Grant          // shared grant that Redis should prolong instead of granting another; nil: none
	owner any             // string, owner field in Redis, SESSION:ATTEMPT
	info  any             // string, holder info with the note of a waiting call
	ctx   context.Context // context of the first waiter; send uses only its values, for traces

	abandoned atomic.Bool // the attempt was withdrawn, so no further copy of its request is sent
	earlier   error       // error of the first copy, if it got no reply; used only by the sending goroutine

	// lockState.mu guards the following.
	state         attemptState
	changedAt     time.Time     // when the attempt began, or was withdrawn
	inFlight      bool          // a request is about to be sent, or was sent and its reply is not handled yet
	nextRequestAt time.Duration // age of the session at which to send the next request; 0 if none is planned
	notAfter      int64         // Redis time in µs after which the last copy that was sent is void
	staleUntil    int64         // Redis time in µs until which an unanswered copy may arrive; 0 means none
	inRedis       bool          // Redis may have a place in the queue, or a grant, for the attempt

	// These fields come from the last reply that queued the attempt. baseLocal and baseRedis serve to convert
	// the Redis time in a message about a grant to local time.
	baseLocal   time.Time // time before the request of that reply; at first, the beginning of the attempt
	baseRedis   int64     // Redis time in µs in that reply; 0 means there was no such reply
	lastRefused int64     // token of the holder at that time; a grant to the attempt has a higher token

	numLate     int32         // how often in a row a request was void or stale, or a grant came too late
	numFailures int           // how often in a row a request has failed
	mayLinger   bool          // Redis allows the session to keep the grant while no goroutine has it
	wanted      bool          // before the grant, a message said that another session may want the lock
	numWaiters  int           // only for a fair lock: number of waiters in the lane at the first request
	gone        chan struct{} // closed when the withdrawn attempt is finished (finish); nil: not withdrawn
}

// newAttempt begins an attempt for the waiters of the lane. If a waiter joins this lane in the present event,
// the goroutine of that waiter sends the first request (sendFirst), but for only one attempt. For any other
// attempt, a goroutine in the background sends the first request (send).
func (ln *lane) newAttempt(fx *effects) {
	l := ln.l
	first := ln.waiters[0]
	a, now := &first.inlineAttempt, time.Now()
	if first.attemptUsed {
		a = new(attempt)
	}
	first.attemptUsed = true
	note := ln.waiters[len(ln.attempts)].cfg.Note // there are fewer attempts than waiters (needsAttempt)
	*a = attempt{
		lane: ln, lease: first.cfg.Lease, owner: l.s.Attempt(), info: l.s.Args.Info(note),
		ctx: first.ctx, joins: ln.sharedGrant(),
		baseLocal: now, changedAt: now, inFlight: true, numLate: ln.numLateBefore,
	}
	ln.numLateBefore = 0
	if !ln.noWait {
		a.nonce = rand.Text()
	}
	ln.attempts = append(ln.attempts, a)
	// Add the attempt to the inbox before its first request, because a message may arrive before the reply.
	l.registry.inbox.add(a.owner.(string), a)
	if l.kind.Alone {
		l.pending = append(l.pending, a)
	}
	fx.uses++ // finish ends this use
	if fx.caller != nil && fx.caller.lane == ln && fx.ownAttempt == nil {
		fx.ownAttempt = a
	} else {
		fx.attempts = append(fx.attempts, a)
	}
}

// sharedGrant returns the latest grant that the waiters of the lane could share. It returns nil if the
// session has no such grant.
func (ln *lane) sharedGrant() *Grant {
	if ln.want.Shared {
		for _, g := range slices.Backward(ln.l.grants) {
			if g.lane.want == ln.want && !g.customLease {
				return g
			}
		}
	}
	return nil
}

// sendIfDue sends the next request in the background if its time has come, and no request is in flight.
func (a *attempt) sendIfDue(fx *effects) {
	if !a.inFlight && a.nextRequestAt != 0 && a.nextRequestAt <= fx.age {
		a.nextRequestAt, a.inFlight = 0, true
		fx.attempts = append(fx.attempts, a)
	}
}

// sendFirst sends the first request in the goroutine of a waiter, and handles the reply. If the request may
// block for longer than the call may take, or must be sent again, sendFirst starts a goroutine that runs
// send, and returns. The caller must be counted by session.Begin.
func (a *attempt) sendFirst(until context.Context) {
	l := a.lane.l
	if l.s.Link.NeedsGoroutine(until, l.keys.LockKey(), l.s.Lease) {
		l.s.Go(a.send)
		return
	}
	o := l.s.Link.Call(until, a, 1, &a.abandoned)
	if o.Again {
		a.earlier = o.Unanswered
		l.s.Go(a.send)
		return
	}
	a.onReply(o)
}

// send sends the next request, blocks for the reply, and handles it.
func (a *attempt) send() {
	o := a.lane.l.s.Link.Call(context.WithoutCancel(a.ctx), a, wire.Tries, &a.abandoned)
	o.Unanswered, a.earlier = cmp.Or(o.Unanswered, a.earlier), nil
	a.onReply(o)
}

// requestedLease returns the lease that the attempt requests.
func (a *attempt) requestedLease() time.Duration { return cmp.Or(a.lease, a.lane.l.s.Lease) }

// Request makes the next copy of the request. It implements wire.Copier.
func (a *attempt) Request(now time.Time) *wire.Request {
	ln := a.lane
	l := ln.l
	s := l.s
	var until int64 // 0 while the clock is unknown; the request is then void, and the reply sets the clock
	if t := s.Clock.Now(now); t != 0 {
		// The waiter timeout counts, too, because it limits the first lease of a handed-over grant.
		until = t + protocol.Patience(min(a.requestedLease(), s.WaiterTimeout)).Microseconds()
	}
	fx := l.begin()
	defer fx.unlock()
	if l.kind.Fair && a.numWaiters == 0 {
		ln.sealed, a.numWaiters = true, len(ln.waiters)
	}
	// A further copy may be sent after the attempt has ended. It must be void when the tombstone of the
	// attempt ends, at staleUntil. Because staleUntil was set from notAfter, notAfter is not raised any more.
	if a.state == requested || a.state == queued {
		a.notAfter = max(a.notAfter, until)
	}
	joins := any("")
	if a.joins != nil && a.joins.held() { // otherwise the script could extend a grant that is being released
		joins = a.joins.owner
	}
	args := &s.Args
	lease := args.Lease
	if a.lease != 0 {
		lease = protocol.Milliseconds(a.lease)
	}
	aliveFor, mode := args.WaiterTimeout, any("0")
	if ln.noWait {
		aliveFor = "0" // the attempt does not join the queue
	}
	lingers := l.requestsLinger(a.lease)
	if !ln.noWait || lingers {
		mode = l.registry.inbox.mode(l.keys.LockKey())
	}
	argv := append(make([]any, 0, 13), // of constant size, so the slice does not escape
		a.owner, max(a.numWaiters, 1), a.notAfter, lease, a.info, args.Retention, aliveFor, args.Channels,
		a.nonce, mode)
	quiet := any("")
	if lingers {
		quiet = args.LingerCooldown
	}
	switch {
	case !l.kind.Counts:
		argv[1] = ln.want.N
		argv = append(argv, quiet, ln.want.Limit, joins)
	case quiet != "":
		argv = append(argv, quiet)
	}
	return l.keys.Request(acquireScript, argv...)
}

// requestsLinger reports whether an attempt requests that the session may keep its grant while no goroutine
// has it (WithLinger). fixed is the fixed lease of the attempt, or 0.
func (l *lockState) requestsLinger(fixed time.Duration) bool {
	return fixed == 0 && l.s.Linger > 0 && l.kind.Lingers
}

// onReply handles the reply to a request of the attempt, or the error of the request.
func (a *attempt) onReply(o wire.Outcome) {
	ln := a.lane
	l := ln.l
	r, err := l.read(o, a)
	if r.Status == protocol.Queued && !ln.noWait { // a TryLock is not queued, and needs no messages
		l.subscribe(r, o.Sent)
	}
	fx := l.begin()
	a.inFlight = false
	if o.Unanswered != nil {
		a.staleUntil = a.notAfter
	}
	a.inRedis = a.inRedis || r.Status == protocol.Granted ||
		r.Status == protocol.Queued && !ln.noWait || o.Err != nil && wire.Judge(o.Err).Unknown
	switch {
	case a.state == withdrawn || a.state == done: // done: a message or another request's reply was faster
		a.conclude(&fx)
	case err != nil:
		a.onError(o, err, &fx)
	default:
		a.onAnswer(r, o.Sent, &fx)
	}
	fx.commit()
}

// onAnswer handles a reply to an attempt that is requested or queued.
func (a *attempt) onAnswer(r protocol.Answer, sent time.Time, fx *effects) {
	ln := a.lane
	l := ln.l
	a.numFailures = 0
	mayRepeat := a.numLate < protocol.MaxExpired
	switch {
	case r.Status == protocol.Granted:
		if a.state == requested { // the attempt did not have to wait
			ln.hadToQueue, l.contended = false, false
		}
		a.mayLinger = r.MayLinger
		a.onGrant(r.Token, sent, a.requestedLease(), fx)
	case r.Status == protocol.GoesOn:
		a.setState(done, fx)
		a.releaseLater(fx)
		ln.onConfirmed(a, sent, fx)
	case r.Status == protocol.Queued && !ln.noWait:
		a.onQueued(r, sent, fx)
		return
	case r.Status == protocol.Queued:
		a.fail(ln.refused(r), fx)
	case r.Status == protocol.Expired && mayRepeat:
		a.numLate++
		a.nextRequestAt = fx.age // at once, because the session now knows the server's time for notAfter
		return
	case r.Status == protocol.Expired:
		a.fail(l.named(protocol.TooLate(min(a.requestedLease(), l.s.WaiterTimeout))), fx)
	case r.Status == protocol.Stale && mayRepeat: // in Redis, the attempt has ended, perhaps by force
		ln.numLateBefore = a.numLate + 1
		a.setState(done, fx) // settle begins another attempt
	case r.Status == protocol.Stale:
		a.fail(l.named(protocol.ErrGrantEnded), fx)
	case r.Status == protocol.Limited:
		a.fail(l.kind.Limited(l.keys.Name, ln.want, r.Limit), fx)
	}
	a.conclude(fx)
}

// onError handles the error of a request. The attempt of a TryLock fails. The attempt of a Lock fails if the
// error is not transient, unless the attempt is queued and the server is only full. An attempt that does not
// fail sends its request again later. The waiters of its lane keep waiting, except for waiters that do not
// tolerate so long an outage (call.OutageIsTooLong).
func (a *attempt) onError(o wire.Outcome, err error, fx *effects) {
	ln := a.lane
	l := ln.l
	// A full server refuses the request, but keeps the place of an attempt that is queued already.
	stays := a.state == queued && strings.Contains(err.Error(), "OOM ")
	if ln.noWait || !stays && !wire.Judge(err).Transient {
		a.fail(l.kind.Failed(l.keys, err), fx)
		a.conclude(fx)
		return
	}
	lastError := fmt.Errorf("%w%s", err, wire.Hint(err))
	for _, w := range slices.Clone(ln.waiters) { // answer removes waiters
		w.lastError = lastError
		if !w.bounded && call.OutageIsTooLong(o.Failing, w.begun, l.s.Lease) {
			ln.answer(w, nil, l.kind.Failed(l.keys, failure.Outage(o.Failing, err)), fx)
		}
	}
	a.numFailures++
	a.nextRequestAt = fx.age + wire.Backoff(1+a.numFailures, 20*time.Millisecond, time.Second)
}

// fail ends the attempt with an error for the first waiter, or for all waiters if they share grants. If
// mayHoldInRedis returns true, fail also releases the attempt in the background.
func (a *attempt) fail(err error, fx *effects) {
	a.setState(done, fx)
	a.releaseLater(fx)
	a.lane.fail(err, fx)
}

// setState sets the state of the attempt. Unless the new state is queued, the attempt has ended, and leaves
// its lane.
func (a *attempt) setState(to attemptState, fx *effects) {
	ln := a.lane
	l := ln.l
	if a.state == requested && l.kind.Fair { // later lanes have filled while they waited for the reply
		for _, other := range l.lanes {
			other.fillUntil = 0
		}
	}
	if a.state == queued {
		ln.numQueued--
	}
	a.state = to
	if to == queued {
		ln.numQueued++
		return
	}
	if i := slices.Index(ln.attempts, a); i >= 0 {
		ln.attempts = slices.Delete(ln.attempts, i, i+1)
	}
	if !a.mayLinger { // otherwise onGrant puts the grant in place of the attempt, so that no message is lost
		l.registry.inbox.remove(a.owner.(string)) // from now on, no message reaches the attempt
	}
}

// withdraw ends an attempt that no waiter needs any more.
func (a *attempt) withdraw(fx *effects) {
	ln := a.lane
	if seen := ln.l.lastHolder; a.state == queued && seen != nil {
		seen.At = time.Now() // errors of other waiters name this holder, which kept them out until now
	}
	a.setState(withdrawn, fx)
	a.changedAt = time.Now()
	a.abandoned.Store(true)
	a.gone = make(chan struct{})
	if ln.want.exclusive() && !ln.l.kind.Fair {
		ln.numWithdrawing++
	}
	fx.withdrawn = a
	a.conclude(fx)
}

// conclude calls finish for an attempt that is withdrawn or done. While a request is in flight, conclude does
// nothing, because onReply calls conclude again. If mayHoldInRedis returns true for a withdrawn attempt,
// conclude first releases this attempt in the background.
func (a *attempt) conclude(fx *effects) {
	l := a.lane.l
	switch {
	case a.inFlight:
	case a.state == withdrawn && a.mayHoldInRedis():
		r := l.releaseRequest(a.owner, "", a.staleUntil, "")
		until := a.giveUpReleasingAt()
		fx.background(func() {
			l.repeat(&r, until)
			fx := l.begin()
			a.finish(&fx)
			fx.commit()
		})
	default:
		a.finish(fx)
	}
}

// finish ends the use of the lock state by the attempt. Anything that Redis still has for the attempt belongs
// to a Grant of this session, is being released, or will expire because its release has failed.
func (a *attempt) finish(fx *effects) {
	ln := a.lane
	l := ln.l
	if i := slices.Index(l.pending, a); i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
		l.notifyReleaseDone()
	}
	if a.gone != nil {
		close(a.gone)
		if ln.want.exclusive() && !l.kind.Fair {
			ln.numWithdrawing--
		}
	}
	fx.uses--
}

// releaseLater releases the attempt in the background, if mayHoldInRedis returns true.
func (a *attempt) releaseLater(fx *effects) {
	if a.mayHoldInRedis() {
		r := a.lane.l.releaseRequest(a.owner, "", a.staleUntil, "")
		a.lane.l.repeatLater(&r, a.giveUpReleasingAt(), fx)
	}
}

// mayHoldInRedis reports whether Redis may have a grant or a place in the queue for the attempt, or may get a
// copy of its request.
func (a *attempt) mayHoldInRedis() bool { return a.inRedis || a.staleUntil != 0 }

// giveUpReleasingAt returns the time after which the release of the attempt is not sent again. If the attempt
// is queued, Redis may grant it the lock until the waiter timeout has passed, and such a grant lasts for one
// lease. So at the returned time, all that Redis has for the attempt has expired, or will expire soon.
func (a *attempt) giveUpReleasingAt() time.Time {
	return time.Now().Add(a.requestedLease() + a.lane.l.s.WaiterTimeout)
}

// onQueued handles the reply that the attempt is queued, or is still queued.
func (a *attempt) onQueued(r protocol.Answer, sent time.Time, fx *effects) {
	ln := a.lane
	l := ln.l
	a.setState(queued, fx)
	ln.hadToQueue = true // until an attempt is granted at once, needsAttempt allows the lane only one attempt
	a.numLate = 0
	l.contended = l.contended || !l.s.Owns(r.Holder)
	now := time.Now()
	until := now.Add(max(0, r.Left))
	l.lastHolder = &failure.Sighting{Holder: r.Holder, About: r.About, At: now, Until: until}
	a.baseLocal, a.baseRedis, a.lastRefused = sent, r.Now, max(a.lastRefused, r.Token)
	rest := l.s.WaiterTimeout / 5 * 3 // leaves time to send the request once more before the timeout
	switch {
	case r.Left < 0 || r.Behind:
	case r.Spare:
		rest = min(rest, r.Left+protocol.SpareDelay)
	default:
		rest = min(rest, r.Left+time.Millisecond)
	}
	a.requestWithin(rest, fx)
}

// requestWithin plans the next request for a time not later than d from now.
func (a *attempt) requestWithin(d time.Duration, fx *effects) {
	if at := fx.age + d; a.nextRequestAt == 0 || at < a.nextRequestAt {
		a.nextRequestAt = at
	}
}

// refused returns the error of a TryLock that Redis has refused.
func (ln *lane) refused(r protocol.Answer) error {
	e := r.Locked(ln.l.keys.Name)
	if len(ln.waiters) > 0 && ln.l.s.Holds(r.Holder) { // without a waiter, no hint is needed
		e.Hint = ln.waiters[0].hint(ln.l.grantOf(r.Holder))
	}
	return ln.l.kind.locked(e)
}

// onGrant handles the grant of the lock to the attempt. base is a local time that is not after the grant.
func (a *attempt) onGrant(token int64, base time.Time, lease time.Duration, fx *effects) {
	ln := a.lane
	l := ln.l
	a.setState(done, fx)
	home := ln
	if ln.noWait && !l.kind.Fair { // use the lane of Lock calls, because the grant may be passed on to them
		home = l.laneFor(ln.want, fx)
	}
	g, err := l.newGrant(a, home, token, base, lease, fx)
	if err == nil && a.mayLinger && !a.wanted {
		l.registry.inbox.add(a.owner.(string), g)
		g.lingers, l.contended = true, false
	} else if a.mayLinger {
		l.registry.inbox.remove(a.owner.(string))
	}
	switch {
	case err == nil:
	case err == ErrTooLate && a.numLate < protocol.MaxExpired:
		ln.numLateBefore = a.numLate + 1 // settle begins another attempt
		a.inRedis = true
		a.releaseLater(fx)
	default:
		a.inRedis = true
		a.releaseLater(fx)
		ln.fail(l.named(err), fx)
	}
}

// onConfirmed handles the reply that Redis has prolonged a shared grant of the session, instead of granting
// another one, because nobody is queued.
func (ln *lane) onConfirmed(a *attempt, sent time.Time, fx *effects) {
	g := a.joins
	if !g.held() || g.customLease { // no goroutine can join the grant, so settle begins another attempt
		return
	}
	ln.hadToQueue = false
	g.reservedFor = ln
	g.queueCheckedAt = fx.age // so goroutines may join for another passOnTime
	ln.l.s.Watchdog.Extend(&g.lease, sent.Add(protocol.Valid(a.requestedLease())))
}

// An attempt is a recipient of messages.

func (a *attempt) Key() string { return a.lane.l.keys.LockKey() }

// OnMessage handles a message for the attempt. The message has one of these forms:
//   - TOKEN NOW LEASE NONCE: the attempt was granted. The message counts only if NONCE is the nonce of the
//     attempt;
//   - LEFT: the attempt must send its request again in LEFT ms, usually because the lease of the holder then
//     ends;
//   - no words: Redis has granted the attempt, and now another session wants the lock. Or messages may have
//     been missed.
//
// Other clients may forge messages. A message that was forged without the nonce cannot grant anything, and
// causes at most one request.
func (a *attempt) OnMessage(words []string) {
	l := a.lane.l
	fx := l.begin()
	switch {
	case len(words) == 0:
		a.wanted = true
		if g := l.grantOf(a.owner.(string)); g != nil {
			g.endLinger()
		}
		a.requestWithin(0, &fx)
	case len(words) == 1:
		if left, ok := protocol.Remaining(words[0]); ok {
			a.requestWithin(max(0, left)+time.Millisecond, &fx)
		}
	case len(words) == 4 && subtle.ConstantTimeCompare([]byte(a.nonce), []byte(words[3])) == 1:
		if lease, ok := protocol.Remaining(words[2]); ok {
			base := protocol.GrantTime(protocol.TokenOrZero(words[1]), a.baseRedis, a.baseLocal)
			a.onGrantNotice(protocol.TokenOrZero(words[0]), base, lease, &fx)
		}
	}
	fx.commit()
}

// onGrantNotice handles a notice that the attempt was granted, from a message or from the reply to another
// request.
func (a *attempt) onGrantNotice(token int64, base time.Time, lease time.Duration, fx *effects) {
	if a.state != requested && a.state != queued || token <= a.lastRefused {
		return // a reply was faster, no waiter needs the attempt, or its grant has ended already
	}
	if a.inFlight { // a copy of the request may arrive after the grant has ended
		a.staleUntil = a.notAfter
	}
	if !time.Now().Before(base.Add(protocol.Valid(lease))) {
		a.requestWithin(0, fx) // the lease may have ended. If it has not, the next request prolongs the lease
		return
	}
	a.onGrant(token, base, lease, fx)
	a.conclude(fx)
}

// subscribe subscribes the session to messages about the lock, by the kind of pub/sub that the reply r
// allows. If the reply says that the server has no subscriber to the channel of the session, subscribe also
// reports this to the inbox. sent is a time before the request of that reply was sent.
func (l *lockState) subscribe(r protocol.Answer, sent time.Time) {
	l.registry.inbox.subscribe(l.keys.LockKey(), r.Sharded)
	if r.NoSubscriber {
		l.registry.inbox.reportUnsubscribed(l.keys.LockKey(), sent)
	}
}

// read decodes the reply to a request. If the reply also has grants to other attempts of this session, read
// notifies these attempts. of is the attempt that sent the request; nil means that no attempt sent it. The
// caller must not hold l.mu.
func (l *lockState) read(o wire.Outcome, of *attempt) (protocol.Answer, error) {
	r, err := protocol.Read(o)
	if o.Unanswered != nil { // the lost reply may have had a grant to another attempt of this session
		fx := l.begin()
		for _, ln := range l.lanes {
			for _, a := range ln.attempts {
				if a != of {
					a.requestWithin(0, &fx)
				}
			}
		}
		fx.commit()
	}
	if err != nil {
		return r, err
	}
	if r.Now != 0 {
		l.s.Clock.Sync(r.Now, o.Sent)
	}
	for _, s := range r.Served {
		l.notifyServed(s, o.Sent) // the grant came after o.Sent
	}
	if r.Status == protocol.Granted && (r.MayLinger || r.NoSubscriber) { // other grants need no messages
		l.subscribe(r, o.Sent)
	}
	if r.Status == protocol.Queued { // the holder may be another attempt of this session
		l.notifyServed(protocol.Served{Owner: r.Holder, Token: r.Token, Lease: r.Left}, o.Sent)
	}
	return r, nil
}

// notifyServed notifies an attempt that it was granted, if the session still has this attempt. base is a
// local time that is not after the grant. The caller must not hold l.mu.
func (l *lockState) notifyServed(s protocol.Served, base time.Time) {
	if a, ok := l.registry.inbox.find(s.Owner).(*attempt); ok {
		fx := a.lane.l.begin() // the attempt may belong to a newer lockState than l
		a.onGrantNotice(s.Token, base, s.Lease, &fx)
		fx.commit()
	}
}
