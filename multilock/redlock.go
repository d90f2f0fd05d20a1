package multilock

import (
	_ "embed"
	"errors"
	"time"

	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/option"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/multilock/internal/quorum"
	"github.com/lockline/lockline/rlock"
)

var (
	//go:embed redlock_lock.lua
	redlockLock string
	//go:embed redlock_accept.lua
	redlockAccept string
	//go:embed redlock_release.lua
	redlockRelease string
	//go:embed redlock_force.lua
	redlockForce string
	//go:embed redlock_inspect.lua
	redlockInspect string

	redlock = quorum.Scripts{
		Lock:    wire.NewScript(redlockLock),
		Accept:  wire.NewScript(redlockAccept),
		Release: wire.NewScript(redlockRelease),
		Force:   wire.NewScript(redlockForce),
		Inspect: wire.NewScript(redlockInspect),
	}
)

// Quorum is a set of independent Redis servers, on a majority of which locks are held:
// RedLocks. No server knows of another, so a RedLock survives the loss of any minority of
// them, where a lock on a primary with replicas can be lost in a failover. Make it with
// [NewQuorum]. Safe for concurrent use.
//
// A RedLock is an [rlock.Mutex] in all that is said there: the context and re-entry,
// leases and the watchdog, hand-over inside the process, errors. What differs:
//
// # Votes
//
// Lock asks all servers at once, and returns when a majority has granted: 2 of 3, 3 of 5.
// Of an even number, half and one more are needed, so a fourth server only
// costs. Of two servers both are needed, and one is a plain lock that takes the long way. How long a hold is valid is
// counted from before the first request, less 1 % and 2 ms for the drift of the
// servers' clocks. What is granted without a majority is given back at once, also where no answer
// comes, and a request that arrives later than that takes nothing.
//
// TryLock is one vote, repeated only if too few servers answer. If several ask at the same
// instant, none may get a majority: then all TryLocks return [rlock.ErrLocked]. Lock asks
// again after a random time, which doubles with each vote in a row without a winner.
//
// # Waiting
//
// A client that was refused stands in line at one of the servers, and only the first in line asks again. It does so at once when the one
// before has unlocked. Where the lock is held for long, it asks when the servers tell that the holder is gone, when its lease is
// over, and after a third of the watchdog timeout. So the cost of a cycle does not grow with the number of clients, and they have the lock in turn.
// A newcomer asks first, and may come before those in line. The line grants nothing: the majority does.
//
// The server of the line is the first that answers, in the order in which the sessions are given, from one on that the lock's
// name decides. So give them in the same order in all processes. Those with another order stand elsewhere, which costs
// requests, and no more. One that is killed or frozen as the first in line holds
// the others up for 2 s.
//
// A vote waits for a server for the time of [WithServerTimeout], if it must: not when the others decide it.
// A server that did not answer in time is not asked for a while, so that it costs nothing.
//
// # Holding
//
// The watchdog renews on all servers. The deadline is that of the majority, so the hold's context ends before
// the first instant at which another session could have one. A server may have been down when the lock was
// taken, or have come back empty since. It gets the hold with the next renewal, if a majority without that
// server has just been renewed. What fails there is repeated until the renewal after that, whatever the
// others answer. So a hold outlives a rolling restart, if each server has half of the lease to get the hold
// before the next one goes down. A hold that stays on a bare majority is logged. Unlock returns when a
// majority has answered; the rest is told in the background, as long as the lease could last there. Its error
// is [rlock.ErrLost] if a majority had lost the lock.
//
// A hold that was granted by a bare majority, because others had the rest just then, does not
// outlive a server of it that fails before the first renewal. The next renewal, re-entry or Unlock fails, and the lease bounds it. The
// lock itself goes on. The same is true of holds with a fixed lease, which are not renewed.
//
// # Fencing tokens
//
// Redlock as it was published has none, and without them no lock with leases is safe for what must never
// be written twice. A process that is stopped in a bad moment acts after its lease
// (Martin Kleppmann, "How to do distributed locking", 2016). A RedLock's token is
// one that a majority has stored while it was held. It grows from holder to holder, whichever minority fails, because the next
// majority has a server in common with this one, and that accepts only a higher token. The
// client proposes it, by the servers' clocks and the tokens that it saw, so that mostly one round does. A
// server that has stored a higher one is asked a second time. The other part of that criticism remains: the lease depends on
// clocks. A server whose clock runs faster by more than 1 %, or is set forward by hand, can end
// a lease early. Then two may hold the lock, but not with one token.
//
// # A server that comes back empty
//
// Such a server has forgotten which locks it granted and which token it stored. As many of them as make a
// majority with those that are free can give a held lock to another session. So run the servers
// with appendonly yes and appendfsync always, or keep one that crashed away for longer than the longest lease. Those of [rlock.WithLease]
// and Extend count. (Its tokens are then as good as its clock.) Clocks need to agree within 10 minutes: that
// is how long the last token of a free lock is remembered.
//
// # Operators
//
// Inspect tells what a majority says, and how many servers have the holder: of a lock without a majority,
// that it is free. ForceUnlock frees it on all servers that can be reached, and fails where these are no
// majority.
//
// # Sessions
//
// A quorum ends with the first of its sessions that is closed: what it holds is given back on
// all servers then, and waits end with [rlock.ErrClosed]. There is nothing else to close.
// It has the prefix, watchdog timeout, label, logger and observer of the sessions, whose
// prefixes and watchdog timeouts must be the same. Those over the same sessions and with the
// same options are one quorum, so make it as often as you like.
//
// The algorithm is Redlock, by Salvatore Sanfilippo (redis.io, "Distributed Locks with Redis").
type Quorum struct{ inner *quorum.Quorum }

