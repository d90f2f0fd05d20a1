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

// To see why a RedLock is safe, read redlock_tally.go (the reasons), redlock_servers.go and redlock_round.go
// (how a majority is made), and redlock_majority.go and redlock_rejoin.go (how a majority is kept), in this
// order.

// A Quorum is a set of independent Redis servers. A [RedLock] is a lock on a majority of these servers. It
// survives the loss of any minority, whereas a lock on a primary with replicas can be lost in a failover.
// Make a Quorum with [NewQuorum], and its locks with [Quorum.New]. A Quorum is safe for concurrent use.
//
// docs/redlock.md explains the algorithm, its assumptions, and the events that break them. Servers must not
// forget which locks they have granted. So run them with appendonly yes and appendfsync always. With other
// settings, keep a server that has lost data switched off for longer than the longest lease. The clocks of
// the servers must agree within 10 minutes.
//
// A Quorum ends as soon as one of its sessions is closed. Then all of its RedLocks are released, and waits
// end with [rlock.ErrClosed]. All sessions must have the same prefix and the same watchdog timeout. The
// Quorum uses this prefix and this timeout, and the observer and the logger of the first session in the list.
// Two Quorums with the same sessions and options share everything, so you may make a Quorum as often as you
// like.
type Quorum struct{ inner *quorum }

// A QuorumOption configures a Quorum.
type QuorumOption func(*quorumConfig)

type quorumConfig struct{ timeout time.Duration }

// WithServerTimeout sets how long the locks of a Quorum wait for slow servers. A TryLock waits for at most d
// until a majority has answered, and then for at most d for the other servers. A Lock that gets only a
// minority, because others have the rest, usually releases this minority after d. The value must be at least
// 1 ms, and less than half of the watchdog timeout. By default, and with 0, d is 2 % of the watchdog timeout,
// but at least 100 ms. If a quarter of the watchdog timeout is less than 100 ms, the minimum is that quarter.
// So a slow server uses up little of the lease, and a server in another region can still answer in time.
func WithServerTimeout(d time.Duration) QuorumOption {
	return func(c *quorumConfig) { c.timeout = d }
}

// NewQuorum returns a Quorum of the servers of these sessions. It does no I/O. All processes must use the
// same set of servers, because majorities of different sets may share no server. Pass the sessions in the
// same order in all processes. Otherwise waits take longer, because processes with different orders queue on
// different servers.
//
// NewQuorum returns an error
//   - if there is no session, or if a session is nil or closed;
//   - if the sessions differ in their prefixes or watchdog timeouts;
//   - if two sessions have the same client, or clients with the same address;
//   - if there are more than 64 sessions, or if the server timeout is not valid.
//
// If two sessions reach one server by different addresses, the server has only one vote, and the Quorum logs
// a warning when a RedLock is acquired. NewQuorum logs a warning if there is only one server, or an even
// number of servers. An even number adds no safety. For example, four servers tolerate the failure of one
// server, and so do three servers.
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
	q.warned.Do(func() {
		if n := len(users); n == 1 || n%2 == 0 {
			q.lead.Warn("a RedLock should have three or five servers",
				"servers", n, "needed", q.tally(pending).need())
		}
	})
	return &Quorum{q}, nil
}

// A RedLock is a reentrant lock on a majority of the servers of a [Quorum]. It has the methods of
// [rlock.Mutex], and implements [rlock.Locker]. It keeps no state of an acquisition, so any number of
// goroutines may use it. Every method of the zero RedLock, except Name, returns an error. These are the
// differences from a Mutex:
//
//   - TryLock tries all servers at the same time. If several clients call TryLock at the same moment, it is
//     possible that none of them gets a majority, and that all calls return [rlock.ErrLocked].
//   - Waiters queue in a line on one server. A process that is killed or frozen at the head of the line
//     delays the other waiters by about 2 s.
//   - Goroutines of one process get the lock in the order of their Lock calls. The lock is not passed on in
//     memory, so [rlock.WithHandover] has no effect.
//   - The hold ends when it has no majority any more. If a server has lost its part of the lock, the hold
//     acquires this part again, unless the lease is fixed, or an operator has freed the part. If the hold
//     stays on a bare majority, which can spare no server, the Quorum logs a warning.
//   - Tokens grow from holder to holder. Inspect can return a higher token than the Token of the hold.
//   - The last Unlock waits until a majority of the servers has released the lock.
//   - Inspect returns the holder that has a majority, and the number of servers that have this holder. The
//     Count of this holder is 1, because servers do not know of nested holds. A Quorum makes sessions of its
//     own for the parts, and their ids differ only at the end. The Owner and Session of the holder are the
//     common beginning of these ids. The Owner ends in ~ if the lock stays taken after its Unlock because of
//     [rlock.HoldAtLeast].
type RedLock struct {
	q     *quorum
	name  string
	parts []engine.Lock // the locks on the servers, in the order of q.servers
	cfg   engine.Config
	err   error // error of New; every method returns it
}

var _ rlock.Locker = (*RedLock)(nil)

// New returns a RedLock with this name. It sends no request and is cheap. The name may be any string of 1 to
// 512 bytes. If the name is not valid, every method except Name returns an error that says so.
//
// A RedLock does not exclude locks of other kinds with the same name on one of the servers. Both locks can be
// held at the same time, without an error. So use the same kind for a name in all programs.
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

// Name returns the name of the lock.
func (l *RedLock) Name() string {
	if l == nil {
		return ""
	}
	return l.name
}

// Lock waits until its caller holds the lock. See [rlock.Mutex.Lock].
func (l *RedLock) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock is like Lock, but does not wait for other holders. It tries all servers at the same time. See
// [rlock.Mutex.TryLock].
func (l *RedLock) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, true)
}

// Do runs fn while the lock is held. See [rlock.Do].
func (l *RedLock) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, l, fn, options...)
}
