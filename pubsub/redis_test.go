package pubsub_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/internal/testing/testlock"
	"github.com/lockline/lockline/pubsub"
)

// overRedis runs a test in fake time with a hub that uses connections of go-redis.
func overRedis(t *testing.T, o pubsub.Options, test func(t *testing.T, w *testlock.Wire, h *pubsub.Hub)) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return w.Client.Subscribe(ctx) }, o)
		t.Cleanup(h.Close)
		test(t, w, h)
	})
}

func TestMessagesArriveFromRedisAlsoAfterItRestarts(t *testing.T) {
	overRedis(t, pubsub.Options{}, func(t *testing.T, w *testlock.Wire, h *pubsub.Hub) {
		a, b := h.Subscribe("a"), h.Subscribe("b")
		for range 3 {
			awaitResubscribed(t, a)
			awaitResubscribed(t, b)
			w.Publish("b", "to b")
			w.Publish("a", "to a")
			awaitMessage(t, a, "to a")
			awaitMessage(t, b, "to b")
			w.Restart()
		}
	})
}

func TestALingeringChannelLeavesRedisInTheEnd(t *testing.T) {
	overRedis(t, pubsub.Options{}, func(t *testing.T, w *testlock.Wire, h *pubsub.Hub) {
		stays, a := h.Subscribe("stays"), h.Subscribe("a")
		awaitResubscribed(t, stays)
		awaitResubscribed(t, a)
		a.Close()
		time.Sleep(linger + time.Millisecond)
		expect(t, "subscribed channels", len(w.PubSubChannels("*")), 1)
		w.Publish("stays", "1")
		awaitMessage(t, stays, "1")
	})
}

func TestCloseWhileRedisIsAwayLeavesNothing(t *testing.T) {
	overRedis(t, pubsub.Options{}, func(t *testing.T, w *testlock.Wire, h *pubsub.Hub) {
		awaitResubscribed(t, h.Subscribe("a"))
		w.Kill()
		h.Close() // the test fails if a goroutine is left
	})
}

// The hub calls Receive with a context that has ended, so that go-redis does not dial. Another version of
// go-redis may need something else.
func TestGoRedisDoesNotReconnectBehindTheHubsBack(t *testing.T) {
	testlock.Simulated(t, func(t *testing.T, w *testlock.Wire) {
		var conns, dials, forbidden atomic.Int32
		rdb := w.Net.Client(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if ctx.Err() != nil {
					forbidden.Add(1)
					return nil, ctx.Err()
				}
				dials.Add(1)
				return dial(ctx, network, addr)
			}
		})
		h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn {
			conns.Add(1)
			return rdb.Subscribe(ctx)
		}, pubsub.Options{PingInterval: time.Hour}) // because a ping may dial
		a := h.Subscribe("a")
		awaitResubscribed(t, a)
		for range 5 {
			w.Restart()
			awaitResubscribed(t, a)
		}
		h.Close()
		expect(t, "dials", dials.Load(), conns.Load())
		if forbidden.Load() == 0 {
			t.Error("PubSub.Receive did not try to dial: is the ended context still of use?")
		}
	})
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
	h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return rdb.Subscribe(ctx) },
		pubsub.Options{PingInterval: time.Hour})
	h.Subscribe("a")
	<-dialing
	h.Close()
	<-ended
}
