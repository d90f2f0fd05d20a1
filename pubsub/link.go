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

// Conn is one subscription connection. *[redis.PubSub] is one; a simulation can supply its own.
//
// The hub calls Subscribe, Unsubscribe (never without a channel), Ping and Close from one goroutine and, once
// the first Subscribe has succeeded, Receive from another. Any error makes it close the Conn and dial a new
// one; of a sharded hub, any but a [redis.Error] from Receive, by which the server refuses a channel.
//
// If a Conn also has a method Server() string, log lines name its server so, and not by [Options.Server].
type Conn interface {
	// Subscribe writes one command; the replies come through Receive, in the order of the
	// commands. The first Subscribe may connect. ctx is live.
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context, payload ...string) error

	// Receive waits for the next *redis.Subscription, *redis.Message or *redis.Pong, or the error that is the
	// reply to a command. Only Close and failure end the wait. ctx has ended already and says nothing but: do
	// not connect from here.
	Receive(ctx context.Context) (any, error)

	// Close ends a Receive that is under way.
	Close() error
}

var _ Conn = (*redis.PubSub)(nil)

var (
	errSilent = errors.New("nothing received for two ping intervals")
	errMisled = errors.New("the server that has the lock knows no subscriber of this session")
)

// ended is the context for Receive. PubSub.Receive repairs a broken connection by itself. It dials,
// under the PubSub's mutex, for as long as that takes, and subscribes to whatever it thinks is
// wanted, so that the gap goes unnoticed. An ended context forbids just that: the dial fails at once.
// Reading isn't touched, for (*pool.Conn).deadline looks at a context's deadline only,
// of which a canceled context has none, and nothing else on the way looks at it.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// link is one connection, from its dial to its end.
type link struct {
	*shard
	conn   Conn
	outage time.Time // when the outage began that this connection is to end; zero if there is none

	// The reader's, and the owner's after that.
	answered bool // anything was received

	// Guarded by hub.mu while the reader runs.
	expected []*command // those without a reply, in the order in which they were written
	heard    time.Time  // when anything was last received, or could first have been
}

// describe adds the name of the server to the attributes of a log line, if it is known.
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

// command is what the server answers by one reply.
type command struct{ kind, channel string }

const (
	subscribe   = "subscribe"
	unsubscribe = "unsubscribe"
	ping        = "ping"
)

