package multilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
)

var (
	// serverKind is the lock that each server of a RedLock has, and turnKind the one behind which waiters
	// stand. Their keys are their own, so that users' locks of the same name are other locks.
	serverKind = func() *engine.Kind {
		k := engine.NewLock(protocol.RedLock, false)
		k.Alone = true // a desk lets one goroutine at a time ask
		return k
	}()
	turnKind = engine.NewLock(protocol.Turnstile, true)
)

// turnLease is the lease and the waiter timeout of turns: for how long one that is killed or frozen holds
// others up.
const turnLease = 2 * time.Second

// keepTokens is how long the last token of a free RedLock is remembered. Those of later holders are as high
// as the clocks of their servers, which may be behind by that.
const keepTokens = 10 * time.Minute

// quorum is the servers of several sessions. It is a part of each of them, so it ends with the first that
// ends: a majority of the rest would be one of other servers.
type quorum struct {
	id      string    // what the ids of the parts' sessions begin with
	key     quorumKey // of the part that each user's session has
	servers []*server // in the order in which they were given
	all     []int     // their numbers
	need    int       // a majority
	timeout time.Duration
	home    *session.Session // counts what the end of the quorum waits for
	lead    *session.Session // the first one that was given: its observer and its logger are told
	even    sync.Once
	closing <-chan struct{} // closed before the first of its sessions ends
	close   func()

	mu    sync.Mutex // guards what follows; majority.mu may be taken under it
	desks map[string]*desk
}

// server is one of the servers, with the sessions by which RedLocks are held and waited for there.
type server struct {
	user          *session.Session // that was given
	session, line *session.Session
	warned        time.Time // when something of it was last logged; guarded by quorum.mu
}

// quorumKey is equal for quorums that are one: the ids of their sessions, and the timeout.
type quorumKey string

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// quorumOf finds or makes the quorum of some sessions. The error is that one of them is closed.
func quorumOf(users []*session.Session, timeout time.Duration) (*quorum, error) {
	sorted := slices.Clone(users)
	slices.SortFunc(sorted, func(a, b *session.Session) int { return strings.Compare(a.ID(), b.ID()) })
	key := quorumKey(timeout.String())
	for _, u := range sorted {
		key += quorumKey(" " + u.ID())
	}
	// Callers with the same sessions have the same first one, in which it is made once.
	q, err := session.PartOf(sorted[0], key, func(*session.Session) *quorum {
		return newQuorum(users, key, timeout)
	})
	for _, u := range sorted[1:] {
		if err == nil {
			_, err = session.PartOf(u, key, func(*session.Session) *quorum { return q })
		}
	}
	if err != nil && q != nil {
		_ = q.Shutdown(context.Background()) // nothing is held; the sessions that live on forget it
	}
	return q, err
}

// newQuorum makes the sessions of a quorum. Their ids differ in their last letter, so that operators see the
// holder of all parts as one, and one server that was given twice does not take it for one.
func newQuorum(users []*session.Session, key quorumKey, timeout time.Duration) *quorum {
	id := session.NewID()
	id = id[:len(id)-1]
	q := &quorum{id: id, key: key, need: len(users)/2 + 1, timeout: timeout, lead: users[0],
		desks: map[string]*desk{}}
	for i, u := range users {
		cfg := u.Config
		cfg.Logger = slog.New(slog.DiscardHandler) // a part that is lost is no lock lost
		cfg.Observer = func(ctx context.Context, e session.Event) { q.renewalFailed(ctx, i, e) }
		cfg.Only = session.EventRenewFailed
		cfg.Handover = 0 // each part of a hold is granted by its server, which gives it a token
		s := &server{user: u, session: session.NewBeside(u, cfg, id+letters[i:i+1])}
		s.session.Args.Keep = protocol.Milliseconds(keepTokens)
		cfg.Lease, cfg.Liveness = turnLease, turnLease
		cfg.Observer = nil // what the line does is of no interest
		s.line = session.NewBeside(u, cfg, session.NewID())
		q.servers = append(q.servers, s)
		q.all = append(q.all, i)
	}
	q.home = q.servers[0].session
	closing, end := context.WithCancel(context.Background())
	q.closing, q.close = closing.Done(), end
	return q
}

