package redisson

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/internal/call"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/handle"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/watchdog"
)

// A grant represents the lock that Redis granted to one attempt. It has the hold of the call that got the
// lock, and the holds that are nested in that hold. Its state is Held at first, and then Released, Lost or
// Closed (handle.State).
type grant struct {
	// These fields never change.
	l     *lock
	owner any // owner field of the attempt, a string
	info  any // holder info of the attempt, a string
	token int64
	boxed any   // the token as a script argument
	late  int64 // Redis time in µs until which a copy of the attempt's request may arrive; 0: no such copy

	lease watchdog.Lease // guarded by the watchdog
	first hold

	// lock.mu guards the fields below.
	holds     []*hold       // live holds; each is nested in the hold before it
	change    int64         // number of the last change of holds; Redis ignores older changes
	began     time.Duration // age of the session when the first hold began
	state     handle.State
	unrenewed bool           // all holds have a fixed lease
	warned    bool           // warnOfItself has logged a warning for this grant
	announced bool           // the observer was notified that the lock was acquired
	lost      *session.Event // event of the end, if the grant ended before the announcement; otherwise nil

	renewError   error         // error of the last renewal that failed; nil means that no renewal has failed
	renewErrorAt time.Duration // age of the session when that renewal failed
	lossReason   error         // reason of the loss; nil means that the grant was not lost
}

func (g *grant) ownerField() string { return g.owner.(string) }

// about returns the holder info of the grant.
func (g *grant) about() string { return strings.TrimSpace(g.info.(string)) }

// held reports whether the grant has not ended. The caller must hold l.mu.
func (g *grant) held() bool { return g.state == handle.Held }

// deadline returns the local time at which the grant expires.
func (g *grant) deadline() time.Time { return g.l.s.Watchdog.Deadline(&g.lease) }

// locked returns the error of a call that is refused because of this grant.
func (g *grant) locked() *failure.LockedError {
	return &failure.LockedError{Name: g.l.n.keys.Name, Holder: g.ownerField(), About: g.about(),
		Remaining: max(0, time.Until(g.deadline())), Hint: failure.SelfHint}
}

// add makes h the innermost hold. The caller must hold l.mu.
func (g *grant) add(h *hold) {
	if g.holds == nil {
		g.began = h.began
		g.unrenewed = h.fixed
	}
	g.holds = append(g.holds, h)
	g.renew()
}

// remove removes a hold from the grant. The caller must hold l.mu.
func (g *grant) remove(h *hold) {
	i := slices.Index(g.holds, h)
	g.holds = slices.Delete(g.holds, i, i+1)
	g.change++
	g.renew()
}

// renew turns the renewal of the lease on if a hold has no fixed lease, and otherwise off. The caller must
// hold l.mu.
func (g *grant) renew() {
	fixed := !slices.ContainsFunc(g.holds, func(h *hold) bool { return !h.fixed })
	if fixed != g.unrenewed && len(g.holds) > 0 {
		g.unrenewed = fixed
		g.l.s.Watchdog.SetInterval(&g.lease, g.interval())
	}
}

// interval returns the time between two renewals, or 0 if the lease is not renewed.
func (g *grant) interval() time.Duration {
	if g.unrenewed {
		return 0
	}
	return g.l.s.Lease / 3
}

// end ends the grant without an Unlock, in the final state why. If why is Lost, reason is the reason of the
// loss. Otherwise reason is nil. end reports whether this call ended the grant. It sends no request. The
// caller must not hold l.mu.
func (g *grant) end(why handle.State, reason error) bool {
	g.l.mu.Lock()
	if !g.held() {
		g.l.mu.Unlock()
		return false
	}
	after := g.terminate(why, reason)
	g.l.mu.Unlock()
	after()
	return true
}

// detach sets the final state of the grant, and removes the grant from its lock. The caller must hold l.mu.
func (g *grant) detach(why handle.State) {
	l := g.l
	g.state = why
	if l.grant == g {
		l.grant = nil
	}
	if len(l.waiters) > 0 { // errors of the waiters name this holder, until Redis names another holder
		now := time.Now()
		l.seen = &failure.Sighting{Holder: g.ownerField(), About: g.about(), At: now, Until: now}
	}
}

