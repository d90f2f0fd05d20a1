package pubsub

import (
	"context"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster knows where sharded channels are. [Masters] makes one of a client of go-redis; a simulation can
// supply its own. The hub calls it from several goroutines.
type Cluster interface {
	// Node finds the server that has the channel. It may ask a server for that, and should heed its context,
	// which ends with the hub. It may be wrong: the server then refuses the channel.
	Node(ctx context.Context, channel string) (Node, error)

	// Reload says that a node turned out to be gone or wrong, so that Node should look again. It must not
	// block, and may be called often.
	Reload(ctx context.Context)
}

// Node is one server of a Cluster, of a comparable type: equal values are the same server.
type Node interface {
	// Dial is as the function that [NewHub] is given, but Subscribe and Unsubscribe of the Conn are for
	// sharded channels, SSUBSCRIBE and SUNSUBSCRIBE, and take any number of channels of any slots.
	Dial(ctx context.Context) Conn
}

// NewShardedHub returns a hub that subscribes to the sharded channels of a Cluster (Redis 7 or newer,
// Valkey), which have the messages of SPUBLISH. It keeps one connection for each node that has channels with
// listeners, and follows a channel that comes to be another node's. Each Subscription reports resubscribed
// after that, as it does after a reconnect. No I/O before the first Subscribe.
func NewShardedHub(c Cluster, o Options) *Hub {
	h := newHub(o)
	h.cluster = c
	h.strayed = make(chan struct{}, 1)
	h.shards = make(map[Node]*shard)
	return h
}

// ClusterClient is what [Masters] needs of go-redis: *[redis.ClusterClient] has it.
type ClusterClient interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// Masters is a Cluster of whose nodes the masters are subscribed to.
func Masters(c ClusterClient) Cluster { return masters{c} }

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

func (m master) Dial(ctx context.Context) Conn { return shardedConn{m.SSubscribe(ctx)} }

// shardedConn sends a command for each channel, since the server refuses one for several slots.
type shardedConn struct{ *redis.PubSub }

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

// stray has a channel that no shard has placed after a while. The caller holds mu.
func (h *Hub) stray(ch *channel, after time.Duration) {
	ch.due = time.Now().Add(after)
	h.astray = append(h.astray, ch)
	poke(h.strayed)
	if !h.placing {
		h.placing = true
		h.start(h.place)
	}
}

// displace takes a channel away from the shard whose server does not have it, or refuses it. The caller holds
// mu.
func (h *Hub) displace(ch *channel) {
	s := ch.shard
	if s.remove(ch); s.size == 0 {
		poke(s.poked)
	}
	h.stale = true
	h.retry(ch)
}

// retry has a channel placed after a pause, unless it has no listeners any more. The caller holds mu.
func (h *Hub) retry(ch *channel) {
	if len(ch.listeners) == 0 {
		delete(h.channels, ch.name)
		return
	}
	var wait time.Duration
	ch.pause, wait = longer(ch.pause)
	h.stray(ch, wait)
}

// move gives a channel to the shard of a node. The caller holds mu.
func (h *Hub) move(ch *channel, to Node) {
	s := h.shards[to]
	if s == nil {
		s = newShard(h, to)
		h.shards[to] = s
	}
	s.add(ch)
}

// place is the placing goroutine: it finds a shard for each channel that has none, and ends when all have
// one.
func (h *Hub) place() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, next, stale, needed := h.strays()
		if !needed {
			return
		}
		if stale {
			h.reload()
		}
		if len(due) > 0 {
			h.settle(due)
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-h.strayed:
		case <-h.ctx.Done():
		}
	}
}

// strays takes out the astray channels that are due, and tells when the next one is, whether to reload first,
// and whether there was any.
func (h *Hub) strays() (due []*channel, next time.Time, stale, needed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	var later []*channel
	for _, ch := range h.astray {
		switch {
		case h.channels[ch.name] != ch: // it has no listeners any more
		case !ch.due.After(now):
			due = append(due, ch)
		default:
			if later = append(later, ch); next.IsZero() || ch.due.Before(next) {
				next = ch.due
			}
		}
	}
	h.astray = later
	stale, h.stale = h.stale, false
	if h.ctx.Err() != nil || len(due) == 0 && len(later) == 0 {
		h.placing = false
		return nil, next, false, false
	}
	return due, next, stale, true
}

// settle places channels, all at once, so that those of one shard are subscribed together.
func (h *Hub) settle(due []*channel) {
	nodes := make([]Node, len(due))
	var failed error
	for i, ch := range due {
		var err error
		if nodes[i], err = h.locate(ch.name); err != nil {
			failed = err
		}
	}
	h.mu.Lock()
	for i, ch := range due {
		switch {
		case h.channels[ch.name] != ch: // it has no listeners any more
		case nodes[i] == nil:
			h.stale = true
			h.retry(ch)
		default:
			h.move(ch, nodes[i])
		}
	}
	h.mu.Unlock()
	if failed != nil {
		h.warn(failed)
	}
}

// review moves the channels of the shard that another node has by now. Its owner alone calls it.
func (s *shard) review() {
	h := s.hub
	h.mu.Lock()
	var names []string
	for name := range h.channels {
		if s.has(name) {
			names = append(names, name)
		}
	}
	h.mu.Unlock()
	for _, name := range names {
		node, err := h.locate(name)
		if err != nil || node == s.node {
			continue
		}
		h.mu.Lock()
		if ch := h.channels[name]; ch != nil && ch.shard == s {
			s.remove(ch)
			s.left = append(s.left, name)
			poke(s.poked)
			if len(ch.listeners) > 0 {
				h.move(ch, node)
			} else {
				delete(h.channels, name)
			}
		}
		h.mu.Unlock()
	}
}

func (h *Hub) locate(channel string) (n Node, err error) {
	defer h.survive(&err)
	return h.cluster.Node(h.ctx, channel)
}

func (h *Hub) reload() {
	defer h.survive(new(error))
	h.cluster.Reload(h.ctx)
}

// warn logs, once a minute at most, that a channel cannot be subscribed.
func (h *Hub) warn(err error) {
	h.mu.Lock()
	now := time.Now()
	quiet := h.ctx.Err() != nil || !h.warned.IsZero() && now.Sub(h.warned) < time.Minute
	if !quiet {
		h.warned = now
	}
	h.mu.Unlock()
	if !quiet {
		h.log(slog.LevelWarn, "pubsub: a sharded channel cannot be subscribed", "error", err)
	}
}
