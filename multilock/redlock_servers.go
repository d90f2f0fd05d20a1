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
	// serverKind is the kind of the lock on each server of a RedLock. lineKind is the kind of the line of
	// waiters, which is a fair lock. The keys of both differ from the keys of users' locks with the same
	// name.
	serverKind = func() *engine.Kind {
		k := engine.NewLock(protocol.RedLock, false)
		k.Alone = true // because of localQueue, only one goroutine of a process at a time wants the lock
		return k
	}()
	lineKind = engine.NewLock(protocol.Turnstile, true)
)

// lineLease is the lease, and also the waiter timeout, of the fair lock that is the line of waiters. A
// process that is killed or frozen at the head of the line delays the other waiters by about this time.
const lineLease = 2 * time.Second

// keepTokens is the shortest time for which a server keeps the last token of a free RedLock. If a server has
// forgotten that token, its next token comes from its clock alone. This token is above the forgotten one,
// unless the clocks of the servers differ by more than keepTokens.
const keepTokens = 10 * time.Minute

// A quorum is the state of a Quorum. It belongs to each of the sessions that the user has given, and ends as
// soon as one of them ends, because majorities must always be counted over the same servers.
type quorum struct {
	id      string    // common beginning of the ids of all sessions that hold parts
	key     quorumKey // each of the user's sessions has the quorum under this key
	servers []*server // in the order in which the user has given the sessions
	timeout time.Duration
	home    *session.Session // counts work in the background, for which Shutdown waits
	lead    *session.Session // the first session of the user, whose observer and logger are used
	warned  sync.Once        // makes NewQuorum warn only once about the number of servers
	closing <-chan struct{}  // closed before Shutdown ends the sessions of the quorum
	close   func()           // closes closing

	mu    sync.Mutex             // guards local and server.warnedAt; majority.mu may be locked under mu
	local map[string]*localQueue // by the name of the RedLock
}

// A server is one server of a quorum, with the sessions that lead to it.
type server struct {
	user     *session.Session // the session that the user has given
	session  *session.Session // holds the parts of RedLocks
	line     *session.Session // holds, and waits for, the locks of lines
	warnedAt time.Time        // when the last warning was logged; guarded by quorum.mu
}

// A quorumKey has the ids of the user's sessions, and the server timeout. There is one quorum for each key.
type quorumKey string

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// quorumOf returns the quorum of the user's sessions, and makes one if there is none. It returns an error if
// a session is closed.
func quorumOf(users []*session.Session, timeout time.Duration) (*quorum, error) {
	sorted := slices.Clone(users)
	slices.SortFunc(sorted, func(a, b *session.Session) int { return strings.Compare(a.ID(), b.ID()) })
	key := quorumKey(timeout.String())
	for _, u := range sorted {
		key += quorumKey(" " + u.ID())
	}
	// All callers with these sessions begin with the same session, so only one of them makes the quorum.
	q, err := session.PartOf(sorted[0], key, func(*session.Session) *quorum {
		return newQuorum(users, key, timeout)
	})
	for _, u := range sorted[1:] {
		if err == nil {
			_, err = session.PartOf(u, key, func(*session.Session) *quorum { return q })
		}
	}
	if err != nil && q != nil {
		_ = q.Shutdown(context.Background()) // removes q from the sessions that are open; no lock is held yet
	}
	return q, err
}

// newQuorum makes a quorum and its sessions. The ids of the sessions that hold parts differ only in their
// last letter. So operators see that all parts have the same holder, but a server that was given twice takes
// the two sessions for two holders.
func newQuorum(users []*session.Session, key quorumKey, timeout time.Duration) *quorum {
	id := session.NewID()
	id = id[:len(id)-1]
	q := &quorum{id: id, key: key, timeout: timeout, lead: users[0], local: map[string]*localQueue{}}
	for i, u := range users {
		cfg := u.Config
		cfg.Logger = slog.New(slog.DiscardHandler) // no log of a lost part, because the lock may stay held
		cfg.Observer = func(ctx context.Context, e session.Event) { q.renewalFailed(ctx, i, e) }
		cfg.Only = session.EventRenewFailed
		cfg.Handover = 0 // no part is passed on in memory, because each part needs a token from its server
		s := &server{user: u, session: session.NewBeside(u, cfg, id+letters[i:i+1])}
		s.session.Args.Retention = protocol.Milliseconds(keepTokens)
		cfg.Lease, cfg.WaiterTimeout = lineLease, lineLease
		cfg.Observer = nil // the user's observer gets no events of lines
		s.line = session.NewBeside(u, cfg, session.NewID())
		q.servers = append(q.servers, s)
	}
	q.home = q.servers[0].session
	closing, end := context.WithCancel(context.Background())
	q.closing, q.close = closing.Done(), end
	return q
}