// QuorumOption sets up a Quorum.
type QuorumOption func(*quorumConfig)

type quorumConfig struct{ timeout time.Duration }

// WithServerTimeout sets how long a vote waits for the answer of one server at most,
// and from when on a server counts as slow. It must be below half of the watchdog timeout. By
// default it is 1 % of that, at least 100 ms. What is lost of the validity is then not more than the
// margin for drift, and an answer from another region is still in time.
func WithServerTimeout(d time.Duration) QuorumOption {
	return func(c *quorumConfig) { c.timeout = d }
}

// NewQuorum makes a quorum of the servers of the sessions, best in the same order everywhere (see Waiting). No I/O. It refuses, with the
// reason, no sessions at all, a nil or closed session, and sessions with [rlock.RedissonKeys]. It also refuses sessions that differ
// in prefix or watchdog timeout, and two that have the same client or whose clients have the same
// address. A server that is reached by two addresses is not noticed: it would have two votes. An even number
// of servers is logged as a warning.
func NewQuorum(sessions []*rlock.Session, options ...QuorumOption) (*Quorum, error) {
	var cfg quorumConfig
	for _, o := range options {
		if o != nil {
			o(&cfg)
		}
	}
	members := make([]*session.Session, len(sessions))
	for i, s := range sessions {
		members[i] = inner.Session(s)
	}
	q, err := quorum.New(members, redlock, cfg.timeout)
	if err != nil {
		return nil, err
	}
	return &Quorum{q}, nil
}

// New names a RedLock. It does no I/O and is cheap. Any string of 1 to 512 bytes is
// a name; what is wrong with it, Lock says. A RedLock and another lock of one name are two locks.
func (q *Quorum) New(name string, options ...rlock.Option) *rlock.Mutex {
	if q == nil || q.inner == nil {
		return inner.NewMutex(mutex.Bad(errZeroQuorum))
	}
	return inner.NewMutex(q.inner.Mutex(name, option.NewConfig(mutex.Config{}, options)))
}

var errZeroQuorum = errors.New("lockline: a zero Quorum; make one with NewQuorum")

// NewRedLock names a lock on a majority of the servers of the sessions: [NewQuorum] and
// [Quorum.New] in one, without options. What is wrong with the sessions, every use of the lock says.
func NewRedLock(name string, sessions ...*rlock.Session) *rlock.Mutex {
	q, err := NewQuorum(sessions)
	if err != nil {
		return inner.NewMutex(mutex.Bad(err))
	}
	return q.New(name)
}