// holderOf is what the session ids of all parts of one holder begin with. It is found in the owner field of
// any.
func holderOf(owner string) string {
	id, _, _ := strings.Cut(owner, ":")
	return id[:max(0, len(id)-1)]
}

// stays ends the owner field of a lock that stays taken after its Unlock, by HoldAtLeast.
const stays = "~"

// stayed returns that ending of an owner field, or "".
func stayed(owner string) string {
	if strings.HasSuffix(owner, stays) {
		return stays
	}
	return ""
}

// Shutdown gives back what is held on all servers. Then the sessions that live on forget the quorum.
func (q *quorum) Shutdown(ctx context.Context) error {
	q.close() // before the sessions, because a waiting call could win a lock that one of them releases
	var wg sync.WaitGroup
	errs := make([]error, 2*len(q.servers))
	for i, s := range q.servers {
		wg.Go(func() { errs[2*i] = s.line.Shutdown(ctx) })
		wg.Go(func() { errs[2*i+1] = s.session.Shutdown(ctx) })
	}
	wg.Wait()
	for _, s := range q.servers {
		s.user.Forget(q.key)
	}
	return failure.Join(errs...)
}

// renewalFailed notifies the observer of a RedLock of a renewal that failed on one server. All else it learns
// as of one lock.
func (q *quorum) renewalFailed(ctx context.Context, i int, e session.Event) {
	q.mu.Lock()
	d := q.desks[e.Name]
	q.mu.Unlock()
	if d != nil {
		if m := d.hold.Load(); m != nil {
			m.renewalFailed(i, e.Err)
		}
	}
	q.lead.Observe(ctx, protocol.RedLock, e.Name,
		session.Event{Kind: e.Kind, Session: holderOf(e.Session), Token: e.Token, Err: e.Err})
}

