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

// Client is what a session needs of go-redis: *redis.Client (standalone or
// failover) and *redis.ClusterClient have it.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Session is one identity that locks are held by, and what they share: a
// subscription connection while a goroutine waits, one watchdog for all leases. One
// for each process and Redis is usual. Safe for concurrent use.
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

// NewSession makes a session on a client, which stays the caller's and must outlive it. No I/O. It refuses a
// nil client, a *redis.Ring and a *redis.AutoPipeliner. A Ring moves keys to another server when one fails
// its pings, so two owners could hold one lock. An AutoPipeliner makes a holder wait for a batch to fill.
//
// The session's id is drawn here, at random. If a machine or a container can be restored from a snapshot more
// than once, call NewSession after the restore. Copies of a process that had made its session before the
// snapshot have the same session id, and nothing keeps them apart.
//
// Where more than 16 requests to a server are under way at an instant, further ones share pipelines. These
// have no trace of a caller's context, and use connections of the client's pipeline pool. A wrapper of a
// client shares none. Hooks of a ClusterClient itself do not see them, those of its nodes do.
func NewSession(client Client, options ...SessionOption) (*Session, error) {
	cfg := session.Config{
		Prefix: "lockline", Lease: protocol.DefaultLease, Liveness: 10 * time.Second,
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

// ID is unique to the session; it begins the owner field of every lock it holds. It is "" for a nil Session.
func (s *Session) ID() string {
	if inner := (*outer)(s).Session(); inner != nil {
		return inner.ID()
	}
	return ""
}

// Close gives back at once all that the session holds or waits for: holds end with [ErrClosed], as do waits.
// It blocks until Redis was told, at most 5 s. What could not be given back by then is left to its lease:
// Close logs that and returns it as an error. So close the session before its client, which stays open. A
// second Close does nothing.
func (s *Session) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return s.Shutdown(ctx)
}

// Shutdown is Close with a bound of the caller's choice: it blocks until Redis was told, not longer than ctx.
// What could not be given back by then is left to its lease, and the error says so. A nil ctx is a mistake
// for which no lock should stay held: with it, Shutdown is Close.
func (s *Session) Shutdown(ctx context.Context) error {
	inner := (*outer)(s).Session()
	if inner == nil {
		return errors.New("lockline: a nil Session; make one with NewSession")
	}
	if ctx == nil {
		return s.Close()
	}
	_ = ctx.Err() // if ctx is a nil pointer, this panics here, and not in a goroutine of the session
	return inner.Shutdown(ctx)
}
