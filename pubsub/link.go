package pubsub

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/contain"
)

// A Conn is one subscription connection. *[redis.PubSub] implements Conn. A simulation can have another
// implementation.
//
// The hub calls Subscribe, Unsubscribe (never without a channel), Ping and Close from one goroutine. When the
// first Subscribe has succeeded, the hub also calls Receive from another goroutine. After any error, the hub
// closes the Conn. If it still needs a connection, it dials a new one. There is one exception. In a sharded
// hub, a [redis.Error] of Receive that is the reply to SSUBSCRIBE or SUNSUBSCRIBE only means that the server
// refuses one channel.
//
// If a Conn also has a method Server() string, log lines have the result of this method instead of
// [Options.Server].
type Conn interface {
	// Subscribe, Unsubscribe and Ping write commands, and do not wait for the replies. Receive returns the
	// replies, in the order of the commands, with one reply for each channel. The first Subscribe may
	// connect. ctx ends after two ping intervals, or when the connection is not needed any more.
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context, payload ...string) error

	// Receive waits for the next *redis.Subscription, *redis.Message or *redis.Pong, or for an error that is
	// the reply to a command. Close and a failure of the connection also end the wait. ctx has always ended
	// already. This means only that Receive must not connect.
	Receive(ctx context.Context) (any, error)

	// Close closes the connection, and ends a Receive that is waiting.
	Close() error
}

var _ Conn = (*redis.PubSub)(nil)

var (
	errSilent = errors.New("nothing received for two ping intervals")
	errMisled = errors.New("the server that has the lock has no subscription of this session")
)

// ended is the context for Receive. With a context that has not ended, Receive of go-redis would replace a
// broken connection itself. It would hold the mutex of the PubSub for as long as the dial takes. It would
// also subscribe again, and the hub would not notice that messages may be missing. With an ended context, the
// dial fails at once. Reading still works, because go-redis uses only the deadline of the context for
// reading, and this context has no deadline.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// A link is one connection, from its dial to its end.
type link struct {
	*shard
	conn   Conn
	outage time.Time // start of the outage that this connection may end; zero means there is none

	// answered is set when the connection has received something. Only the reader uses answered while it
	// runs. After that, only the owner uses it.
	answered bool

	// hub.mu guards the fields below while the reader runs.
	expected   []*command // commands without a reply, in the order in which they were written
	receivedAt time.Time  // time of the last reply or message, or at first the start of the reader
}

// describe adds the name of the server to the attributes of a log line, if the name is known.
func (l *link) describe(args ...any) []any {
	server := l.hub.options.Server
	if c, ok := l.conn.(interface{ Server() string }); ok {
		server = c.Server()
	}
	if server != "" {
		args = append(args, "server", server)
	}
	return args
}

// A command is a request to which the server sends one reply. A SUBSCRIBE of several channels counts as
// several commands, because each channel gets a reply.
type command struct{ kind, channel string }

const (
	subscribe   = "subscribe"
	unsubscribe = "unsubscribe"
	ping        = "ping"
)

// serve dials, and subscribes and unsubscribes channels as the hub needs them. It returns an error if the
// connection fails, is silent, or leads to the wrong server. It returns nil if the connection is not needed
// any more.
func (l *link) serve() (err error) {
	defer contain.Recover(l.hub.options.Logger, "lockline: the connection of a subscription", &err)
	ctx, fail := context.WithCancelCause(l.hub.ctx)
	defer fail(nil)
	l.conn = l.node.Dial(ctx)
	var reader sync.WaitGroup
	defer func() {
		fail(nil) // ends a dial, for which Close of go-redis would wait
		l.conn.Close()
		reader.Wait()
		l.forget()
	}()

	if needed, err := l.update(ctx); err != nil || !needed {
		return err
	}
	// The reader starts after the first Subscribe. During that call, Receive would wait for the mutex that
	// Subscribe holds while it dials.
	l.receivedAt = time.Now()
	reader.Go(func() { fail(l.read()) }) // fail also ends a command of the owner that is dialing again

	err = l.tend(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// forget handles the end of the connection. From then on, none of its channels is confirmed. If one of them
// was confirmed before, an outage begins.
func (l *link) forget() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	var lost *outage
	for _, ch := range l.channels {
		// If the connection ends because no channel needs it, l.channels is empty, so no outage begins.
		if !ch.confirmed.IsZero() {
			lost = &outage{}
			break
		}
	}
	for _, ch := range l.channels {
		ch.lastSubscribe, ch.confirmed = nil, time.Time{}
		if lost != nil {
			ch.outage = lost
		}
	}
}

// tend sends the commands that the hub needs, and pings, until the connection fails or is not needed any
// more.
func (l *link) tend(ctx context.Context) error {
	h, interval := l.hub, l.hub.options.PingInterval
	nextPing := time.Now().Add(interval)
	for {
		now := time.Now()
		if !now.Before(nextPing) {
			nextPing = now.Add(interval)
			l.review() // a server that is cut off cannot report that its slots have another master
			bare := func(ctx context.Context, _ ...string) error { return l.conn.Ping(ctx) }
			if err := l.write(ctx, ping, bare, ""); err != nil {
				return err
			}
		}
		h.mu.Lock()
		silent := l.receivedAt.Add(2 * interval)
		expiry := silent // time at which the next idle channel is unsubscribed, or silent if none is idle
		if e := l.idle.Front(); e != nil {
			expiry = e.Value.(*channel).idleSince.Add(h.options.Linger)
		}
		h.mu.Unlock()
		if !now.Before(silent) {
			return errSilent
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.poked:
		case <-time.After(min(silent.Sub(now), expiry.Sub(now), nextPing.Sub(now))):
		}
		if needed, err := l.update(ctx); err != nil || !needed {
			return err
		}
	}
}

// update subscribes the channels in fresh by one call, and unsubscribes the channels in left by another call.
// If the shard has no channels any more, update sends nothing and returns false. If the connection leads to
// the wrong server, it returns errMisled.
func (l *link) update(ctx context.Context) (needed bool, err error) {
	l.hub.mu.Lock()
	l.expire()
	back := func(name string) bool { return l.channels[name] != nil } // the channel was added again
	fresh, left := l.fresh, slices.DeleteFunc(l.left, back)
	l.fresh, l.left = nil, nil
	needed, misled := len(l.channels) > 0, l.misled
	l.hub.mu.Unlock()

	switch {
	case !needed:
		return false, nil // closing the connection unsubscribes all channels
	case misled:
		return true, errMisled
	}
	if err = l.write(ctx, subscribe, l.conn.Subscribe, fresh...); err == nil {
		err = l.write(ctx, unsubscribe, l.conn.Unsubscribe, left...)
	}
	return true, err
}

// write calls send once, for all channels. First it adds one command of this kind for each channel to
// expected, because the server replies once for each channel. A ping has the channel "". Without channels,
// write does nothing. send must return within two ping intervals, even if it has to dial.
func (l *link) write(
	ctx context.Context, kind string, send func(context.Context, ...string) error, channels ...string,
) error {
	if len(channels) == 0 { // UNSUBSCRIBE without arguments would unsubscribe all channels
		return nil
	}
	l.hub.mu.Lock()
	for _, name := range channels {
		c := &command{kind, name}
		l.expected = append(l.expected, c)
		if ch := l.channels[name]; ch != nil && kind == subscribe {
			ch.lastSubscribe = c
		}
	}
	l.hub.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*l.hub.options.PingInterval)
	defer cancel()
	return send(ctx, channels...)
}

