package explore

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/proof/keyspace"
	"github.com/lockline/lockline/pubsub"
)

// A subscription is a connection on which a session gets messages. Messages that the server has published
// wait in a queue until the explorer delivers them.
type subscription struct {
	p    *process
	in   chan any      // messages and replies that have arrived
	done chan struct{} // closed when the connection has ended

	// run.mu guards the following.
	ended    bool
	wanted   []string        // channels of SUBSCRIBE commands that the server has not run
	channels map[string]bool // channels to which the connection is subscribed
	queue    []keyspace.Message
}

var _ pubsub.Conn = (*subscription)(nil)

// dial returns a new connection for the session's hub.
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

// end ends the connection for both sides. The caller must hold run.mu.
func (c *subscription) end() {
	if !c.ended {
		c.ended = true
		c.wanted, c.queue, c.channels = nil, nil, nil
		close(c.done)
		c.p.r.happened()
	}
}

// arrive delivers a reply or a message to the session. The caller must hold run.mu.
func (c *subscription) arrive(what any) {
	if !c.ended {
		c.in <- what
	}
}

// confirm runs the SUBSCRIBE commands at the server, and delivers the replies. The caller must hold run.mu.
func (c *subscription) confirm() {
	for _, channel := range c.wanted {
		c.channels[channel] = true
		c.arrive(&redis.Subscription{Kind: "subscribe", Channel: c.p.r.original(channel)})
	}
	c.wanted = nil
}

// deliver takes the first message from the queue, and delivers it unless lose is true. The caller must hold
// run.mu.
func (c *subscription) deliver(lose bool) {
	m := c.queue[0]
	c.queue = c.queue[1:]
	if !lose {
		c.arrive(&redis.Message{Channel: c.p.r.original(m.Channel), Payload: c.p.r.original(m.Text)})
	}
}

// listener returns the connection that is subscribed to a channel. It returns nil if there is none. The
// caller must hold run.mu.
func (r *run) listener(channel string) *subscription {
	for _, p := range r.processes {
		if c := p.subscription; c != nil && c.channels[channel] {
			return c
		}
	}
	return nil
}

// listening returns all subscribed channels. The caller must hold run.mu.
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
