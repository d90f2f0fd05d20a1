package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

var (
	errZeroQuorum  = errors.New("lockline: the Quorum is nil or a zero value; make one with NewQuorum")
	errZeroRedLock = errors.New("lockline: the RedLock is nil or a zero value; make one with Quorum.New")

	errLate     = errors.New("no answer in time")
	errTwice    = errors.New("another session of the quorum leads to the same server, or to its replica")
	errTaken    = errors.New("another holder has the lock")
	errMissing  = errors.New("the hold is missing there") // the server answers, but does not have the hold
	errMinority = errors.New("others have the lock on too many servers")
	errToken    = errors.New("no majority has stored the fencing token")
)

// A tooFewError means that too few servers have carried out a request that was sent to all of them.
type tooFewError struct {
	err   error
	final bool // so many servers have permanent errors that no majority can answer
}

func (e *tooFewError) Error() string { return e.err.Error() }
func (e *tooFewError) Unwrap() error { return e.err }

// isFinal reports whether err is permanent. The server returns such an error to every request until someone
// repairs the server or its configuration.
func isFinal(err error) bool {
	return errors.Is(err, errTwice) || !errors.Is(err, errLate) && !wire.Judge(err).Transient
}

// waitsAfter reports whether the Lock of a RedLock keeps waiting after this error, as it does in an outage.
// If known is false, waitsAfter does not know the error, and waits has no meaning.
func waitsAfter(err error) (waits, known bool) {
	var few *tooFewError
	if errors.As(err, &few) {
		return !few.final, true
	}
	known = errors.Is(err, errToken) || errors.Is(err, errTaken) || errors.Is(err, engine.ErrTooLate)
	return known, known
}

// kindOf returns the kind of the vote of a server if the request to it has failed with err.
func kindOf(err error) voteKind {
	switch {
	case errors.As(err, new(*failure.LockedError)):
		return refused
	case isFinal(err):
		return broken
	}
	return failed
}

// name returns the address of the server. If the address is not known, it returns the id of the session that
// reaches the server.
func (s *server) name() string {
	if addr := s.user.Link.Addr(); addr != "" {
		return addr
	}
	return "of session " + s.user.ID()
}

// named prefixes err with the name of the server.
func (s *server) named(err error) error {
	return failure.Worded("server "+s.name()+": "+failure.Unnamed(err), err)
}

// late returns the error for a server that has not answered in time. If the session knows of a trouble of the
// server, the error names this trouble.
func (s *server) late() error {
	err := s.trouble()
	// Ignore the error of an ended context. It was the context of another call, and says nothing about the
	// server.
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return errLate
	}
	return fmt.Errorf("%w: %v", errLate, err) // not %w, because err comes from another call
}

// maxAhead is the longest time by which a token can be ahead of the clock of its server. A token that is
// further ahead does not come from Lockline.
const maxAhead = 24 * time.Hour

const noVote = "a server of a RedLock has no vote"

// checkToken returns and logs an error if this token of the i-th server is too far ahead of the server's
// clock (maxAhead). A grant with such a token cannot count as a vote. Otherwise checkToken returns nil.
func (l *RedLock) checkToken(i int, token int64) error {
	s := l.q.servers[i]
	if now := s.session.Clock.Now(time.Now()); now == 0 || token <= now+maxAhead.Microseconds() {
		return nil
	}
	err := fmt.Errorf("the token %d is more than a day ahead of the clock of its server", token)
	l.q.warn(s, noVote, l.name, err)
	return err
}

