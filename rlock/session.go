package rlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/failure"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
)

// Client has the methods of go-redis that a session needs. *redis.Client (standalone or failover) and
// *redis.ClusterClient implement it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// A Session is the identity of a process that holds locks. Its locks share a watchdog, which renews their
// leases. They also share the connections for subscriptions, which are open while a goroutine waits. Usually
// a process has one Session for each Redis. A Session is safe for concurrent use.
type Session outer

type outer = session.Outer

func init() {
	failure.Public = func(err error) error {
		if e, ok := err.(*failure.LockedError); ok {
			return (*LockedError)(e)
		}
		return err
	}
}

// NewSession returns a session that uses client. The caller keeps the client, and must close it after the
// session. NewSession sends no request. It returns an error if an option is not valid. It also returns an
// error if client is nil, a *redis.Ring or a *redis.AutoPipeliner. A Ring moves keys to another server if a
// server does not reply to its pings. Then two owners could hold the same lock. An AutoPipeliner makes the
// requests of a holder wait for a batch to fill.
//
// NewSession chooses the id of the session at random. If a machine or a container can be restored from a
// snapshot more than once, call NewSession after the restore. If a process made its session before the
// snapshot, all restored copies have the same session id, and nothing keeps them apart.
//
// If more than 16 requests to a server are in flight at a time, further requests share pipelines. A shared
// pipeline has no context of a caller, so traces do not connect it with a call. It uses a connection of the
// client's pipeline pool. Hooks of a ClusterClient do not see shared pipelines, but the hooks of its nodes
// do. If the client is a wrapper of another type, no pipelines are shared.
func NewSession(client Client, options ...SessionOption) (*Session, error) {
	cfg := session.Config{
		Prefix: "lockline", Lease: protocol.DefaultLease, WaiterTimeout: 10 * time.Second,
		Handover: 5 * time.Millisecond,
	}
	for _, o := range options {
		if o != nil {
			o.apply(&cfg)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s, err := session.New(client, cfg)
	if err != nil {
		return nil, err
	}
	return (*Session)(s.Outer()), nil
}

// ID returns the unique id of the session. The owner field of each of its locks begins with this id. ID
// returns "" for a nil Session.
func (s *Session) ID() string {
	if inner := (*outer)(s).Session(); inner != nil {
		return inner.ID()
	}
	return ""
}

// Close releases all locks that the session holds, and ends all waits. Holds and waits end with [ErrClosed].
// Close blocks until Redis has replied, but not longer than 5 s. A lock that could not be released in this
// time stays taken until its lease ends. Close logs that and returns an error. Close the session before its
// client, because Close sends requests. It does not close the client. A second Close only waits for the end
// of the first.
func (s *Session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.Shutdown(ctx)
}

// Shutdown is like Close, but instead of 5 s, ctx bounds the wait for the replies of Redis. A lock that could
// not be released before ctx ends stays taken until its lease ends, and the error says so. If ctx is nil,
// Shutdown does the same as Close, so that this mistake leaves no lock taken.
func (s *Session) Shutdown(ctx context.Context) error {
	inner := (*outer)(s).Session()
	if inner == nil {
		return errors.New("lockline: the Session is nil; make one with NewSession")
	}
	if ctx == nil {
		return s.Close()
	}
	_ = ctx.Err() // if ctx is a nil pointer, this panics here, and not in a goroutine of the session
	return inner.Shutdown(ctx)
}
