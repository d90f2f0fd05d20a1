package pubsub

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Conn is one subscription connection. *[redis.PubSub] is one; a simulation can supply its own.
//
// The hub calls Subscribe, Unsubscribe (never without a channel), Ping and Close from one goroutine and, once the
// first Subscribe has succeeded, Receive from another. Any error makes it close the Conn and dial a new one.
type Conn interface {
	// Subscribe writes one command; the replies come through Receive, in the order of the
	// commands. The first Subscribe may connect. ctx is live.
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context, payload ...string) error

	// Receive waits for the next *redis.Subscription, *redis.Message or *redis.Pong.
	// Only Close and failure end the wait. ctx has ended already and says nothing
	// but: do not connect from here.
	Receive(ctx context.Context) (any, error)

	// Close ends a Receive that is under way.
	Close() error
}

var _ Conn = (*redis.PubSub)(nil)

var errSilent = errors.New("nothing received for two ping intervals")

// ended is the context for Receive. PubSub.Receive heals a broken connection by itself: it dials,
// under the PubSub's mutex, for as long as that takes, and subscribes to whatever it thinks is
// wanted, so that nobody learns of the gap. An ended context forbids just that: the dial fails at once.
// Reading isn't touched, for (*pool.Conn).deadline looks at a context's deadline only,
// of which a canceled context has none, and nothing else on the way looks at it.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// link is one connection, from its dial to its end.
type link struct {
	hub    *Hub
	conn   Conn
	outage time.Time // when the outage began that this connection is to end; zero if there is none

	// Guarded by hub.mu while the reader runs.
	awaited  map[string]int // replies to SUBSCRIBE and UNSUBSCRIBE still to come, by channel
	heard    time.Time      // when anything was last received, or could first have been
	answered bool           // anything was received
}

// serve dials, and keeps the channels subscribed as the hub wants them, until the connection
// fails or falls silent (an error) or nobody needs it (nil).
func (l *link) serve() (err error) {
	defer l.hub.survive(&err)
	ctx, fail := context.WithCancelCause(l.hub.ctx)
	defer fail(nil)
	l.conn = l.hub.dial(ctx)
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
	reader.Go(func() { fail(l.read()) }) // which also ends a command that dials anew

	err = l.tend(ctx)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// tend writes what is asked for or comes to be due.
func (l *link) tend(ctx context.Context) error {
	interval := l.hub.options.PingInterval
	nextPing := time.Now().Add(interval)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		if !now.Before(nextPing) {
			nextPing = now.Add(interval)
			if err := l.write(ctx, func(ctx context.Context) error { return l.conn.Ping(ctx) }); err != nil {
				return err
			}
		}
		silent, expiry := l.deadlines()
		if !now.Before(silent) {
			return errSilent
		}
		timer.Reset(min(silent.Sub(now), expiry.Sub(now), nextPing.Sub(now)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.hub.poked:
		case <-timer.C:
		}
		if needed, err := l.update(ctx); err != nil || !needed {
			return err
		}
	}
}

// deadlines tells when the connection counts as silent unless something arrives
// before, and when the next linger is over (or, if none is on, no earlier time).
func (l *link) deadlines() (silent, expiry time.Time) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	silent = l.heard.Add(2 * h.options.PingInterval)
	expiry = silent
	if e := h.idle.Front(); e != nil {
		expiry = e.Value.(*channel).idleSince.Add(h.options.Linger)
	}
	return silent, expiry
}

// update subscribes what is fresh, all in one command, and unsubscribes what is
// expired, all in one command; if nothing else is left it tells so instead.
func (l *link) update(ctx context.Context) (needed bool, err error) {
	h := l.hub
	h.mu.Lock()
	// A channel may be in both. Then the commands, in this order, leave it unsubscribed, as it should be.
	fresh, expired := h.fresh, h.expire(time.Now())
	h.fresh = nil
	for _, name := range fresh {
		l.awaited[name]++
	}
	for _, name := range expired {
		l.awaited[name]++
	}
	needed = len(h.channels) > 0
	h.mu.Unlock()

	if !needed {
		return false, nil // closing the connection says it all
	}
	if len(fresh) > 0 {
		err = l.write(ctx, func(ctx context.Context) error { return l.conn.Subscribe(ctx, fresh...) })
	}
	if err == nil && len(expired) > 0 { // without channels, UNSUBSCRIBE means all of them
		err = l.write(ctx, func(ctx context.Context) error { return l.conn.Unsubscribe(ctx, expired...) })
	}
	return true, err
}

// write gives the command, and the dial that it may bring about, no longer than silence is borne.
func (l *link) write(ctx context.Context, command func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*l.hub.options.PingInterval)
	defer cancel()
	return command(ctx)
}

// read is the reader: it hands out what arrives until the connection fails or is closed.
func (l *link) read() (err error) {
	defer l.hub.survive(&err)
	for {
		arrived, err := l.conn.Receive(ended)
		if err != nil {
			return err
		}
		if first := l.deliver(arrived); first && !l.outage.IsZero() {
			l.hub.log(slog.LevelInfo, "pubsub: connection restored", "after", time.Since(l.outage))
		}
	}
}

// deliver never waits for a listener. It tells whether this is the first that the connection brought.
func (l *link) deliver(arrived any) (first bool) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	first = !l.answered
	l.answered, l.heard = true, time.Now()

	switch m := arrived.(type) {
	case *redis.Message:
		if ch := h.channels[m.Channel]; ch != nil {
			for s := range ch.listeners {
				s.put(m.Payload)
			}
		}
	case *redis.Subscription:
		if l.awaited[m.Channel] > 1 {
			l.awaited[m.Channel]-- // a later command has had the last word
			break
		}
		delete(l.awaited, m.Channel)
		// After an UNSUBSCRIBE a channel can be there again, its SUBSCRIBE not yet written.
		if ch := h.channels[m.Channel]; ch != nil && m.Kind == "subscribe" {
			ch.confirmed = true
			for s := range ch.listeners {
				s.resubscribe()
			}
		}
	}
	return first
}

// forget takes back what the server confirmed on this connection, which is gone.
func (l *link) forget() {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	for _, ch := range l.hub.channels {
		ch.confirmed = false
	}
}
