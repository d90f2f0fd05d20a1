package multilock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/rlock"
)

// Quorum is a set of independent Redis servers, on a majority of which locks are held: RedLocks. No server
// knows of another, so a RedLock survives the loss of any minority of them, where a lock on a primary with
// replicas can be lost in a failover. Make it with [NewQuorum]. Safe for concurrent use.
//
// A RedLock is an [rlock.Mutex] in all that is said there: the context and re-entry, leases and the watchdog,
// errors. What differs:
//
// # Votes
//
// A RedLock is a reentrant lock on each of the servers, and held if a majority of them is: 2 of 3, 3 of 5. A
// fourth server only costs, and of two both are needed. Lock asks all servers at once. After a majority has
// granted, it waits for the rest as long again, 2 ms at least. Each part is valid from before its request was
// sent, less 1 % and 2 ms for the drift of clocks. The hold is valid as long as a majority of its parts. A
// grant without a majority is given back, also where no answer comes.
//
// TryLock is one vote. If several clients ask at the same instant, none may get a majority. Then all TryLocks
// return [rlock.ErrLocked]. So does a TryLock where others have the lock on so many servers that the rest are
// no majority, whether these answer or not. If the first answers do not tell why there is no majority, a vote
// waits for the others, for the time of [WithServerTimeout] at most.
//
// # Waiting
//
// A client that was refused, or knows that others wait, stands in line: in a fair lock on one of the servers.
// The first in line waits in the queue of each server, and the Unlock of the holder hands it their locks. So
// the cost of a cycle does not grow with the number of clients, and they have the lock in turn. Goroutines of
// one process take turns in memory, in the order in which they came: one of them at a time competes with
// other processes. The lock is not passed on in memory, whatever [rlock.WithHandover] says. The servers grant
// and release each hold.
//
// The server of the line is the first that answers, in the order in which the sessions are given, from one on
// that the lock's name decides. So give them in the same order in all processes. Those with another order
// stand in another line, and the first of each line may be granted a minority. It gives that back after the
// time of [WithServerTimeout], and asks again after a random time. A client that is killed or frozen as the
// first in line holds the others up for 2 s.
//
// # Holding
//
// Each part is renewed by itself. The hold's context ends before another session could have a majority. Where
// a part is missing, since its server was down, came back empty or was taken, the hold waits in that server's
// queue. The part counts once a majority without that server has confirmed that it has had the hold all the
// time. So a hold outlives a rolling restart, if each server has half of the lease to get the hold before the
// next one goes down. A hold that stays on a bare majority is logged, and does not outlive another failure. A
// part of a fixed lease is not fetched again. Unlock returns when a majority has answered.
//
// # Fencing tokens
//
// Redlock as it was published has none. Without them no lock with leases is safe for what must never be
// written twice. A process that stands still acts after its lease (Martin Kleppmann, "How to do distributed
// locking", 2016). Here the hold's token is the smallest number that the tokens of a
// majority do not exceed, and a majority grants only higher ones later. So tokens grow from holder to holder,
// whichever minority fails.
//
// The lease depends on clocks all the same. If a server's clock runs faster by more than 1 %, or is set
// forward by hand, two may hold the lock.
//
// # A server that comes back empty
//
// Such a server has forgotten which locks it granted and which token it stored, and may give a held lock to
// another session (docs/failures.md). So run the servers with appendonly yes and appendfsync always, or keep
// one that crashed away for longer than the longest lease, those of [rlock.WithLease] and Extend included.
// The clocks of the servers must agree within 10 minutes, because a server remembers the last token of a free
// lock for that time.
//
// # Operators
//
// Inspect tells what a majority says, and how many servers have the holder. Count is 1, as nested holds are
// known to their process alone. Owner and Session are what the ids of the holder's sessions begin with. Owner
// has a ~ behind it where the lock stays taken after its Unlock, by [rlock.HoldAtLeast]. Token
// is what the servers show of the hold, which can be higher than the hold's own. ForceUnlock frees it on all
// servers that can be reached, and fails where these are no majority.
//
// # Sessions
//
// A quorum ends with the first of its sessions that is closed: it gives back all that it holds, and waits end
// with [rlock.ErrClosed]. It has the prefix and watchdog timeout of the sessions, which must be the same, and
// the observer and logger of the first. Quorums over the same sessions in the same order and with the same
// options are one, so make it as often as you like.
//
// The algorithm is Redlock, by Salvatore Sanfilippo (redis.io, "Distributed Locks with Redis").
type Quorum struct{ inner *quorum }

// QuorumOption sets up a Quorum.
type QuorumOption func(*quorumConfig)

type quorumConfig struct{ timeout time.Duration }