// check says what is wrong with the sessions and the timeout of a quorum.
func check(sessions []*session.Session, timeout time.Duration) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("lockline: RedLock: "+format, args...)
	}
	switch {
	case len(sessions) == 0:
		return fail("no sessions")
	case len(sessions) > len(letters):
		return fail("%d sessions are more than %d", len(sessions), len(letters))
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

// name returns the address of the server. If the address is not known, it returns the id of the session that
// reaches the server.
func (s *server) name() string {
	if addr := s.user.Link.Addr(); addr != "" {
		return addr
	}
	return "of session " + s.user.ID()
}

// named says of which server an error is.
func (s *server) named(err error) error {
	return failure.Worded("server "+s.name()+": "+failure.Unnamed(err), err)
}

// trouble is why the server carries no requests out, as far as is known; nil if it does.
func (s *server) trouble() error {
	_, err := s.user.Link.Trouble(s.user.Ctx, "")
	return err
}

// late is the error of a server that has not answered.
func (s *server) late() error {
	why := s.trouble()
	// A context that has ended was another call's.
	if why == nil || errors.Is(why, context.Canceled) || errors.Is(why, context.DeadlineExceeded) {
		return s.named(errLate)
	}
	return s.named(fmt.Errorf("%w: %v", errLate, why)) // whose kind is not this call's
}

// works reports whether a majority carries requests out, as far as is known.
func (q *quorum) works() bool {
	n := 0
	for _, s := range q.servers {
		if s.trouble() == nil {
			n++
		}
	}
	return n >= q.need
}

// warnEvery is the time between two warnings of a server.
const warnEvery = time.Minute

// warn logs something of a server, now and then. A majority may do without that server, so operators would
// not learn it but for the log.
func (q *quorum) warn(s *server, msg, lock string, reason error) {
	q.mu.Lock()
	now := s.warned.IsZero() || time.Since(s.warned) > warnEvery
	if now {
		s.warned = time.Now()
	}
	q.mu.Unlock() // loggers run under no mutex
	if now {
		q.lead.Warn(msg, "lock", lock, "kind", protocol.RedLock, "server", s.name(),
			"reason", failure.Unnamed(reason))
	}
}

// ahead is by how much a token may be above its server's clock. One that is further ahead was not made by
// Lockline.
const ahead = 24 * time.Hour

const noVote = "a server of a RedLock has no vote"

// credible is why a server's token for a lock is no vote, which is logged; nil if it is one.
func (q *quorum) credible(s *server, lock string, token int64) error {
	if now := s.session.Clock.Now(time.Now()); now == 0 || token <= now+ahead.Microseconds() {
		return nil
	}
	err := fmt.Errorf("the token %d is more than a day above the clock of its server", token)
	q.warn(s, noVote, lock, err)
	return s.named(err)
}

var (
	errLate  = errors.New("no answer in time")
	errTwice = errors.New("another session of the quorum leads to the same server, or to its replica")
	// errTaken is why a hold is missing on a server that answers.
	errTaken = errors.New("another one has the lock there")
	// errMissing is why a server does not answer for a hold.
	errMissing = errors.New("the hold is missing there")
	// errMinority: a minority was kept for long enough.
	errMinority = errors.New("others have the lock on too many servers")
	// errToken: the token of a bare majority was not stored by all of it, or not in time.
	errToken = errors.New("no majority has stored the fencing token")
)

// noMajority is the error of a request that too few servers answered. The first of the errors decides what
// becomes of the request: one that time will not mend, if there is one.
func (q *quorum) noMajority(answered int, failing []error) error {
	if slices.ContainsFunc(failing, func(err error) bool { return errors.Is(err, failure.ErrClosed) }) {
		return failure.ErrClosed
	}
	rank := func(err error) int {
		switch {
		case errors.Is(err, errLate):
			return 2
		case wire.Judge(err).Transient:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(failing, func(a, b error) int { return cmp.Compare(rank(a), rank(b)) })
	final := 0
	for _, err := range failing {
		if isFinal(err) {
			final++
		}
	}
	return &tooFewError{
		fmt.Errorf("%d of %d servers answered, %d are needed: %w",
			answered, len(q.servers), q.need, failure.Join(failing...)),
		final > len(q.servers)-q.need,
	}
}

// A tooFewError is the error of a request to all servers that too few of them have answered.
type tooFewError struct {
	err   error
	final bool // so many servers refuse that time will not mend it
}

func (e *tooFewError) Error() string { return e.err.Error() }
func (e *tooFewError) Unwrap() error { return e.err }

// isFinal reports whether err is permanent: the server will return it to every request until someone repairs
// the server or its configuration.
func isFinal(err error) bool {
	return errors.Is(err, errTwice) || !errors.Is(err, errLate) && !wire.Judge(err).Transient
}

// answer is what one server said.
type answer[T any] struct {
	i     int
	value T
	err   error
}

// ask calls f for each of some servers at once, in goroutines of their own. The channel has room for all
// answers, so that its reader may leave.
func ask[T any](q *quorum, servers []int, f func(i int) (T, error)) <-chan answer[T] {
	answers := make(chan answer[T], len(servers))
	for _, i := range servers {
		q.home.Go(func() {
			value, err := f(i)
			answers <- answer[T]{i, value, err}
		})
	}
	return answers
}

// tally is what servers have answered.
type tally struct {
	yes           int
	lost, failing []error // of those that have no hold any more, and of the rest
}

// count counts answers as they come, until those are enough, all have come, or ctx ends.
func count[T any](
	ctx context.Context, q *quorum, answers <-chan answer[T], enough func(tally, answer[T]) bool,
) (t tally) {
	for range cap(answers) {
		select {
		case a := <-answers:
			switch {
			case a.err == nil:
				t.yes++
			case errors.Is(a.err, failure.ErrLost): // which is no loss of the whole
				t.lost = append(t.lost, q.servers[a.i].named(errMissing))
			default:
				t.failing = append(t.failing, q.servers[a.i].named(a.err))
			}
			if enough(t, a) {
				return t
			}
		case <-ctx.Done():
			t.failing = append(t.failing, errLate)
			return t
		}
	}
	return t
}
