package pubsub

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
)

// A shard has the channels that one connection serves: all channels of a hub or, on a Cluster, the channels
// of one node.
type shard struct {
	hub   *Hub
	node  Node
	poked chan struct{} // capacity 1; has a value when the owner has to look at the fields below

	// Guarded by hub.mu.
	channels map[string]*channel
	fresh    []string  // new channels, for which no SUBSCRIBE was sent yet
	left     []string  // removed channels, for which no UNSUBSCRIBE was sent yet
	idle     list.List // channels without listeners, which linger; the longest idle is first
	misled   bool      // the connection leads to a server on which nothing is published
}

// own makes one connection after another while the shard needs one. It runs in the owner's goroutine.
func (s *shard) own() {
	h := s.hub
	var pause time.Duration
	var outage time.Time // start of the present outage; zero means there is none
	var l *link
	for s.needed() {
		l = &link{shard: s, outage: outage}
		err := l.serve()
		misled := errors.Is(err, errMisled)
		if l.answered {
			outage = time.Time{}
		}
		if l.answered && !misled { // while a client's connections lead to two servers, each one may be misled
			pause = 0
		}
		if err == nil || h.ctx.Err() != nil {
			continue
		}
		if !misled && errors.As(err, new(redis.Error)) {
			h.refuse(err)
		}
		switch {
		case misled:
			h.warn(msgReplaced, l.describe("channels", l.names(), "error", err)...)
		case outage.IsZero():
			outage = time.Now()
			msg := msgLost
			if errors.As(err, new(redis.Error)) { // as for a user without the right to subscribe
				msg = msgRefused
			}
			h.log(slog.LevelWarn, msg, l.describe("channels", l.names(), "error", err)...)
		}
		h.reload()
		h.rest(longer(&pause))
		s.review()
	}
	if !outage.IsZero() && h.ctx.Err() == nil {
		h.log(slog.LevelInfo, "lockline: the lost subscription is not needed any more",
			l.describe("after", time.Since(outage))...)
	}
}

const (
	untilThen = "; until then, waiters notice a freed lock only at their next heartbeat"

	msgLost    = "lockline: subscription lost, connecting again" + untilThen
	msgRefused = "lockline: subscription refused, trying again" + untilThen +
		". If the error is NOPERM, see the ACL rules in docs/operations.md"
	msgNowhere  = "lockline: subscription to a channel whose server is not known, looking again" + untilThen
	msgReplaced = "lockline: subscription gets a new connection, because the old one led to another server " +
		"than a request. If this line comes again and again, set ConnMaxLifetime of the client"
)

// names returns the names of the shard's channels, or of a few if there are many.
func (s *shard) names() string {
	const most = 3
	s.hub.mu.Lock()
	names := slices.Sorted(maps.Keys(s.channels))
	s.hub.mu.Unlock()
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), n)
	}
	return strings.Join(names, ", ")
}

// needed reports whether the shard needs a connection, and prepares its fields for a new one. If it returns
// false, the owner must end. The next channel of the node then gets a new shard.
func (s *shard) needed() bool {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.expire()
	if len(s.channels) == 0 || h.ctx.Err() != nil {
		delete(h.shards, s.node)
		return false
	}
	s.fresh, s.left, s.misled = slices.Sorted(maps.Keys(s.channels)), nil, false
	return true
}

// expire removes the channels that have been idle for Options.Linger. The caller must hold hub.mu.
func (s *shard) expire() {
	for e := s.idle.Front(); e != nil; e = s.idle.Front() {
		ch := e.Value.(*channel)
		if time.Since(ch.idleSince) < s.hub.options.Linger {
			break
		}
		s.left = append(s.left, ch.name)
		s.hub.displace(ch, 0) // removes the channel, which has no listeners
	}
}

// review moves channels whose slot is on another node now. Only the goroutine that owns the shard may
// call review.
func (s *shard) review() {
	h := s.hub
	h.mu.Lock()
	names := slices.Collect(maps.Keys(s.channels))
	h.mu.Unlock()
	for _, name := range names {
		node, err := h.locate(name)
		if err != nil || node == s.node {
			continue
		}
		h.mu.Lock()
		if ch := s.channels[name]; ch != nil {
			s.left = append(s.left, name)
			h.displace(ch, 0)
		}
		h.mu.Unlock()
	}
}