// serve dials, and keeps the channels subscribed as the hub wants them, until the connection
// fails or falls silent (an error) or it is not needed any more (nil).
func (l *link) serve() (err error) {
	defer contain.Recover(l.hub.options.Logger, "lockline: the connection of a subscription", &err)
	ctx, fail := context.WithCancelCause(l.hub.ctx)
	defer fail(nil)
	l.conn = l.node.Dial(ctx)
	var reader sync.WaitGroup
	defer func() {
		fail(nil) // before Close, which in go-redis waits for a dial
		l.conn.Close()
		reader.Wait()
		l.forget()
	}()

	if needed, err := l.update(ctx); err != nil || !needed {
		return err
	}
	// Not earlier: a Receive would find no connection yet, and a mutex held by the Subscribe that dials.
	l.heard = time.Now()
	reader.Go(func() { fail(l.read()) }) // which also ends a command that dials again

	err = l.tend(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// forget notes that the connection has ended, so that its channels are confirmed nowhere.
func (l *link) forget() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	var lost *outage
	for _, ch := range l.channels {
		if !ch.confirmed.IsZero() { // none is when the connection was not needed any more
			lost = &outage{}
			break
		}
	}
	for _, ch := range l.channels {
		ch.asked, ch.confirmed = nil, time.Time{}
		if lost != nil {
			ch.outage = lost
		}
	}
}

// tend writes what is asked for or comes to be due.
func (l *link) tend(ctx context.Context) error {
	h, interval := l.hub, l.hub.options.PingInterval
	nextPing := time.Now().Add(interval)
	for {
		now := time.Now()
		if !now.Before(nextPing) {
			nextPing = now.Add(interval)
			l.review() // a server that is cut off does not know that its slots have another master
			bare := func(ctx context.Context, _ ...string) error { return l.conn.Ping(ctx) }
			if err := l.write(ctx, ping, bare, ""); err != nil {
				return err
			}
		}
		h.mu.Lock()
		silent := l.heard.Add(2 * interval)
		expiry := silent // when the next linger is over; if none is on, no earlier time
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

// update subscribes what is fresh, all in one call, and unsubscribes what has
// left, all in one call; if nothing else is left it tells so instead.
func (l *link) update(ctx context.Context) (needed bool, err error) {
	l.hub.mu.Lock()
	l.expire()
	back := func(name string) bool { return l.channels[name] != nil } // it stays subscribed
	fresh, left := l.fresh, slices.DeleteFunc(l.left, back)
	l.fresh, l.left = nil, nil
	needed, misled := len(l.channels) > 0, l.misled
	l.hub.mu.Unlock()

	switch {
	case !needed:
		return false, nil // closing the connection says it all
	case misled:
		return true, errMisled
	}
	if err = l.write(ctx, subscribe, l.conn.Subscribe, fresh...); err == nil {
		err = l.write(ctx, unsubscribe, l.conn.Unsubscribe, left...)
	}
	return true, err
}

// write sends the commands of one kind, if there are any, and notes that replies are to come. It gives them,
// and the dial that they may bring about, no longer than silence is borne.
func (l *link) write(
	ctx context.Context, kind string, send func(context.Context, ...string) error, channels ...string,
) error {
	if len(channels) == 0 { // as arguments, none would mean all
		return nil
	}
	l.hub.mu.Lock()
	for _, name := range channels {
		c := &command{kind, name}
		l.expected = append(l.expected, c)
		if ch := l.channels[name]; ch != nil && kind == subscribe {
			ch.asked = c
		}
	}
	l.hub.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*l.hub.options.PingInterval)
	defer cancel()
	return send(ctx, channels...)
}

// read is the reader: it hands out what arrives until the connection fails or is closed.
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

// refuse reports whether the error is only about one channel, for which another shard is sought then: it is
// the reply to the first command that has none.
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
		h.warn(msgRefused, l.describe("channel", first.channel, "error", err)...)
	}
	return true
}

// fail notes that the first n commands without a reply were not carried out. The caller holds hub.mu.
func (l *link) fail(n int) {
	for _, c := range l.expected[:n] {
		if ch := l.channels[c.channel]; ch != nil && ch.asked == c {
			l.hub.displace(ch, longer(&ch.pause))
		}
	}
	l.expected = l.expected[n:]
}

// match finds the command that a reply is to. Those before it have failed. If there is none, nil, the server
// has said that by itself. The caller holds hub.mu.
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

// deliver hands out what arrived, and never waits for a listener. It reports whether that ends an outage.
func (l *link) deliver(arrived any) (reconnected bool) {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	l.heard = time.Now()
	switch m := arrived.(type) {
	case *redis.Message:
		if ch := l.channels[m.Channel]; ch != nil {
			for s := range ch.listeners {
				s.put(m.Payload)
			}
		}
	case *redis.Pong:
		l.match(ping, "")
	case *redis.Subscription: // its kind begins with "s" once more for a sharded channel
		kind := subscribe
		if strings.HasSuffix(m.Kind, unsubscribe) {
			kind = unsubscribe
		}
		c := l.match(kind, m.Channel)
		switch ch := l.channels[m.Channel]; {
		case ch == nil:
		case c == nil && kind == unsubscribe: // its slot has moved
			l.hub.displace(ch, longer(&ch.pause))
		case c != nil && c == ch.asked: // and not to an earlier SUBSCRIBE
			ch.confirmed, ch.pause = time.Now(), 0
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
