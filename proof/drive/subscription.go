package drive

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/proof/explore/keyspace"
	"github.com/lockline/lockline/pubsub"
)

// A subscription is a connection on which a session gets messages. What the server publishes waits in a queue
// until the explorer delivers it.
type subscription struct {
	p        *process
	in       chan any      // what has arrived
	done     chan struct{} // closed when it has ended
	ended    bool
	wanted   []string        // channels that the server has not subscribed yet
	channels map[string]bool // that it has
	queue    []keyspace.Message
}

var _ pubsub.Conn = (*subscription)(nil)

func (p *process) dial(context.Context) pubsub.Conn {
	c := &subscription{p: p, in: make(chan any, 1000), done: make(chan struct{}), channels: map[string]bool{}}
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	p.subscription = c
	return c
}

func (c *subscription) Subscribe(ctx context.Context, channels ...string) error {
	r := c.p.r
	r.mu.Lock()
	away, ended := c.p.away, c.ended
	if !away && !ended {
		for _, channel := range channels {
			c.wanted = append(c.wanted, r.plain(channel))
		}
		r.happened()
	}
	r.mu.Unlock()
	switch {
	case ended:
		return io.EOF
	case away:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return io.EOF
		}
	}
	return nil
}

func (c *subscription) Unsubscribe(_ context.Context, channels ...string) error {
	r := c.p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, channel := range channels {
		delete(c.channels, r.plain(channel))
		c.arrive(&redis.Subscription{Kind: "unsubscribe", Channel: channel})
	}
	return nil
}

func (c *subscription) Ping(context.Context, ...string) error {
	r := c.p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.p.away {
		c.arrive(&redis.Pong{})
	}
	return nil
}

func (c *subscription) Receive(context.Context) (any, error) {
	select {
	case m := <-c.in:
		return m, nil
	case <-c.done:
		return nil, io.EOF
	}
}

func (c *subscription) Close() error {
	r := c.p.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c.end()
	return nil
}

// The callers of the following must hold mu.

// end ends the connection for both sides.
func (c *subscription) end() {
	if !c.ended {
		c.ended = true
		c.wanted, c.queue, c.channels = nil, nil, nil
		close(c.done)
		c.p.r.happened()
	}
}

func (c *subscription) arrive(what any) {
	if !c.ended {
		c.in <- what
	}
}

// confirm has the server subscribe what is wanted.
func (c *subscription) confirm() {
	for _, channel := range c.wanted {
		c.channels[channel] = true
		c.arrive(&redis.Subscription{Kind: "subscribe", Channel: c.p.r.original(channel)})
	}
	c.wanted = nil
}

// deliver has the first message arrive, or lose it.
func (c *subscription) deliver(lose bool) {
	m := c.queue[0]
	c.queue = c.queue[1:]
	if !lose {
		c.arrive(&redis.Message{Channel: c.p.r.original(m.Channel), Payload: c.p.r.original(m.Text)})
	}
}

// listener is the connection that has a channel; nil if none has.
func (r *run) listener(channel string) *subscription {
	for _, p := range r.processes {
		if c := p.subscription; c != nil && c.channels[channel] {
			return c
		}
	}
	return nil
}

// listening has all channels that are subscribed.
func (r *run) listening() string {
	var all []string
	for _, p := range r.processes {
		if c := p.subscription; c != nil {
			all = append(all, slices.Collect(maps.Keys(c.channels))...)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
