package pubsub

import (
	"context"

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
func NewShardedHub(c Cluster, o Options) *Hub { return newHub(c, true, o) }

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

// sole is the Cluster of a hub that has one connection, and its Node.
type sole struct{ dial func(context.Context) Conn }

func (s *sole) Node(context.Context, string) (Node, error) { return s, nil }
func (s *sole) Reload(context.Context)                     {}
func (s *sole) Dial(ctx context.Context) Conn              { return s.dial(ctx) }
