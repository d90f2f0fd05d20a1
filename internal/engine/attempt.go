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

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
)

// attemptState is the state of an attempt.
//
//	requested --reply: wait--> queued
//	    |                        |
//	    +-- granted or refused --+--> done
//	    +-- no goroutine waits --+--> withdrawn, until Redis has replied to its release
type attemptState uint8

const (
	requested attemptState = iota // the first request was or is about to be sent, without a reply yet
	queued                        // the attempt waits in the queue in Redis, and sends a request now and then
	withdrawn                     // no goroutine waits for it, and it is being released in Redis
	done                          // the attempt was granted or refused; later replies grant it nothing
)

func (s attemptState) String() string {
	return [...]string{"requested", "queued", "withdrawn", "done"}[s]
}

// attempt requests a grant from Redis on behalf of a lane, and may wait in the queue there. It has one
// request in flight at a time. Usually the goroutine of a waiter sends the first request (sendFirst), which
// saves waking another one. Each later request has a goroutine of its own (send).
//
// If a reply is lost, Redis may have run the request, and a copy may still run later. So the request is sent
// again, and a holder gets the same grant again (acquire.lua). inRedis and staleUntil remember what Redis
// may have. The release of the attempt leaves a tombstone until staleUntil, so that a later copy has no
// effect. If nobody waits any more, abandoned stops further copies.
type attempt struct {
	// The following never change.
	lane  *lane
	lease time.Duration   // a lease that one goroutine chose; 0 means the session's lease
	nonce string          // proves that a message comes from Redis; "" means the attempt is never queued
	joins *Grant          // the shared grant that Redis may confirm instead, if nobody waits; nil means none
	owner any             // string, the owner field in Redis, SESSION:ATTEMPT
	info  any             // string, the holder info, with the note of the call of the first waiter
	ctx   context.Context // of the first waiter, for traces; its end does not end the request

	abandoned atomic.Bool // the attempt was withdrawn: no further copy of a request is sent
	earlier   error       // error of a first copy that was not answered; for the goroutine that sends

	// lockState.mu guards the following.
	state         attemptState
	changedAt     time.Time     // when the attempt began, or was withdrawn
	inFlight      bool          // a request was or is about to be sent, and its reply has not been handled
	nextRequestAt time.Duration // age of the session at which to send the next request; 0 if none is planned
	notAfter      int64         // Redis time in µs after which the last copy that was sent is void
	staleUntil    int64         // Redis time in µs until which an unanswered copy may arrive; 0 means none
	inRedis       bool          // Redis may have a place in the queue, or a grant, for the attempt

	// From the last reply that said to wait. The first two date a grant that a message brings.
	baseLocal   time.Time // before the request was sent; at first, the beginning of the attempt
	baseRedis   int64     // Redis time in µs in the reply; 0 means there was none
	lastRefused int64     // token in use when the attempt was refused last; a new grant has a higher one

	numLate     int           // how often in a row a request, or a grant, was late
	numFailures int           // how often in a row a request has failed
	mayLinger   bool          // Redis allows the session to keep the grant while no goroutine has it
	wanted      bool          // another session may have wanted that grant before it was there
	numWaiters  int           // waiters of a fair lane at the first request; 0 before, or if not fair
	gone        chan struct{} // closed when a withdrawn attempt has left Redis; nil means not withdrawn
}

// newAttempt begins an attempt for the waiters of the lane. If the goroutine of one of them handles the
// event, it sends the first request.
func (ln *lane) newAttempt(fx *effects) {
	l := ln.l
	first := ln.waiters[0]
	a, now := &first.inlineAttempt, time.Now()
	if first.attemptUsed {
		a = new(attempt)
	}
	first.attemptUsed = true
	note := ln.waiters[len(ln.attempts)].cfg.Note // there are fewer attempts than waiters, see needsAttempt
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
	// Before the first request, because a message may arrive before the reply.
	l.registry.inbox.add(a.owner.(string), a)
	if l.kind.Alone {
		l.pending = append(l.pending, a)
	}
	fx.uses++ // until finish
	if fx.caller != nil && fx.caller.lane == ln && fx.ownAttempt == nil {
		fx.ownAttempt = a
	} else {
		fx.attempts = append(fx.attempts, a)
	}
}