// tally returns a tally of all servers, in which each vote is of this kind.
func (q *quorum) tally(kind voteKind) tally { return newTally(len(q.servers), kind) }

// holderOf returns the id of the holder of a RedLock. owner is the owner field of any part. The id is the
// common beginning of the ids of the holder's sessions.
func holderOf(owner string) string {
	id, _, _ := strings.Cut(owner, ":")
	return id[:max(0, len(id)-1)]
}

// stayed is the ending of the owner field of a lock that stays taken after its Unlock because of HoldAtLeast.
const stayed = "~"

// stayedMark returns stayed if the owner field ends with it, and otherwise "".
func stayedMark(owner string) string {
	if strings.HasSuffix(owner, stayed) {
		return stayed
	}
	return ""
}

// Shutdown ends the quorum. It releases the locks of the quorum on all servers. Then it removes the quorum
// from the user's sessions.
func (q *quorum) Shutdown(ctx context.Context) error {
	q.close() // first, because otherwise a waiting call could get a lock that a session releases
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

// renewalFailed records that a renewal has failed on the i-th server, and notifies the user's observer. For
// all other events, RedLock.observe notifies the observer once for the whole lock.
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

// trouble returns the known reason why the server carries out no requests, or nil if no reason is known.
func (s *server) trouble() error {
	_, err := s.user.Link.Trouble(s.user.Ctx, "")
	return err
}

// An outage is a time in which too few servers for a majority carry out requests.
type outage struct {
	since time.Time
	err   error // names the servers that carry out no requests, and their troubles
}

// outage returns the present outage, as far as the troubles of the servers are known. It returns nil if a
// majority of the servers has no known trouble.
func (q *quorum) outage() *outage {
	p := &poll[struct{}]{q: q, votes: q.tally(granted), errs: make([]error, len(q.servers))}
	var began []time.Time
	for i, s := range q.servers {
		if since, err := s.user.Link.Trouble(s.user.Ctx, ""); err != nil {
			p.votes[i].kind = pending
			began = append(began, since)
		}
	}
	if p.votes.won() {
		return nil
	}
	slices.SortFunc(began, time.Time.Compare)
	// The outage began with the trouble of the first server after which the others were no majority.
	return &outage{began[len(q.servers)-p.votes.need()], p.noMajority("answered", granted)}
}

// warnInterval is the shortest time between two warnings about the same server.
const warnInterval = time.Minute

// warn logs a problem of a server, but not more often than warnInterval allows. Without the log, operators
// might not notice the problem, because a majority can work without this server.
func (q *quorum) warn(s *server, msg, lock string, reason error) {
	q.mu.Lock()
	due := s.warnedAt.IsZero() || time.Since(s.warnedAt) > warnInterval
	if due {
		s.warnedAt = time.Now()
	}
	q.mu.Unlock() // before Warn, because no mutex may be held while a user's logger runs
	if due {
		q.lead.Warn(msg, "lock", lock, "kind", protocol.RedLock, "server", s.name(),
			"reason", failure.Unnamed(reason))
	}
}

// An answer is the result of a request to one server.
type answer[T any] struct {
	i     int // index of the server
	value T
	err   error
}

// A poll sends one request to several servers at once, and collects their votes. Only one goroutine at a time
// may use it.
type poll[T any] struct {
	q       *quorum
	votes   tally
	values  []T     // by server; set if the server has granted
	errs    []error // by server; nil if the server has granted, or has not answered
	answers <-chan answer[T]
}

// startPoll calls f for each server whose vote is pending, each in its own goroutine. The channel has room
// for all answers, so these goroutines end even if no goroutine reads the channel.
func startPoll[T any](q *quorum, votes tally, f func(i int) (T, error)) *poll[T] {
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

// await counts votes as they arrive, until enough returns true, all servers have answered, or ctx ends.
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

// take counts the vote of a server. If the server does not have the hold, its vote is refused. A single
// refused vote does not mean that the majority is lost.
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

// unlockInBackground unlocks these entries in the background. It skips nil entries.
func (q *quorum) unlockInBackground(entries ...*engine.Entry) {
	for _, e := range entries {
		if e != nil {
			q.home.Go(func() { _ = e.Unlock(context.Background()) })
		}
	}
}
