package pubsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// NewClusterHub returns a hub that subscribes to the classic channels of a Cluster. Every node forwards each
// message to all others, so one connection is enough, and can lead to any master that works. After a failure,
// and when its server is not a master any more, the hub connects to another master. It connects through the
// [redis.Client] that c has for this master, with the options and hooks of that client. The hub does no I/O
// before the first Subscribe. NewClusterHub panics if c is nil.
//
// The hub does not use Subscribe of the [redis.ClusterClient]. That method would dial the master of the first
// channel's slot, even while that master is down.
func NewClusterHub(c ClusterClient, o Options) *Hub {
	if c == nil {
		panic("pubsub: NewClusterHub: the Cluster is nil")
	}
	return newHub(&anyMaster{client: c}, false, o)
}

// anyMaster is the Cluster of a hub of classic channels, and also its only Node. A connection of this Node
// leads to any master that works.
//
// go-redis cannot list the masters without a request. So anyMaster looks up the masters of random key
// names: each name belongs to a slot, and each slot has a master. Only the owner of the hub's shard uses
// server and name.
type anyMaster struct {
	client ClusterClient
	failed atomic.Bool // the last connection has failed

	server *redis.Client // server of the last connection; nil before the first connection
	name   string        // key name in a slot that the server has, or had
}

// maxNames is the number of names after which find gives up. With this number, a server that has one slot in
// a thousand is found in nearly two of three searches.
const maxNames = 1000

var errNoMaster = errors.New("the server is not a master any more, and may be cut off from the Cluster")

func (a *anyMaster) Node(context.Context, string) (Node, error) { return a, nil }

// Reload is called by the hub after each failure, so the next connection leads to another master.
func (a *anyMaster) Reload(ctx context.Context) {
	a.failed.Store(true)
	a.client.ReloadState(ctx)
}

func (a *anyMaster) Dial(context.Context) Conn { return &memberConn{of: a} }

// choose returns the server for the next connection. If the last connection has not failed, and its server is
// still a master, choose returns that server. If not, choose returns another master at random. If it finds no
// other master, it returns the same server again.
func (a *anyMaster) choose(ctx context.Context) (*redis.Client, error) {
	last := a.server
	if last != nil && !a.failed.Load() && a.serves(ctx) {
		return last, nil
	}
	if _, err := a.find(ctx, func(server *redis.Client) bool { return server != last }); err != nil {
		return nil, err
	}
	a.failed.Store(false)
	return a.server, nil
}

// find looks for a master for which fits returns true, and reports whether it has found one. If so, it sets
// server and name.
func (a *anyMaster) find(ctx context.Context, fits func(*redis.Client) bool) (bool, error) {
	for range maxNames {
		name := strconv.FormatUint(rand.Uint64(), 36)
		server, err := a.client.MasterForKey(ctx, name)
		if err != nil {
			return false, err
		}
		if fits(server) {
			a.server, a.name = server, name
			return true, nil
		}
	}
	return false, nil
}

// serves reports whether the client's map of the Cluster shows the server as a master. If the client has no
// map, serves returns true.
func (a *anyMaster) serves(ctx context.Context) bool {
	master, err := a.client.MasterForKey(ctx, a.name)
	if err != nil || master == a.server {
		return true
	}
	// The slot of a.name has moved to another master. The server may still be the master of other slots, so
	// look for another name that leads to it.
	found, err := a.find(ctx, func(server *redis.Client) bool { return server == a.server })
	return found || err != nil
}

// A memberConn is a connection to any master. The choice of the server may take long, because the client may
// have to load the map of the Cluster. So the first Subscribe chooses the server. Dial cannot do so, because
// it has no deadline.
type memberConn struct {
	*redis.PubSub // nil before the first Subscribe
	of            *anyMaster
	addr          string // "" before the first Subscribe
}

func (c *memberConn) Subscribe(ctx context.Context, channels ...string) error {
	if c.PubSub == nil {
		server, err := c.of.choose(ctx)
		if err != nil {
			return err
		}
		c.PubSub, c.addr = server.Subscribe(ctx), server.Options().Addr
	}
	return c.PubSub.Subscribe(ctx, channels...)
}

// Ping fails if the server is not a master any more. A server that is cut off from the Cluster answers pings,
// but gets no messages from other nodes.
func (c *memberConn) Ping(ctx context.Context, payload ...string) error {
	if !c.of.serves(ctx) {
		return errNoMaster
	}
	return c.PubSub.Ping(ctx, payload...)
}

func (c *memberConn) Server() string { return c.addr }

func (c *memberConn) Close() error {
	if c.PubSub == nil {
		return nil
	}
	return c.PubSub.Close()
}