// terminate does the work of end, with the same parameters. The state of the grant must be Held, and the
// caller must have locked l.mu. It must call the returned function after it has unlocked l.mu. The function
// ends the contexts of the holds.
func (g *grant) terminate(why handle.State, reason error) (after func()) {
	l := g.l
	s := l.s
	g.detach(why)
	if why == handle.Lost {
		g.lossReason = reason
	}
	holds := g.holds // holds does not change after the grant has ended
	for _, h := range holds {
		h.state = why
		h.wake() // wakes goroutines that wait to nest in h
	}
	held := s.Age() - g.began
	event := &session.Event{Kind: session.EventReleased, Token: g.token, Held: held}
	if why == handle.Lost {
		event.Kind, event.Err = session.EventLost, failure.Lost(reason)
	}
	if !g.announced {
		g.lost, event = event, nil // announce will notify the observer
	}
	l.settle()
	return func() {
		s.Watchdog.Remove(&g.lease)
		report := func() {
			if reason != nil {
				g.warnLost(held, reason)
			}
			if event != nil {
				l.observe(s.Ctx, *event)
			}
		}
		// Begin makes Shutdown wait for report. When the contexts end, the user may close the session, and
		// Begin would then return false. So Begin is called before the contexts end.
		counted := why == handle.Lost && s.Begin()
		// Nested holds end first.
		for _, h := range slices.Backward(holds) {
			h.cancel(handle.ErrorOf(why))
		}
		switch { // report runs in the background, because contexts of other grants must not wait for a logger
		case counted:
			go func() {
				defer s.End()
				report()
			}()
		case why == handle.Closed:
			s.Go(report) // the caller is locks.Shutdown; Session.Shutdown then waits for this goroutine
		default:
			go report()
		}
		l.drop()
	}
}

// announce records that the observer was notified of the grant. If the grant has already ended, announce also
// notifies the observer of the end.
func (g *grant) announce() {
	l := g.l
	if l.s.Observer == nil {
		return
	}
	l.mu.Lock()
	event := g.lost
	g.announced = true
	l.mu.Unlock()
	if event != nil {
		l.observe(l.s.Ctx, *event)
	}
}

// warnLost logs the loss of the grant.
func (g *grant) warnLost(held time.Duration, reason error) {
	g.l.s.Warn("lock lost", "lock", g.l.n.keys.Name, "kind", protocol.Redisson, "token", g.token,
		"held", held, "server", g.l.s.Link.NameOf(g.l.n.keys.LockKey()), "reason", reason)
}

// errorOf returns the error of a hold in this state. For Lost, the error contains the reason. The caller must
// hold l.mu.
func (g *grant) errorOf(s handle.State) error {
	if s == handle.Lost {
		return failure.Lost(g.lossReason)
	}
	return handle.ErrorOf(s)
}

func isLost(err error) bool { return errors.Is(err, failure.ErrLost) }

// extend extends the lease to at least d from now, and sets the hold count in Redis. It blocks for the reply,
// at most until ctx ends. If ctx has no deadline, it blocks for at most the lease of the session.
func (g *grant) extend(ctx context.Context, d time.Duration) error {
	l := g.l
	r := &update{g, protocol.Milliseconds(d)}
	send := func(ctx context.Context, maxTries int, _ *atomic.Bool) wire.Outcome {
		return l.s.Link.Call(ctx, r, maxTries, nil)
	}
	b, begun := &call.Bounds{Until: ctx}, time.Now()
	o, answered := call.Ask(b, l.s, l.n.keys.LockKey(), call.Func(send), l.s.Lease)
	if !answered {
		return call.Unanswered(b, l.s, l.n.keys, "", begun)
	}
	return g.onUpdate(o, d)
}

// onUpdate handles the outcome of an update. d is the lease that the update requested; 0 means none.
func (g *grant) onUpdate(o wire.Outcome, d time.Duration) error {
	l := g.l
	switch {
	case o.Err != nil:
		return l.failed(o.Err)
	case !strings.HasPrefix(o.Reply, "K"):
		g.end(handle.Lost, failure.ErrGone) // does nothing if the last hold was unlocked meanwhile
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.fail(g.errorOf(g.state))
	case d > 0:
		l.s.Watchdog.Extend(&g.lease, o.Sent.Add(protocol.Valid(d)))
	}
	return nil
}

// update is a request that sets the hold count in Redis, and extends the lease to at least ms. A copy
// contains the count itself and the number of the last change. So a copy that arrives twice or late does not
// overwrite a newer count.
type update struct {
	g  *grant
	ms any // lease in milliseconds, a string; "0" leaves the lease as it is
}

// Request returns the next copy of the request, with the current hold count.
func (u *update) Request(time.Time) *wire.Request {
	g, l := u.g, u.g.l
	l.mu.Lock()
	change, count := g.change, max(len(g.holds), 1) // not 0, because the last Unlock sends a release instead
	l.mu.Unlock()
	return l.n.keys.RequestFew(scripts.keep, g.owner, g.boxed, change, count, u.ms, l.s.Args.Retention,
		l.n.channel, l.n.how)
}

var _ session.Lessee = (*grant)(nil)

// LeaseKey returns the key of the hash.
func (g *grant) LeaseKey() string { return g.l.n.keys.LockKey() }

// Renewal returns the request that renews the lease. If all holds have a fixed lease, prolongs is false. Then
// the request does not extend the lease, but checks whether Redis still has the grant.
func (g *grant) Renewal() (r *wire.Request, prolongs bool) {
	g.l.mu.Lock()
	prolongs = !g.unrenewed
	g.l.mu.Unlock()
	lease := any("0")
	if prolongs {
		lease = g.l.s.Args.Lease
	}
	return (&update{g, lease}).Request(time.Time{}), prolongs
}