// place finds a shard for a channel that has none. It looks after a pause, and again until it finds one.
func (h *Hub) place(ch *channel, wait time.Duration) {
	for {
		if wait > 0 {
			h.reload()
			h.rest(wait)
		}
		node, err := h.locate(ch.name)
		h.mu.Lock()
		switch {
		case h.channels[ch.name] != ch || h.ctx.Err() != nil: // the channel has no listeners any more
			h.mu.Unlock()
			return
		case err == nil:
			h.add(ch, node)
			h.mu.Unlock()
			return
		}
		wait = longer(&ch.pause)
		h.mu.Unlock()
		h.warn(msgNowhere, "channel", ch.name, "error", err)
	}
}

// add adds a channel to the shard of a node. The caller must hold mu.
func (h *Hub) add(ch *channel, n Node) {
	s := h.shards[n]
	if s == nil {
		s = &shard{hub: h, node: n, poked: make(chan struct{}, 1), channels: make(map[string]*channel)}
		h.shards[n] = s
		h.work.Go(s.own)
	}
	ch.shard = s
	s.channels[ch.name] = ch
	s.fresh = append(s.fresh, ch.name)
	poke(s.poked)
}

// displace removes a channel from its shard. If the channel has listeners, place then looks for another
// shard, after wait. The caller must hold mu.
func (h *Hub) displace(ch *channel, wait time.Duration) {
	s := ch.shard
	delete(s.channels, ch.name)
	if ch.idle != nil {
		s.idle.Remove(ch.idle)
	}
	poke(s.poked)
	ch.shard, ch.asked, ch.confirmed, ch.idle = nil, nil, time.Time{}, nil
	if len(ch.listeners) == 0 {
		delete(h.channels, ch.name)
		return
	}
	h.work.Go(func() { h.place(ch, wait) })
}

func (h *Hub) locate(channel string) (n Node, err error) {
	defer contain.Recover(h.options.Logger, "lockline: the connection of a subscription", &err)
	return h.cluster.Node(h.ctx, channel)
}

func (h *Hub) reload() {
	defer contain.Recover(h.options.Logger, "lockline: the connection of a subscription", new(error))
	h.cluster.Reload(h.ctx)
}

// Cluster knows where sharded channels are. [Masters] makes one of a client of go-redis; a simulation can
// supply its own. The hub calls it from several goroutines.
type Cluster interface {
	// Node returns the server that has the channel. It may send requests to find out, and should return when
	// its context ends, which is when the hub closes. If the result is wrong, that server refuses the
	// channel.
	Node(ctx context.Context, channel string) (Node, error)

	// Reload is called after a node turned out to be gone or wrong, so that Node looks again. It must not
	// block, and may be called often.
	Reload(ctx context.Context)
}

// Node is one server of a Cluster, of a comparable type: equal values are the same server.
type Node interface {
	// Dial works like the function that [NewHub] gets. But Subscribe and Unsubscribe of the Conn send
	// SSUBSCRIBE and SUNSUBSCRIBE, for sharded channels, and take any number of channels of any slots.
	Dial(ctx context.Context) Conn
}

// ClusterClient has the methods of a *[redis.ClusterClient] that [Masters] uses.
type ClusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// Masters returns a Cluster whose channels are subscribed to at the masters. It panics if c is nil.
func Masters(c ClusterClient) Cluster {
	if c == nil {
		panic("pubsub: Masters: the client is nil")
	}
	return masters{c}
}

type masters struct{ client ClusterClient }

func (m masters) Node(ctx context.Context, channel string) (Node, error) {
	node, err := m.client.MasterForKey(ctx, channel)
	if err != nil {
		return nil, err
	}
	return master{node}, nil
}

func (m masters) Reload(ctx context.Context) { m.client.ReloadState(ctx) }

type master struct{ *redis.Client }

func (m master) Dial(ctx context.Context) Conn {
	return shardedConn{m.SSubscribe(ctx), m.Options().Addr}
}

// shardedConn sends one command for each channel, because the server refuses a command for several slots.
type shardedConn struct {
	*redis.PubSub
	addr string
}

func (c shardedConn) Server() string { return c.addr }

func (c shardedConn) Subscribe(ctx context.Context, channels ...string) error {
	return each(ctx, c.PubSub.SSubscribe, channels)
}

func (c shardedConn) Unsubscribe(ctx context.Context, channels ...string) error {
	return each(ctx, c.PubSub.SUnsubscribe, channels)
}

func each(ctx context.Context, command func(context.Context, ...string) error, channels []string) error {
	for _, channel := range channels {
		if err := command(ctx, channel); err != nil {
			return err
		}
	}
	return nil
}

// sole is the Cluster of a hub that has one connection, and its Node.
type sole struct{ dial func(context.Context) Conn }

func (s *sole) Node(context.Context, string) (Node, error) { return s, nil }
func (s *sole) Reload(context.Context)                     {}
func (s *sole) Dial(ctx context.Context) Conn              { return s.dial(ctx) }