// read delivers messages and replies until the connection fails or is closed. It runs in the reader's
// goroutine.
func (l *link) read() (err error) {
	defer contain.Recover(l.hub.options.Logger, "lockline: the connection of a subscription", &err)
	for {
		arrived, err := l.conn.Receive(ended)
		if err != nil && !l.refuse(err) {
			return err
		}
		if l.deliver(arrived) {
			contain.Run(l.hub.options.Logger, "lockline: OnReconnect", l.hub.options.OnReconnect)
		}
		if !l.answered && !l.outage.IsZero() {
			l.hub.log(slog.LevelInfo, "lockline: subscription restored",
				l.describe("after", time.Since(l.outage))...)
		}
		l.answered = true
	}
}

// refuse reports whether err only means that the server refuses one channel. In this case, err is the reply
// to the first command in expected, and refuse makes the hub look for another node for the channel of this
// command.
func (l *link) refuse(err error) bool {
	h := l.hub
	if !h.sharded || !errors.As(err, new(redis.Error)) {
		return false
	}
	h.mu.Lock()
	if len(l.expected) == 0 || l.expected[0].kind == ping {
		h.mu.Unlock()
		return false
	}
	first := *l.expected[0]
	l.fail(1)
	h.mu.Unlock()
	if first.kind == subscribe && !strings.HasPrefix(err.Error(), "MOVED ") {
		h.refuse(err)
		h.warn(msgRefused, l.describe("channel", first.channel, "error", err)...)
	}
	return true
}

// fail removes the first n expected commands, because the server has not carried them out. The hub then looks
// for another node for the channels that these commands would have subscribed. The caller must hold hub.mu.
func (l *link) fail(n int) {
	for _, c := range l.expected[:n] {
		if ch := l.channels[c.channel]; ch != nil && ch.lastSubscribe == c {
			l.hub.displace(ch, longer(&ch.pause))
		}
	}
	l.expected = l.expected[n:]
}

// match returns the command to which a reply belongs. Earlier commands without a reply have failed (see
// fail). match returns nil if the server sent the reply without a command. The caller must hold hub.mu.
func (l *link) match(kind, channel string) *command {
	for i, c := range l.expected {
		if *c == (command{kind, channel}) {
			l.fail(i)
			l.expected = l.expected[1:]
			return c
		}
	}
	return nil
}

// deliver puts a message into the mailboxes of the message's channel, or handles a reply. It never waits for
// a listener. reconnected reports whether a reply has ended an outage.
func (l *link) deliver(arrived any) (reconnected bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.receivedAt = time.Now()
	switch m := arrived.(type) {
	case *redis.Message:
		if ch := l.channels[m.Channel]; ch != nil {
			for s := range ch.listeners {
				s.put(m.Payload)
			}
		}
	case *redis.Pong:
		l.match(ping, "")
	case *redis.Subscription: // the kind is ssubscribe or sunsubscribe for a sharded channel
		kind := subscribe
		if strings.HasSuffix(m.Kind, unsubscribe) {
			kind = unsubscribe
		}
		c := l.match(kind, m.Channel)
		switch ch := l.channels[m.Channel]; {
		case ch == nil:
		case c == nil && kind == unsubscribe: // the slot of the channel has moved
			l.hub.displace(ch, longer(&ch.pause))
		case c != nil && c == ch.lastSubscribe: // the reply to the last SUBSCRIBE of the channel
			ch.confirmed, ch.pause, l.hub.refusal = time.Now(), 0, nil
			if ch.outage != nil {
				reconnected = !ch.outage.ended
				ch.outage.ended, ch.outage = true, nil
			}
			for s := range ch.listeners {
				s.resubscribe()
			}
		}
	}
	return reconnected
}
