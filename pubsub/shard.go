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

// A shard has the channels that one connection serves. In a sharded hub, these are the channels of one node.
// In any other hub, these are all channels of the hub.
type shard struct {
	hub   *Hub
	node  Node
	poked chan struct{} // capacity 1; has a value when the owner must check the fields below

	// hub.mu guards the fields below.
	channels map[string]*channel
	fresh    []string  // new channels, for which no SUBSCRIBE was sent yet
	left     []string  // removed channels, for which no UNSUBSCRIBE was sent yet
	idle     list.List // channels without listeners, in the order in which they lost the last one
	misled   bool      // the connection does not lead to the server that publishes
}

// own makes a connection, and a new one whenever a connection has ended, until the shard needs no connection
// any more. It runs in the owner's goroutine.
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
		// The pause also grows if a connection works but leads to the wrong server. If an address leads to
		// two servers, the next connection may lead to the wrong server again.
		if l.answered && !misled {
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
			if errors.As(err, new(redis.Error)) { // for example because of a missing right
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
	msgNowhere  = "lockline: the server of a subscribed channel is not known, looking again" + untilThen
	msgReplaced = "lockline: subscription gets a new connection, because the old one led to another server " +
		"than the requests. If this line is logged again and again, set ConnMaxLifetime of the client"
)

// names returns the names of the shard's channels. If there are more than three channels, it returns the
// first three names, and the number of the other channels.
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

// needed reports whether the shard needs a connection, and prepares the fields of the shard for a new
// connection. If needed returns false, the owner must end. The next channel of the node then gets a new
// shard.
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

// review moves the channels whose slot now belongs to another node. Only the goroutine that owns the shard
// may call review.
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

// place adds a channel that has no shard to the shard of its node. It looks for the node after wait, and then
// again and again, until it finds the node, the channel has no listeners any more, or the hub is closed.
func (h *Hub) place(ch *channel, wait time.Duration) {
	for {
		if wait > 0 {
			h.reload()
			h.rest(wait)
		}
		node, err := h.locate(ch.name)
		h.mu.Lock()
		switch {
		case h.channels[ch.name] != ch || h.ctx.Err() != nil: // no listener is left, or the hub is closed
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

// add adds a channel to the shard of a node. If the node has no shard, add makes one, with its owner. The
// caller must hold mu.
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

// displace removes a channel from its shard. If the channel has listeners, a goroutine looks for its node
// again after wait (place). If not, displace also removes the channel from the hub. The caller must hold mu.
func (h *Hub) displace(ch *channel, wait time.Duration) {
	s := ch.shard
	delete(s.channels, ch.name)
	if ch.idle != nil {
		s.idle.Remove(ch.idle)
	}
	poke(s.poked)
	ch.shard, ch.lastSubscribe, ch.confirmed, ch.idle = nil, nil, time.Time{}, nil
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

// A Cluster finds the nodes of sharded channels. [Masters] returns a Cluster for a client of go-redis. A
// simulation can have another implementation. The hub calls the methods from several goroutines.
type Cluster interface {
	// Node returns the server that has the channel. Node may send requests to find the server. ctx ends when
	// the hub is closed, and Node should return then. Node may return a wrong server, because that server
	// then refuses the channel.
	Node(ctx context.Context, channel string) (Node, error)

	// The hub calls Reload when a node has failed, is wrong or was not found. The next call of Node should
	// then find the right node. Reload must not block, and may be called often.
	Reload(ctx context.Context)
}

// A Node is one server of a Cluster. Its type must be comparable, and equal values mean the same server.
type Node interface {
	// Dial works like the function that [NewHub] gets. In a sharded hub, Subscribe and Unsubscribe of its
	// Conn must send SSUBSCRIBE and SUNSUBSCRIBE. They get any number of channels, whose slots may differ.
	Dial(ctx context.Context) Conn
}

// ClusterClient has the methods of a *[redis.ClusterClient] that [Masters] uses.
type ClusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// Masters returns a Cluster in which the node of a channel is the master that has the slot of the channel. It
// panics if c is nil.
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

// A sole is the Cluster of a hub that has one connection. It is also the only Node of this Cluster.
type sole struct{ dial func(context.Context) Conn }

func (s *sole) Node(context.Context, string) (Node, error) { return s, nil }
func (s *sole) Reload(context.Context)                     {}
func (s *sole) Dial(ctx context.Context) Conn              { return s.dial(ctx) }
