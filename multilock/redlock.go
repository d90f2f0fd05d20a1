package multilock

import (
	_ "embed"
	"time"

	"github.com/lockline/lockline/internal/engine"
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

	redlock = &engine.Protocol{
		Kind:    "q",
		Lock:    engine.NewScript(redlockLock),
		Accept:  engine.NewScript(redlockAccept),
		Release: engine.NewScript(redlockRelease),
		Force:   engine.NewScript(redlockForce),
		Inspect: engine.NewScript(redlockInspect),
	}
)

// Quorum is a set of independent Redis servers on whose majority locks are held.
// Make it with [NewQuorum]. Safe for concurrent use.
type Quorum struct {
	s   *engine.Session
	err error // of NewRedLock's sessions, told by every use of its locks
}

// QuorumOption sets up a Quorum.
type QuorumOption func(*quorumConfig)

type quorumConfig struct{ timeout time.Duration }

// WithServerTimeout sets how long a vote waits for the answer of one server.
func WithServerTimeout(d time.Duration) QuorumOption {
	return func(c *quorumConfig) { c.timeout = d }
}

// NewQuorum makes a quorum of the servers of the sessions. No I/O.
func NewQuorum(sessions []*rlock.Session, options ...QuorumOption) (*Quorum, error) {
	var cfg quorumConfig
	for _, o := range options {
		if o != nil {
			o(&cfg)
		}
	}
	members := make([]*engine.Session, len(sessions))
	for i, s := range sessions {
		members[i] = (*engine.Session)(s)
	}
	s, err := engine.NewQuorum(members, cfg.timeout)
	if err != nil {
		return nil, err
	}
	return &Quorum{s: s}, nil
}

// New names a RedLock. It does no I/O and is cheap.
func (q *Quorum) New(name string, options ...rlock.Option) *rlock.Mutex {
	cfg := engine.NewConfig(engine.Config{}, options)
	if q == nil || q.s == nil {
		return (*rlock.Mutex)(engine.NewMutex(nil, redlock, name, cfg))
	}
	return (*rlock.Mutex)(engine.NewMutex(q.s, redlock, name, cfg))
}

// NewRedLock names a lock on a majority of the servers of the sessions.
func NewRedLock(name string, sessions ...*rlock.Session) *rlock.Mutex {
	q, err := NewQuorum(sessions)
	if err != nil {
		return (*rlock.Mutex)(engine.BadMutex(err))
	}
	return q.New(name)
}
