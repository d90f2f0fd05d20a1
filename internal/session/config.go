package session

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/pubsub"
)

// Config is what a session can be told.
type Config struct {
	Prefix   string
	Lease    time.Duration // of renewed locks: the watchdog timeout
	Liveness time.Duration // of waiters that queue in Redis
	Handover time.Duration // for how long what it holds is passed on in memory
	Linger   time.Duration // for how long it may keep what no goroutine has
	Label    string
	Logger   *slog.Logger
	Observer Observer
	Only     EventKind // if it is not 0, the observer is told of nothing else
	PubSub   PubSub
}

// PubSub says how a session's waiters are woken on a Cluster.
type PubSub uint8

const (
	PubSubAuto    PubSub = iota // PubSubSharded where that is possible, else PubSubClassic
	PubSubClassic               // by PUBLISH, which goes to all nodes
	PubSubSharded               // by SPUBLISH, which goes to those of one shard
)

// NewID is a random UUID in 22 characters instead of 36: it is in every request, and in what locks leave in
// Redis.
func NewID() string {
	id := uuid.New()
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// New makes a session on a client. No I/O.
func New(c wire.Client, cfg Config) (*Session, error) {
	if err := wire.Check(c); err != nil {
		return nil, fmt.Errorf("lockline: NewSession: %w", err)
	}
	if err := protocol.CheckPrefix(cfg.Prefix); err != nil {
		return nil, err
	}
	if err := protocol.CheckLease("WithWatchdogTimeout", cfg.Lease); err != nil {
		return nil, err
	}
	if err := protocol.CheckLease("WithWaiterTimeout", cfg.Liveness); err != nil {
		return nil, err
	}
	for what, d := range map[string]time.Duration{"WithHandover": cfg.Handover, "WithLinger": cfg.Linger} {
		if d > protocol.MaxLease {
			return nil, protocol.CheckLease(what, d)
		}
	}
	if len(cfg.Label) > protocol.MaxName || !utf8.ValidString(cfg.Label) {
		return nil, fmt.Errorf("lockline: WithLabel: not at most %d bytes of UTF-8: %.40q",
			protocol.MaxName, cfg.Label)
	}
	cluster, several := c.(pubsub.ClusterClient)
	if c, ok := c.(*redis.ClusterClient); ok && c.Options().ClusterSlots != nil {
		several = false // its servers know of no Cluster, as those of NewFailoverClusterClient
	}
	switch {
	case cfg.PubSub > PubSubSharded:
		return nil, fmt.Errorf("lockline: WithPubSub: no mode %d", cfg.PubSub)
	case cfg.PubSub == PubSubSharded && !several:
		return nil, fmt.Errorf("lockline: WithPubSub: sharded, but a %T is no client of a Cluster", c)
	}
	s := newSession(cfg, NewID())
	s.Link = wire.NewLink(c, wire.Options{Logger: cfg.Logger, Refusal: protocol.Refusal,
		Context: s.Ctx, Closing: s.closing})
	s.Hub = pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return c.Subscribe(ctx) },
		pubsub.Options{Logger: cfg.Logger})
	if several && cfg.PubSub != PubSubClassic {
		s.ShardedHub = pubsub.NewShardedHub(pubsub.Masters(cluster), pubsub.Options{Logger: cfg.Logger})
	}
	s.onEnd = s.closeHubs
	return s, nil
}

// NewBeside makes a session that uses the client, the subscriptions and the clock of another one, and ends
// before that. It has an identity and leases of its own.
func NewBeside(s *Session, cfg Config, id string) *Session {
	b := newSession(cfg, id)
	b.Link, b.Hub, b.ShardedHub, b.Clock, b.PubSub = s.Link, s.Hub, s.ShardedHub, s.Clock, s.PubSub
	b.onEnd = func() {}
	return b
}
