package pubsub_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lockline/lockline/pubsub"
)

// refusal is an error that a server replies with.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// A cluster has nodes in memory. Each channel has its own slot, which the first node has at the beginning.
// One mutex guards all slots, so each slot is on exactly one node at any time.
type cluster struct {
	*server // only its mutex is used
	nodes   []*server
	owner   map[string]int // index of the channel's node
	known   map[string]int // the client's map: index of the channel's node
	refused map[string]refusal
	lost    int // so many of the next commands get no reply

	asleep   bool          // Reload has no effect
	failing  error         // error that Node returns; nil means none
	locating chan struct{} // if not nil, Node waits for it
	located  int           // number of calls of Node
	reloads  int
}

func newCluster(t *testing.T, nodes int) *cluster {
	c := &cluster{
		server: &server{t: t},
		owner:  map[string]int{}, known: map[string]int{}, refused: map[string]refusal{},
	}
	for range nodes {
		c.nodes = append(c.nodes, &server{t: t, cluster: c})
	}
	return c
}

// fakeNode hides the methods of a server that a Node does not have.
type fakeNode struct{ *server }

func (n fakeNode) Dial(ctx context.Context) pubsub.Conn { return n.dial(ctx) }

func (c *cluster) Node(_ context.Context, channel string) (pubsub.Node, error) {
	if c.locating != nil {
		<-c.locating
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.located++
	if c.failing != nil {
		return nil, c.failing
	}
	return fakeNode{c.nodes[c.known[channel]]}, nil
}

func (c *cluster) Reload(context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reloads++
	if !c.asleep {
		c.known = map[string]int{}
		for channel, i := range c.owner {
			c.known[channel] = i
		}
	}
}

// place puts channels on a node, before there is a hub.
func (c *cluster) place(node int, channels ...string) {
	for _, name := range channels {
		c.owner[name], c.known[name] = node, node
	}
}

// move moves the slot of a channel to another node. The former node notifies its subscribers.
func (c *cluster) move(channel string, to int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.nodes[c.owner[channel]]
	c.owner[channel] = to
	from.mu.Lock()
	defer from.mu.Unlock()
	for _, conn := range from.conns {
		if conn.channels[channel] {
			delete(conn.channels, channel)
			conn.say(reply("sunsubscribe", channel))
		}
	}
}

// spublish publishes a message on the node that has the channel.
func (c *cluster) spublish(channel, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[c.owner[channel]].publish(channel, message)
}

// index returns the index of a node.
func (c *cluster) index(s *server) int {
	for i, n := range c.nodes {
		if n == s {
			return i
		}
	}
	return -1
}

// The caller of answer must hold the mutex of the node, but not that of the cluster.
func (c *conn) answer(
	ctx context.Context, command string, channels []string, do func(cl *cluster, name string) any,
) error {
	cl := c.s.cluster
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return c.command(ctx, command+" "+strings.Join(channels, " "), func() {
		for _, name := range channels {
			switch {
			case cl.lost > 0:
				cl.lost--
			case cl.refused[name] != "":
				c.say(cl.refused[name])
			case cl.owner[name] != cl.index(c.s):
				c.say(refusal("MOVED 1 elsewhere:1"))
			default:
				c.say(do(cl, name))
			}
		}
	})
}

func (c *conn) ssubscribe(ctx context.Context, channels []string) error {
	return c.answer(ctx, "SSUBSCRIBE", channels, func(_ *cluster, name string) any {
		c.channels[name] = true
		return reply("ssubscribe", name)
	})
}

func (c *conn) sunsubscribe(ctx context.Context, channels []string) error {
	return c.answer(ctx, "SUNSUBSCRIBE", channels, func(_ *cluster, name string) any {
		delete(c.channels, name)
		return reply("sunsubscribe", name)
	})
}

var errNoMap = errors.New("no node answers")

// sharded runs a test in fake time with a new cluster. The test fails if a goroutine is left at its end.
func sharded(t *testing.T, nodes int, o pubsub.Options, test func(t *testing.T, c *cluster, h *pubsub.Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, nodes)
		h := pubsub.NewShardedHub(c, o)
		test(t, c, h)
		h.Close()
	})
}
