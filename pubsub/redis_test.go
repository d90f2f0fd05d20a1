package pubsub_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/lockline/lockline/pubsub"
	"github.com/redis/go-redis/v9"
)

func newRedisHub(t *testing.T, m *miniredis.Miniredis, o pubsub.Options) *pubsub.Hub {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { rdb.Close() })
	h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return rdb.Subscribe(ctx) }, o)
	t.Cleanup(h.Close)
	return h
}

// await takes from s until it has what is wanted.
func await(t *testing.T, s *pubsub.Subscription, what string, wanted func(messages []string, resubscribed bool) bool) {
	t.Helper()
	for timeout := time.After(30 * time.Second); ; {
		select {
		case <-s.C():
			if wanted(s.Take()) {
				return
			}
		case <-timeout:
			t.Fatalf("not %s in time", what)
		}
	}
}

func awaitResubscribed(t *testing.T, s *pubsub.Subscription) {
	t.Helper()
	await(t, s, "resubscribed", func(_ []string, resubscribed bool) bool { return resubscribed })
}

func awaitMessage(t *testing.T, s *pubsub.Subscription, message string) {
	t.Helper()
	await(t, s, "told "+message, func(messages []string, _ bool) bool { return slices.Contains(messages, message) })
}

func TestMessagesArriveFromRedis(t *testing.T) {
	m := miniredis.RunT(t)
	h := newRedisHub(t, m, pubsub.Options{})
	a, b := h.Subscribe("a"), h.Subscribe("b")
	awaitResubscribed(t, a)
	awaitResubscribed(t, b)
	m.Publish("b", "to b")
	m.Publish("a", "to a")
	awaitMessage(t, a, "to a")
	awaitMessage(t, b, "to b")
}

func TestAHubOutlivesARestartOfRedis(t *testing.T) {
	m := miniredis.RunT(t)
	h := newRedisHub(t, m, pubsub.Options{})
	a, b := h.Subscribe("a"), h.Subscribe("b")
	awaitResubscribed(t, a)
	awaitResubscribed(t, b)
	for _, message := range []string{"first", "second"} {
		m.Close()
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
		awaitResubscribed(t, a)
		awaitResubscribed(t, b)
		m.Publish("a", message)
		awaitMessage(t, a, message)
	}
}

func TestALingeringChannelLeavesRedisInTheEnd(t *testing.T) {
	m := miniredis.RunT(t)
	h := newRedisHub(t, m, pubsub.Options{Linger: time.Millisecond})
	stays, a := h.Subscribe("stays"), h.Subscribe("a")
	awaitResubscribed(t, stays)
	awaitResubscribed(t, a)
	a.Close()
	for timeout := time.After(30 * time.Second); len(m.PubSubChannels("a")) > 0; {
		select {
		case <-time.After(time.Millisecond):
		case <-timeout:
			t.Fatal("still subscribed")
		}
	}
	m.Publish("stays", "1")
	awaitMessage(t, stays, "1")
}

func TestCloseWhileRedisIsAwayLeavesNothing(t *testing.T) {
	m := miniredis.RunT(t)
	h := newRedisHub(t, m, pubsub.Options{})
	awaitResubscribed(t, h.Subscribe("a"))
	m.Close()
	h.Close() // goleak has the last word
}

// This is what the ended context of Receive is for; a new go-redis may need something else.
func TestGoRedisDoesNotReconnectBehindTheHubsBack(t *testing.T) {
	m := miniredis.RunT(t)
	var conns, dials, forbidden atomic.Int32
	rdb := redis.NewClient(&redis.Options{
		Addr: m.Addr(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if ctx.Err() != nil {
				forbidden.Add(1)
			} else {
				dials.Add(1)
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	defer rdb.Close()
	h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn {
		conns.Add(1)
		return rdb.Subscribe(ctx)
	}, pubsub.Options{PingInterval: time.Hour}) // a ping that finds the connection broken may dial
	defer h.Close()

	a := h.Subscribe("a")
	awaitResubscribed(t, a)
	for range 5 {
		m.Close()
		if err := m.Restart(); err != nil {
			t.Fatal(err)
		}
		awaitResubscribed(t, a)
	}
	h.Close()
	expect(t, "dials", dials.Load(), conns.Load())
	if forbidden.Load() == 0 {
		t.Error("PubSub.Receive did not try to dial: is the ended context still of use?")
	}
}

func TestCloseEndsADialOfGoRedis(t *testing.T) {
	dialing, ended := make(chan struct{}), make(chan struct{})
	rdb := redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			close(dialing)
			<-ctx.Done()
			close(ended)
			return nil, ctx.Err()
		},
	})
	defer rdb.Close()
	h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return rdb.Subscribe(ctx) }, pubsub.Options{PingInterval: time.Hour})
	h.Subscribe("a")
	<-dialing
	h.Close()
	<-ended
}