// sharedGrant returns the latest grant that goroutines which want the same have together; nil if there is
// none.
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

// sendIfDue sends the next request in the background if its time has come.
func (a *attempt) sendIfDue(fx *effects) {
	if !a.inFlight && a.nextRequestAt != 0 && a.nextRequestAt <= fx.age {
		a.nextRequestAt, a.inFlight = 0, true
		fx.attempts = append(fx.attempts, a)
	}
}

// sendFirst sends the first request in the goroutine of a waiter, and handles the reply. If the request may
// block for longer than the call may take, or has to be sent again, sendFirst starts a goroutine (send) and
// returns. Shutdown must be waiting for the caller.
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

// requestedLease returns the lease that the attempt wants.
func (a *attempt) requestedLease() time.Duration { return cmp.Or(a.lease, a.lane.l.s.Lease) }

// Request makes the next copy of the request. It implements wire.Copier.
func (a *attempt) Request(now time.Time) *wire.Request {
	ln := a.lane
	l := ln.l
	s := l.s
	var until int64
	if t := s.Clock.Now(now); t != 0 { // while the clock is unknown, 0 is sent, and the reply sets the clock
		// A handed-over grant ends after the waiter timeout.
		until = t + protocol.Patience(min(a.requestedLease(), s.WaiterTimeout)).Microseconds()
	}
	fx := l.begin()
	defer fx.unlock()
	if l.kind.Fair && a.numWaiters == 0 {
		ln.sealed, a.numWaiters = true, len(ln.waiters)
	}
	if a.state == requested || a.state == queued { // otherwise the release has named an earlier time already
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
		aliveFor = "0" // no place in the queue
	}
	lingers := l.mayLinger(a.lease)
	if !ln.noWait || lingers {
		mode = l.registry.inbox.mode(l.keys.LockKey())
	}
	argv := append(make([]any, 0, 13), // of constant size, so it does not escape
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

// mayLinger reports whether the session asks Redis to let it keep a grant while no goroutine has it
// (WithLinger). It does not if one goroutine chose the lease for itself.
func (l *lockState) mayLinger(fixed time.Duration) bool {
	return fixed == 0 && l.s.Linger > 0 && l.kind.Lingers
}

// onReply handles the reply to a request of the attempt, or its error.
func (a *attempt) onReply(o wire.Outcome) {
	ln := a.lane
	l := ln.l
	r, err := l.read(o, a)
	if r.Status == protocol.Queued && !ln.noWait { // only queued attempts are notified by messages
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
	case a.state == withdrawn || a.state == done: // done: a message or another reply has brought the grant
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
		a.nextRequestAt = fx.age // the reply has brought the time
		return
	case r.Status == protocol.Expired:
		a.fail(l.named(protocol.TooLate(min(a.requestedLease(), l.s.WaiterTimeout))), fx)
	case r.Status == protocol.Stale && mayRepeat: // the lock was taken from the attempt by force
		ln.numLateBefore = a.numLate + 1
		a.setState(done, fx) // the waiters get another attempt
	case r.Status == protocol.Stale:
		a.fail(l.named(protocol.ErrGrantEnded), fx)
	case r.Status == protocol.Limited:
		a.fail(l.kind.Limited(l.keys.Name, ln.want, r.Limit), fx)
	}
	a.conclude(fx)
}

// onError handles the error of a request. An outage only makes the wait longer, unless the call does not
// wait.
func (a *attempt) onError(o wire.Outcome, err error, fx *effects) {
	ln := a.lane
	l := ln.l
	stays := a.state == queued && strings.Contains(err.Error(), "OOM ") // a full server keeps it queued
	if ln.noWait || !stays && !wire.Judge(err).Transient {
		a.fail(l.kind.Failed(l.keys, err), fx)
		a.conclude(fx)
		return
	}
	lastError := fmt.Errorf("%w%s", err, wire.Hint(err))
	for _, w := range slices.Clone(ln.waiters) { // answer removes waiters
		w.lastError = lastError
		if !w.bounds.ToleratesOutage(o.Failing, w.begun, l.s.Lease) {
			ln.answer(w, nil, l.kind.Failed(l.keys, failure.Outage(o.Failing, err)), fx)
		}
	}
	a.numFailures++
	a.nextRequestAt = fx.age + wire.Backoff(1+a.numFailures, 20*time.Millisecond, time.Second)
}

// fail ends the attempt with an error for the first waiter, or for all waiters if they share grants. The
// attempt is released in the background if Redis may have something of it.
func (a *attempt) fail(err error, fx *effects) {
	a.setState(done, fx)
	a.releaseLater(fx)
	a.lane.fail(err, fx)
}

// setState ends the attempt for its lane, unless the new state is queued.
func (a *attempt) setState(to attemptState, fx *effects) {
	ln := a.lane
	l := ln.l
	if a.state == requested && l.kind.Fair { // lanes behind this one have waited for the reply
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
	if !a.mayLinger { // otherwise onGrant replaces it in the inbox, so no message is lost in between
		l.registry.inbox.remove(a.owner.(string)) // from now on no message can grant it anything
	}
}

// withdraw ends an attempt that no goroutine waits for any more.
func (a *attempt) withdraw(fx *effects) {
	ln := a.lane
	if seen := ln.l.lastHolder; a.state == queued && seen != nil {
		seen.At = time.Now() // remaining waiters were kept out by the holder until now, not by an outage
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

// conclude ends an attempt that is withdrawn or done, once no request is in flight. A withdrawn attempt is
// released in Redis first.
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

// finish ends an attempt. Everything that Redis still has of it is a grant of the session, or is being
// released.
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

// releaseLater releases the attempt in the background, if Redis may have a place or a grant for it.
func (a *attempt) releaseLater(fx *effects) {
	if a.mayHoldInRedis() {
		r := a.lane.l.releaseRequest(a.owner, "", a.staleUntil, "")
		a.lane.l.repeatLater(&r, a.giveUpReleasingAt(), fx)
	}
}

// mayHoldInRedis reports whether Redis may have a grant or a place in the queue for the attempt, or may get a
// copy of its request.
func (a *attempt) mayHoldInRedis() bool { return a.inRedis || a.staleUntil != 0 }

// giveUpReleasingAt returns the time at which all that the attempt may have in Redis has ended by itself. A
// place in the queue may be granted until the waiter timeout ends.
func (a *attempt) giveUpReleasingAt() time.Time {
	return time.Now().Add(a.requestedLease() + a.lane.l.s.WaiterTimeout)
}

// onQueued handles the reply that the attempt is queued, or still is.
func (a *attempt) onQueued(r protocol.Answer, sent time.Time, fx *effects) {
	ln := a.lane
	l := ln.l
	a.setState(queued, fx)
	ln.hadToQueue = true // from now on the lane has one attempt at a time
	a.numLate = 0
	l.contended = l.contended || !l.s.Owns(r.Holder)
	now := time.Now()
	until := now.Add(max(0, r.Left))
	l.lastHolder = &failure.Sighting{Holder: r.Holder, About: r.About, At: now, Until: until}
	a.baseLocal, a.baseRedis, a.lastRefused = sent, r.Now, max(a.lastRefused, r.Token)
	rest := l.s.WaiterTimeout / 5 * 3 // which leaves time to repeat the request
	switch {
	case r.Left < 0 || r.Behind:
	case r.Spare:
		rest = min(rest, r.Left+protocol.SpareDelay)
	default:
		rest = min(rest, r.Left+time.Millisecond)
	}
	a.requestWithin(rest, fx)
	if l.s.Observer != nil {
		for _, w := range ln.waiters {
			w.notifyQueued()
		}
	}
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
	if len(ln.waiters) > 0 && ln.l.s.Holds(r.Holder) { // without a waiter, nobody needs the hint
		e.Hint = ln.waiters[0].hint(ln.l.grantOf(r.Holder))
	}
	return ln.l.kind.locked(e)
}

// onGrant handles a grant by Redis. base is a local time not after the grant.
func (a *attempt) onGrant(token int64, base time.Time, lease time.Duration, fx *effects) {
	ln := a.lane
	l := ln.l
	a.setState(done, fx)
	home := ln
	if ln.noWait && !l.kind.Fair { // other goroutines may have the grant after the TryLock
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
		ln.numLateBefore = a.numLate + 1 // the waiters get another attempt
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
	if !g.held() || g.customLease { // released or lost meanwhile
		return
	}
	ln.hadToQueue = false
	g.reservedFor = ln
	g.queueCheckedAt = fx.age // goroutines may join for as long again
	ln.l.s.Watchdog.Extend(&g.lease, sent.Add(protocol.Valid(a.requestedLease())))
}

// An attempt is a recipient of messages.

func (a *attempt) Key() string { return a.lane.l.keys.LockKey() }

// OnMessage handles a message for the attempt. The words are
//   - TOKEN NOW LEASE NONCE: it was granted. A grant counts only with the nonce, which only Redis has;
//   - LEFT: it is the next in the queue, and the lease of the holder ends in LEFT ms;
//   - none: another session wants the grant, or messages may have been missed.
//
// Whatever anybody else may have sent costs no more than a request.
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

// onGrantNotice handles a grant that a message, or the reply to another request, has brought.
func (a *attempt) onGrantNotice(token int64, base time.Time, lease time.Duration, fx *effects) {
	if a.state != requested && a.state != queued || token <= a.lastRefused {
		return // a reply was faster, no goroutine waits, or the grant had ended when a reply said to wait
	}
	if a.inFlight { // the copy may arrive when the grant has ended
		a.staleUntil = a.notAfter
	}
	if !time.Now().Before(base.Add(protocol.Valid(lease))) {
		a.requestWithin(0, fx) // the lease seems to have ended. If it has not, the reply brings a whole lease
		return
	}
	a.onGrant(token, base, lease, fx)
	a.conclude(fx)
}

// subscribe subscribes the session to messages about the lock in the way that a reply has named. sent is the
// time before the request of that reply was sent.
func (l *lockState) subscribe(r protocol.Answer, sent time.Time) {
	l.registry.inbox.subscribe(l.keys.LockKey(), r.Sharded)
	if r.NoSubscriber {
		l.registry.inbox.reportUnsubscribed(l.keys.LockKey(), sent)
	}
}

// read reads the reply to a request, and notifies other attempts of this session of grants to them in the
// same reply. of is the attempt that sent the request, or nil for other requests. The caller must not hold
// l.mu.
func (l *lockState) read(o wire.Outcome, of *attempt) (protocol.Answer, error) {
	r, err := protocol.Read(o)
	if o.Unanswered != nil { // the lost reply may have told of a grant to another attempt of this session
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
		l.notifyServed(s, o.Sent) // the lock was granted after the request was sent
	}
	if r.Status == protocol.Granted && (r.MayLinger || r.NoSubscriber) { // no other grant does
		l.subscribe(r, o.Sent)
	}
	if r.Status == protocol.Queued { // the holder may be another attempt of this session
		l.notifyServed(protocol.Served{Owner: r.Holder, Token: r.Token, Lease: r.Left}, o.Sent)
	}
	return r, nil
}

// notifyServed gives a grant to its attempt, if that still waits here. The caller must not hold l.mu.
func (l *lockState) notifyServed(s protocol.Served, base time.Time) {
	if a, ok := l.registry.inbox.find(s.Owner).(*attempt); ok {
		fx := a.lane.l.begin() // of another state if a hold of that was lost
		a.onGrantNotice(s.Token, base, s.Lease, &fx)
		fx.commit()
	}
}
