package multilock

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

var (
	// serverKind is the kind of the locks that the servers of a RedLock have, and lineKind the kind of the
	// lock behind which waiters queue. Their keys differ from the keys of users' locks with the same name.
	serverKind = func() *engine.Kind {
		k := engine.NewLock(protocol.RedLock, false)
		k.Alone = true // only one goroutine of a process at a time wants it (localQueue)
		return k
	}()
	lineKind = engine.NewLock(protocol.Turnstile, true)
)

// lineLease is the lease and the waiter timeout of the lock of the line. A process that is killed or frozen
// at the head of the line delays the others for that time.
const lineLease = 2 * time.Second

// keepTokens is the time for which the last token of a free RedLock is kept. Tokens of later holders are as
// high as the clocks of their servers, which may be behind by that.
const keepTokens = 10 * time.Minute

// A quorum is the servers of several sessions. It is a part of each of these sessions, so it ends with the
// first session that ends, because a majority of the others would be a majority of other servers.
type quorum struct {
	id      string    // beginning of the ids of the parts' sessions
	key     quorumKey // finds the quorum in each user's session
	servers []*server // in the order in which they were given
	timeout time.Duration
	home    *session.Session // counts the work that the end of the quorum waits for
	lead    *session.Session // the first one, whose observer and logger are notified
	warned  sync.Once        // warns of a number of servers that is no good choice
	closing <-chan struct{}  // closed before the first of its sessions ends
	close   func()

	mu    sync.Mutex // guards the following; majority.mu may be locked under it
	local map[string]*localQueue
}

// A server is one of the servers, with the sessions by which RedLocks are held and waited for there.
type server struct {
	user     *session.Session // of the user
	session  *session.Session // of parts
	line     *session.Session // of the line's lock
	warnedAt time.Time        // of the last warning; guarded by quorum.mu
}

// A quorumKey has the ids of the sessions of a quorum, and its timeout. Quorums with the same key are one.
type quorumKey string

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// quorumOf finds or makes the quorum of some sessions. It returns an error if one of them is closed.
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
	q := &quorum{id: id, key: key, timeout: timeout, lead: users[0], local: map[string]*localQueue{}}
	for i, u := range users {
		cfg := u.Config
		cfg.Logger = slog.New(slog.DiscardHandler) // the loss of a part is no loss of the lock
		cfg.Observer = func(ctx context.Context, e session.Event) { q.renewalFailed(ctx, i, e) }
		cfg.Only = session.EventRenewFailed
		cfg.Handover = 0 // each part of a hold is granted by its server, which gives it a token
		s := &server{user: u, session: session.NewBeside(u, cfg, id+letters[i:i+1])}
		s.session.Args.Retention = protocol.Milliseconds(keepTokens)
		cfg.Lease, cfg.WaiterTimeout = lineLease, lineLease
		cfg.Observer = nil // the line concerns no user
		s.line = session.NewBeside(u, cfg, session.NewID())
		q.servers = append(q.servers, s)
	}
	q.home = q.servers[0].session
	closing, end := context.WithCancel(context.Background())
	q.closing, q.close = closing.Done(), end
	return q
}

// tally returns votes of all servers that are of one kind.
func (q *quorum) tally(kind voteKind) tally { return newTally(len(q.servers), kind) }

// holderOf returns the holder of a RedLock by the owner field of any of its parts. It is the part that the
// ids of their sessions have in common.
func holderOf(owner string) string {
	id, _, _ := strings.Cut(owner, ":")
	return id[:max(0, len(id)-1)]
}

// stayed is the ending of the owner field of a lock that stays taken after its Unlock, by HoldAtLeast.
const stayed = "~"

// stayedMark returns this ending if an owner field has it, or "".
func stayedMark(owner string) string {
	if strings.HasSuffix(owner, stayed) {
		return stayed
	}
	return ""
}

// Shutdown releases all locks on all servers. Then the sessions that live on forget the quorum.
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

// renewalFailed notifies the observer of a RedLock of a renewal that failed on one server. Of all other
// events, the observer gets one for the whole lock.
func (q *quorum) renewalFailed(ctx context.Context, i int, e session.Event) {
	q.mu.Lock()
	l := q.local[e.Name]
	q.mu.Unlock()
	if l != nil {
		if m := l.held.Load(); m != nil {
			m.renewalFailed(i, e.Err)
		}
	}
	q.lead.Observe(ctx, protocol.RedLock, e.Name,
		session.Event{Kind: e.Kind, Session: holderOf(e.Session), Token: e.Token, Err: e.Err})
}

// trouble returns why the server carries out no requests, as far as is known; nil if it does.
func (s *server) trouble() error {
	_, err := s.user.Link.Trouble(s.user.Ctx, "")
	return err
}

// works reports whether a majority of the servers carries out requests, as far as is known.
func (q *quorum) works() bool {
	t := q.tally(granted)
	for i, s := range q.servers {
		if s.trouble() != nil {
			t[i].kind = failed
		}
	}
	return t.won()
}

// warnInterval is the shortest time between two warnings of a server.
const warnInterval = time.Minute

// warn logs a problem of a server, but not too often. A majority may do without that server, so operators
// would not notice otherwise.
func (q *quorum) warn(s *server, msg, lock string, reason error) {
	q.mu.Lock()
	due := s.warnedAt.IsZero() || time.Since(s.warnedAt) > warnInterval
	if due {
		s.warnedAt = time.Now()
	}
	q.mu.Unlock() // loggers run under no mutex
	if due {
		q.lead.Warn(msg, "lock", lock, "kind", protocol.RedLock, "server", s.name(),
			"reason", failure.Unnamed(reason))
	}
}

// An answer is the result of the call to one server.
type answer[T any] struct {
	i     int
	value T
	err   error
}

// A poll is one request to several servers at once, and their votes. It belongs to one goroutine.
type poll[T any] struct {
	q       *quorum
	votes   tally
	values  []T     // by server that has granted
	errs    []error // by server; nil if it has granted, or has not answered
	answers <-chan answer[T]
}

// ask calls f for each server whose vote is pending, in goroutines of their own. The channel has room for all
// answers, so that its reader may leave.
func ask[T any](q *quorum, votes tally, f func(i int) (T, error)) *poll[T] {
	servers := votes.servers(pending)
	answers := make(chan answer[T], len(servers))
	for _, i := range servers {
		q.home.Go(func() {
			value, err := f(i)
			answers <- answer[T]{i, value, err}
		})
	}
	return &poll[T]{q, votes, make([]T, len(votes)), make([]error, len(votes)), answers}
}

// await counts votes as they come, until they are enough, all have come, or ctx ends.
func (p *poll[T]) await(ctx context.Context, enough func() bool) {
	for p.votes.count(pending) > 0 {
		select {
		case a := <-p.answers:
			p.take(a)
			if enough() {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// take counts a vote. A server that does not have the hold refuses, which is no loss of the whole.
func (p *poll[T]) take(a answer[T]) {
	v, s := &p.votes[a.i], p.q.servers[a.i]
	switch {
	case a.err == nil:
		v.kind, p.values[a.i] = granted, a.value
	case errors.Is(a.err, failure.ErrLost):
		v.kind, p.errs[a.i] = refused, s.named(errMissing)
	default:
		v.kind, p.errs[a.i] = kindOf(a.err), s.named(a.err)
	}
}

// giveBack unlocks some entries in the background. It skips nil.
func (q *quorum) giveBack(entries ...*engine.Entry) {
	for _, e := range entries {
		if e != nil {
			q.home.Go(func() { _ = e.Unlock(context.Background()) })
		}
	}
}