// refusal returns the error for a part that the i-th server has refused with err. If err names a holder,
// refusal replaces the holder's owner field on that server by the id that the holder has on all servers.
func (l *RedLock) refusal(i int, err error) error {
	q, s := l.q, l.q.servers[i]
	var locked *rlock.LockedError
	switch {
	case errors.As(err, &locked) && holderOf(locked.Holder) == q.id &&
		!strings.HasPrefix(locked.Holder, s.session.ID()): // another session of this quorum is the holder
		err = fmt.Errorf("%w, and a majority needs %d distinct servers", errTwice, q.tally(pending).need())
		q.warn(s, noVote, l.name, err)
	case locked != nil && locked.Holder != "":
		e := failure.LockedError(*locked)
		e.Holder = holderOf(e.Holder) + stayedMark(e.Holder)
		return &e
	case locked != nil, // an earlier request of this process for the part has not ended
		errors.Is(err, failure.ErrNoAnswer), // the round ended before the server answered
		errors.Is(err, context.Canceled):
		return s.late()
	case errors.As(err, new(*wire.ValueError)):
		q.warn(s, noVote, l.name, err)
	}
	return err
}

// noMajority returns the error of a request that too few servers have carried out. kinds are the kinds of
// votes of the servers that have carried out the request. did is the verb for these servers in the text of
// the error, as in "1 of 3 servers answered". noMajority joins the errors of the other servers. Permanent
// errors come first, because the first error decides whether the call is repeated.
func (p *poll[T]) noMajority(did string, kinds ...voteKind) error {
	var failing []error
	for _, kind := range [...]voteKind{broken, failed, refused, pending} {
		for _, i := range p.votes.servers(kind) {
			switch err := p.errs[i]; {
			case errors.Is(err, failure.ErrClosed):
				return failure.ErrClosed
			case slices.Contains(kinds, kind):
			case kind == pending:
				failing = append(failing, p.q.servers[i].named(p.q.servers[i].late()))
			case err != nil:
				failing = append(failing, err)
			}
		}
	}
	return &tooFewError{
		fmt.Errorf("%d of %d servers %s, %d are needed: %w",
			p.votes.count(kinds...), len(p.votes), did, p.votes.need(), failure.Join(failing...)),
		p.votes.blocked(broken),
	}
}

// holder returns the holder that most servers of a round name, or nil if no server names a holder.
func (r *round) holder() (holder *failure.LockedError) {
	named, most := map[string]int{}, 0
	for _, i := range r.votes.servers(refused) {
		var locked *failure.LockedError
		if errors.As(r.errs[i], &locked) {
			if named[locked.Holder]++; named[locked.Holder] > most {
				holder, most = locked, named[locked.Holder]
			}
		}
	}
	return holder
}

// roundError returns the error of a round that has failed. The error names the holder, or says that too few
// servers have answered. roundError records the holder in the call and in its localQueue, and the error of a
// round without enough answers in the call. If reason is nil, the votes say why the round has failed.
// Otherwise reason is errMinority, or says why a round with a majority has failed.
func (c *lockCall) roundError(r *round, reason error) error {
	isClosed := func(err error) bool { return errors.Is(err, failure.ErrClosed) }
	if slices.ContainsFunc(r.errs, isClosed) {
		return failure.Named(c.l.name, failure.ErrClosed)
	}
	holder := r.holder()
	if holder != nil {
		c.holder = holder
		now := time.Now()
		c.local.seen.Store(&failure.Sighting{Holder: holder.Holder, About: holder.About,
			At: now, Until: now.Add(holder.Remaining)})
	}
	c.hopeless = r.votes.blocked(broken)
	// If others have the lock on so many servers that no majority is left, missing answers do not matter. But
	// if too many servers have permanent errors, a Lock must fail, because it would wait in vain for a
	// majority.
	taken := r.votes.majority(granted, refused) || r.votes.blocked(refused) && !(c.hopeless && !c.once)
	ended := c.bounds.Over()
	if taken {
		c.trouble = nil
	} else if !ended || c.trouble == nil { // a round that was cut short says less than the round before
		c.trouble = r.noMajority("answered", granted, refused)
	}
	switch {
	case ended:
		return c.waitError()
	case reason == errMinority && c.q.outage() == nil && !c.hopeless:
		// A majority of the servers has no known trouble. So others have the lock on the servers that did not
		// grant it.
		c.setTaken(true)
		return failure.Public(c.holder)
	case !taken:
		c.setTaken(false)
		return failure.Named(c.l.name, c.trouble)
	case holder != nil:
		return failure.Public(holder)
	}
	return failure.Named(c.l.name, cmp.Or(reason, errTaken))
}

