package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
	"github.com/redis/go-redis/v9"
)

var errCut = errors.New("connection cut")

// A server is the server of a hub, in memory. It replies at once, in the order of the commands.
type server struct {
	t *testing.T

	mu      sync.Mutex // guards the fields below and those of conns; not held while waiting
	conns   []*conn    // all connections since the beginning
	dialed  []time.Time
	refuse  error         // error of the first Subscribe of a connection
	dialing chan struct{} // if not nil, Subscribe waits for it, even after its context has ended
	pinging chan struct{} // if not nil, Ping waits for it
	mute    int           // so many of the next pings get no reply
	frozen  bool          // replies and messages are held back
	latency func() time.Duration
	cluster *cluster // nil if the server is not a node of a cluster
}

type conn struct {
	s         *server
	in        chan any
	held      []any
	closed    chan struct{}
	isClosed  bool
	cut       bool
	connected bool
	commands  []string
	channels  map[string]bool
}

func (s *server) dial(context.Context) pubsub.Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &conn{s: s, in: make(chan any, 100_000), closed: make(chan struct{}), channels: map[string]bool{}}
	s.conns = append(s.conns, c)
	s.dialed = append(s.dialed, time.Now())
	return c
}

// last returns the newest connection.
func (s *server) last() *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

func (s *server) dials() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// commands returns the commands of the newest connection, without pings.
func (s *server) commands() string {
	c := s.last()
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.DeleteFunc(slices.Clone(c.commands),
		func(c string) bool { return c == "PING" }), "; ")
}

// settle waits until all goroutines are blocked, and then forgets the commands so far.
func (s *server) settle() {
	synctest.Wait()
	c := s.last()
	s.set(func() { c.commands = nil })
}

func (s *server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// freeze holds replies and messages back until thaw.
func (s *server) freeze() { s.set(func() { s.frozen = true }) }

// thaw sends n of the replies and messages that freeze has held back. If n is -1, it sends all of them, and
// the server is not frozen any more.
func (s *server) thaw(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) == 0 {
		s.frozen = false
		return
	}
	c := s.conns[len(s.conns)-1]
	if n < 0 {
		s.frozen, n = false, len(c.held)
	}
	for _, m := range c.held[:n] {
		c.in <- m
	}
	c.held = c.held[n:]
}

func (s *server) publish(channel, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.channels[channel] && !c.isClosed && !c.cut {
			c.say(&redis.Message{Channel: channel, Payload: message})
		}
	}
}

// cutAll ends all connections, as if the server was killed.
func (s *server) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if !c.cut {
			c.cut, c.held = true, nil
			close(c.in)
		}
	}
}

func reply(kind, channel string) *redis.Subscription {
	return &redis.Subscription{Kind: kind, Channel: channel}
}

// say sends a reply or a message. The caller must hold s.mu.
func (c *conn) say(m any) {
	switch {
	case c.isClosed || c.cut:
	case c.s.frozen:
		c.held = append(c.held, m)
	default:
		c.in <- m
	}
}

func (c *conn) command(ctx context.Context, command string, do func()) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.isClosed || c.cut {
		return errCut
	}
	c.commands = append(c.commands, command)
	do()
	return nil
}

func (c *conn) Subscribe(ctx context.Context, channels ...string) error {
	c.s.mu.Lock()
	refuse, dialing := c.s.refuse, c.s.dialing
	first := !c.connected
	c.connected = true
	c.s.mu.Unlock()
	if dialing != nil {
		<-dialing
	}
	if first && refuse != nil {
		return refuse
	}
	if c.s.cluster != nil {
		return c.ssubscribe(ctx, channels)
	}
	return c.command(ctx, "SUBSCRIBE "+strings.Join(channels, " "), func() {
		for _, name := range channels {
			c.channels[name] = true
			c.say(&redis.Subscription{Kind: "subscribe", Channel: name})
		}
	})
}

func (c *conn) Unsubscribe(ctx context.Context, channels ...string) error {
	if len(channels) == 0 {
		c.s.t.Error("UNSUBSCRIBE without a channel")
	}
	if c.s.cluster != nil {
		return c.sunsubscribe(ctx, channels)
	}
	return c.command(ctx, "UNSUBSCRIBE "+strings.Join(channels, " "), func() {
		for _, name := range channels {
			delete(c.channels, name)
			c.say(&redis.Subscription{Kind: "unsubscribe", Channel: name})
		}
	})
}

func (c *conn) Ping(ctx context.Context, _ ...string) error {
	c.s.mu.Lock()
	pinging := c.s.pinging
	c.s.mu.Unlock()
	if pinging != nil {
		<-pinging
	}
	return c.command(ctx, "PING", func() {
		if c.s.mute > 0 {
			c.s.mute--
			return
		}
		c.say(&redis.Pong{})
	})
}

func (c *conn) Receive(ctx context.Context) (any, error) {
	c.s.mu.Lock()
	if ctx.Err() == nil {
		c.s.t.Error("Receive could dial: its context has not ended")
	}
	if !c.connected {
		c.s.t.Error("Receive before the first Subscribe")
	}
	latency := c.s.latency
	c.s.mu.Unlock()
	select {
	case <-c.closed:
		return nil, redis.ErrClosed
	default:
	}
	select {
	case m, open := <-c.in:
		if !open {
			return nil, errCut
		}
		if latency != nil {
			time.Sleep(latency())
		}
		if refused, ok := m.(refusal); ok {
			return nil, refused
		}
		return m, nil
	case <-c.closed:
		return nil, redis.ErrClosed
	}
}

func (c *conn) Close() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.isClosed {
		c.s.t.Error("a Conn is closed twice")
		return nil
	}
	c.isClosed = true
	close(c.closed)
	return nil
}

// bubble runs a test in fake time with a new server. The test fails if a goroutine is left at its end.
func bubble(t *testing.T, o pubsub.Options, test func(t *testing.T, s *server, h *pubsub.Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		h := pubsub.NewHub(s.dial, o)
		test(t, s, h)
		h.Close()
	})
}

// heard waits until all goroutines are blocked, and returns what Take returns: the word "resubscribed" if
// that is true, and the messages.
func heard(t *testing.T, s *pubsub.Subscription) string {
	t.Helper()
	synctest.Wait()
	ready := len(s.C()) > 0
	messages, resubscribed := s.Take()
	if something := resubscribed || len(messages) > 0; ready != something {
		t.Errorf("C is ready: %v; Take has something: %v", ready, something)
	}
	if resubscribed {
		messages = append([]string{"resubscribed"}, messages...)
	}
	return strings.Join(messages, " ")
}

func expect[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %s, want %s", what, quoted(got), quoted(want))
	}
}

func quoted(v any) string { return fmt.Sprintf("%#v", v) }