// LeaseLost ends the grant.
func (g *grant) LeaseLost(deadlinePassed bool) { g.end(handle.Lost, g.whyLost(deadlinePassed)) }

// whyLost returns the reason of a loss that the watchdog has noticed. If the deadline has passed because
// renewals failed, the reason contains the error of the last renewal.
func (g *grant) whyLost(deadlinePassed bool) error {
	l := g.l
	reason := failure.LossReason(deadlinePassed)
	if !deadlinePassed {
		return reason
	}
	l.mu.Lock()
	last, at, fixed := g.renewError, g.renewErrorAt, g.unrenewed
	l.mu.Unlock()
	// A failure that is older than a lease does not count, because a later renewal has succeeded. If there is
	// no other failure, the last renewal may have no reply yet. Then the reason contains the error of the
	// server's outage, if there is one.
	if last == nil || l.s.Age()-at > l.s.Lease {
		_, last = l.s.Link.Trouble(l.s.Ctx, l.n.keys.LockKey())
	}
	switch {
	case fixed:
		return failure.ErrFixedLeaseOver
	case last == nil:
		return reason
	}
	return fmt.Errorf("%w; the last renewal failed: %s", reason, failure.Unnamed(l.failed(last)))
}

// RenewalFailed stores the error for whyLost, and notifies the observer.
func (g *grant) RenewalFailed(err error) {
	l := g.l
	l.mu.Lock()
	g.renewError, g.renewErrorAt = err, l.s.Age()
	l.mu.Unlock()
	l.observe(l.s.Ctx, session.Event{Kind: session.EventRenewFailed, Token: g.token, Err: err})
}

// release returns the request that ends an attempt in Redis, even if the attempt does not hold the lock.
// token is the token of its grant, or "" if the token does not matter. late is the Redis time in µs until
// which a copy of the attempt's request may arrive, or 0 if there is no such copy.
func (n *names) release(s *session.Session, owner, token any, late int64) protocol.FixedRequest {
	return protocol.FixedRequest{Script: scripts.release, Keys: n.keys,
		Argv: []any{owner, token, s.Args.Retention, late, n.channel, n.how}}
}

// readRelease reads the reply to a release. released reports whether the lock was released under the token of
// the request. notified is the number of clients that Redis has notified.
func readRelease(o wire.Outcome) (released bool, notified int64, err error) {
	status, count, counted := strings.Cut(o.Reply, " ")
	switch {
	case o.Err != nil:
		return false, 0, o.Err
	case status != "R" && status != "L":
		return false, 0, wire.Unexpected(o.Reply)
	case counted:
		if notified, err = strconv.ParseInt(count, 10, 64); err != nil {
			return false, 0, wire.Unexpected(o.Reply)
		}
	}
	return status == "R", notified, nil
}

// A release frees the lock in Redis, after the session has ended the grant. Until the release has ended, no
// goroutine of the session requests the lock. Otherwise a request of such a goroutine could take the lock
// before other clients are notified.
type release struct {
	protocol.FixedRequest
	g *grant
}

// newRelease begins the release of a grant that has ended. The caller must then call either send or drop on
// the result.
func (g *grant) newRelease() *release {
	l := g.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain() // because the end of the grant has dropped its use of the lock
	return g.beginRelease()
}

// beginRelease does the same as newRelease for a caller that holds l.mu. The release takes over the grant's
// use of the lock (lock.uses).
func (g *grant) beginRelease() *release {
	g.l.releases++
	return &release{g.l.n.release(g.l.s, g.owner, g.boxed, g.late), g}
}

// drop ends a release that was not sent.
func (r *release) drop() {
	l := r.g.l
	l.mu.Lock()
	l.endRelease()
	l.mu.Unlock()
	l.drop()
}

// send sends the release, and blocks for the reply.
func (r *release) send(ctx context.Context) error {
	return r.onReply(r.g.l.s.Link.Call(ctx, r, wire.Tries, nil))
}

// onReply handles the outcome of the release. A release that failed is sent again in the background, unless
// Verdict.Again of package wire excludes this, for example because the client is closed. The caller must be
// counted as work of the session (Session.Begin).
func (r *release) onReply(o wire.Outcome) error {
	l := r.g.l
	released, notified, err := readRelease(o)
	l.mu.Lock()
	l.yield(notified)
	l.endRelease()
	l.mu.Unlock()
	defer l.drop()
	switch {
	case err != nil && !wire.Judge(err).Again(l.s.Closing()):
		return l.failed(fmt.Errorf("%w; not tried again: it may stay taken until its lease ends", err))
	case err != nil:
		until := r.g.deadline()
		l.s.Go(func() { l.repeat(r, until) })
		return l.failed(fmt.Errorf("the release failed, and is sent again in the background: %w", err))
	case !released && o.Unanswered == nil: // each copy has a reply, and none has released the lock
		return l.fail(failure.Lost(failure.ErrGone))
	}
	return nil
}