// waitError returns the error of a wait that has ended.
func (c *lockCall) waitError() error {
	err := failure.OfWait(c.callerCtx, wire.Closed(c.bounds.Closing), "", c.l.name, c.holder)
	if c.holder == nil && c.trouble != nil {
		text := c.trouble.Error() // only the text: errors.Is must not find the error of a single server
		err = failure.Troubled(err, errors.New(text))
	}
	return err
}

// holder returns the last known holder of the lock, for a call that began at begun. If the lock is known to
// be taken, but not by whom, the result has no Holder. holder returns nil if the lock is not known to be
// taken.
func (l *localQueue) holder(begun time.Time) *failure.LockedError {
	if m := l.held.Load(); m != nil {
		return m.lockedError()
	}
	seen := l.seen.Load()
	if by := seen.Locked(l.name, begun, nil); by != nil || seen == nil {
		return by
	}
	return &failure.LockedError{Name: l.name}
}

// lockedError returns the error of a call that waits for this majority.
func (m *majority) lockedError() *failure.LockedError {
	return &failure.LockedError{Name: m.l.name, Holder: m.q.id, About: m.q.home.About(m.note),
		Remaining: max(0, time.Until(m.deadline())), Hint: failure.SelfHint}
}

// whyLost returns why the majority was lost. Either its deadline has passed, or servers no longer have the
// hold. If the deadline has passed, whyLost adds the errors of renewals that failed within the last lease,
// for the parts that are lost. The caller must hold m.mu.
func (m *majority) whyLost() error {
	reason := failure.LossReason(!time.Now().Before(m.votes(false).validUntil()))
	if reason != failure.ErrExpired {
		return reason
	}
	live := m.votes(true)
	var failing []error
	for i, r := range m.renewalErrors {
		if live[i].kind != granted && !r.at.IsZero() && time.Since(r.at) <= m.q.lead.Lease {
			failing = append(failing, m.q.servers[i].named(r.err))
		}
	}
	if len(failing) == 0 {
		return reason
	}
	return fmt.Errorf("%w; the last renewals failed: %s", reason, failure.Join(failing...))
}

// checkSessions returns an error if the sessions or the timeout of a quorum are not valid.
func checkSessions(sessions []*session.Session, timeout time.Duration) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("lockline: RedLock: "+format, args...)
	}
	switch {
	case len(sessions) == 0:
		return fail("no sessions")
	case len(sessions) > len(letters):
		return fail("%d sessions are more than the maximum of %d", len(sessions), len(letters))
	}
	for i, s := range sessions {
		switch {
		case s == nil:
			return fail("session %d of %d is nil", i+1, len(sessions))
		case s.Prefix != sessions[0].Prefix:
			return fail("sessions 1 and %d differ in their prefixes, %q and %q",
				i+1, sessions[0].Prefix, s.Prefix)
		case s.Lease != sessions[0].Lease:
			return fail("sessions 1 and %d differ in their watchdog timeouts, %v and %v",
				i+1, sessions[0].Lease, s.Lease)
		}
		for j, other := range sessions[:i] {
			if s.Link.Leads(other.Link) {
				return fail("sessions %d and %d are of one server; its vote would count twice", j+1, i+1)
			}
		}
	}
	const option = "RedLock: WithServerTimeout"
	switch lease := sessions[0].Lease; {
	case timeout == 0: // the default
		return nil
	case timeout >= lease/2:
		return fmt.Errorf("lockline: %s: %v is not below half of the watchdog timeout, %v",
			option, timeout, lease)
	}
	return protocol.CheckDuration(option, timeout, protocol.MinTime, protocol.MaxLease)
}
