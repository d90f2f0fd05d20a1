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

// A Quorum is a set of independent Redis servers. A lock on a majority of them, a [RedLock], survives the
// loss of any minority, where a lock on a primary with replicas can be lost in a failover. Make a Quorum with
// [NewQuorum], and its locks with [Quorum.New]. A Quorum is safe for concurrent use.
//
// docs/redlock.md explains the algorithm, what it needs and what breaks it. Servers must not forget which
// locks they have granted. So run them with appendonly yes and appendfsync always, or leave a server that has
// lost data off for longer than the longest lease. Their clocks must agree within 10 minutes.
//
// A Quorum ends with the first of its sessions that is closed. All that it holds is released then, and waits
// end with [rlock.ErrClosed]. It has the prefix and the watchdog timeout of the sessions, which must be the
// same, and the observer and the logger of the first session. Quorums over the same sessions with the same
// options are one, so make a Quorum as often as you like.
type Quorum struct{ inner *quorum }

// QuorumOption sets up a Quorum.
type QuorumOption func(*quorumConfig)

type quorumConfig struct{ timeout time.Duration }

// WithServerTimeout sets for how long a round waits for the answer of one server at most, and for how long a
// minority is kept while others have the other servers. It must be at least 1 ms, and below half of the
// watchdog timeout. By default, and with 0, it is 2 % of the watchdog timeout, at least 100 ms. So a round
// costs little of the lease, and an answer from another region is still in time.
func WithServerTimeout(d time.Duration) QuorumOption {
	return func(c *quorumConfig) { c.timeout = d }
}

// NewQuorum makes a Quorum of the servers of the sessions. It does no I/O. Give the sessions in the same
// order in all processes. Otherwise waits take longer, because processes with different orders wait in
// different lines.
//
// It returns an error if there is no session, or if one is nil or closed. Sessions with different prefixes
// or watchdog timeouts are an error, and so are two with the same client, or with clients of the same
// address. A server that is reached by two addresses has one vote, which is logged when a lock is taken. One
// server, or an even number, is logged as a warning, because a fourth server does not let one more fail.
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
// [rlock.Mutex], and is an [rlock.Locker]. It keeps no state of any acquisition, and serves any number of
// goroutines. The zero RedLock returns an error from every method. These are the differences from a Mutex:
//
//   - TryLock sends one request to each server. If several clients do so at the same instant, it is possible
//     that none gets a majority. Then all return [rlock.ErrLocked].
//   - Waiters queue in a line on one server. A process that is killed or frozen at the head of the line
//     delays the others by 2 s.
//   - Goroutines of one process have the lock in the order in which they came. The lock is not passed on in
//     memory, so [rlock.WithHandover] changes nothing.
//   - The hold ends if it has no majority any more. It takes parts again that servers have lost, unless it
//     has a fixed lease. A hold that stays on a bare majority is logged.
//   - The hold's Token grows from holder to holder. Inspect can show a higher number than the hold's own.
//   - Unlock returns when a majority has answered.
//   - Inspect returns the holder that a majority has, and the number of its servers. Count is 1, because
//     servers do not know of nested holds. Owner and Session are the beginning of the ids of the holder's
//     sessions. Owner ends in ~ if the lock stays taken after its Unlock, by [rlock.HoldAtLeast].
type RedLock struct {
	q     *quorum
	name  string
	parts []engine.Lock // by server
	cfg   engine.Config
	err   error // of New, returned by every use
}

var _ rlock.Locker = (*RedLock)(nil)

// New returns a RedLock with this name. It sends no request and is cheap. The name may be any string of 1 to
// 512 bytes. If the name is not valid, every method returns an error that says so.
//
// A RedLock does not exclude locks of other kinds with the same name on one of the servers. Both can be held
// at the same time, without an error. So use the same kind for a name in all programs.
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

// Lock is [rlock.Mutex.Lock].
func (l *RedLock) Lock(ctx context.Context, options ...rlock.Option) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, false)
}

// TryLock is [rlock.Mutex.TryLock]. It sends one request to each server, at the same time.
func (l *RedLock) TryLock(
	ctx context.Context, options ...rlock.Option,
) (context.Context, *rlock.Hold, error) {
	return l.acquire(ctx, options, true)
}

// Do is [rlock.Do] with this lock.
func (l *RedLock) Do(ctx context.Context, fn func(ctx context.Context) error, options ...rlock.Option) error {
	return rlock.Do(ctx, l, fn, options...)
}