// WithServerTimeout sets how long a vote waits for the answer of one server at most, and for how long a
// minority is kept while others have the rest. It must be at least 1 ms, and below half of the watchdog
// timeout. By default, and with 0, it is 2 % of that, at least 100 ms. So a vote costs little of the lease,
// and an answer from another region is still in time.
func WithServerTimeout(d time.Duration) QuorumOption {
	return func(c *quorumConfig) { c.timeout = d }
}

// NewQuorum makes a quorum of the servers of the sessions, best in the same order everywhere (see Waiting).
// No I/O. It refuses, with the reason, no sessions at all, and a nil or closed session. It also refuses
// sessions that differ in prefix or watchdog timeout, and two that have the same client or whose clients have
// the same address. A server that is reached by two addresses has one vote, which is logged when a lock is
// taken. An even number of servers is logged as a warning.
func NewQuorum(sessions []*rlock.Session, options ...QuorumOption) (*Quorum, error) {
	var cfg quorumConfig
	for _, o := range options {
		if o != nil {
			o(&cfg)
		}
	}
	users := make([]*session.Session, len(sessions))
	for i, s := range sessions {
		users[i] = inner.Session(s)
	}
	if err := checkSessions(users, cfg.timeout); err != nil {
		return nil, err
	}
	if lease := users[0].Lease; cfg.timeout == 0 {
		cfg.timeout = max(lease/50, min(100*time.Millisecond, lease/4))
	}
	q, err := quorumOf(users, cfg.timeout)
	if err != nil {
		return nil, failure.Within("RedLock", err)
	}
	q.even.Do(func() {
		switch n := len(users); {
		case n == 1:
			q.lead.Warn("a RedLock of one server stands no loss: use rlock, or three servers")
		case n == 2:
			q.lead.Warn("a RedLock of two servers needs both: use three")
		case n%2 == 0:
			q.lead.Warn("a RedLock of an even number of servers stands no more losses than with one fewer",
				"servers", n, "needed", q.tally(pending).need())
		}
	})
	return &Quorum{q}, nil
}

// RedLock is a lock on a majority of the servers of a [Quorum]. It has the methods of [rlock.Mutex], which
// say what they do, and is an [rlock.Locker]. It keeps no state of any acquisition, and serves any number of
// goroutines. The zero RedLock returns an error from every method.
type RedLock struct {
	q     *quorum
	name  string
	parts []engine.Permits // by server
	cfg   engine.Config
	err   error // of New, told by every use
}

var _ rlock.Locker = (*RedLock)(nil)

// New names a RedLock. It does no I/O and is cheap. Any string of 1 to 512 bytes is
// a name; what is wrong with it, Lock says.
//
// A RedLock does not exclude locks of other kinds that have its name on one of the servers: both are inside
// at the same time, without an error. So take a name by one kind in all programs.
func (q *Quorum) New(name string, options ...rlock.Option) *RedLock {
	if q == nil || q.inner == nil {
		return &RedLock{err: errZeroQuorum}
	}
	l := &RedLock{q: q.inner, name: name, cfg: engine.NewConfig(engine.Config{}, options)}
	for _, s := range q.inner.servers {
		l.parts = append(l.parts, engine.New(s.session, serverKind, name, engine.Config{}))
	}
	if l.err = l.parts[0].CheckUse(context.Background()); l.err != nil && l.parts[0].Name() == "" {
		l.name = ""
	}
	return l
}

// NewRedLock names a lock on a majority of the servers of the sessions: [NewQuorum] and [Quorum.New] in one,
// without options. If the sessions do not fit together, every method of the RedLock returns the error. It
// does not exclude locks of other kinds that have its name.
func NewRedLock(name string, sessions ...*rlock.Session) *RedLock {
	q, err := NewQuorum(sessions)
	if err != nil {
		return &RedLock{err: err}
	}
	return q.New(name)
}

func (l *RedLock) check(ctx context.Context) error {
	switch {
	case l == nil || l.q == nil && l.err == nil:
		return errZeroRedLock
	case l.err != nil:
		return l.err
	case ctx == nil:
		return failure.Named(l.name, failure.ErrNilContext)
	}
	return nil
}

func (l *RedLock) observe(ctx context.Context, e session.Event) {
	e.Session = l.q.id
	l.q.lead.Observe(ctx, protocol.RedLock, l.name, e)
}

// Name is the lock's name.
func (l *RedLock) Name() string {
	if l == nil {
		return ""
	}
	return l.name
}

// Lock is [rlock.Mutex.Lock].
func (l *RedLock) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock is [rlock.Mutex.TryLock]: it asks all servers at once, one time.
func (l *RedLock) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, true)
}

// Do is [rlock.Do] with this lock.
func (l *RedLock) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, l, fn, options...)
}
