package pubsub_test

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockline/lockline/pubsub"
)

// reconnects returns options that count the calls of OnReconnect.
func reconnects(n *atomic.Int32) pubsub.Options {
	return pubsub.Options{OnReconnect: func() { n.Add(1) }}
}

func TestEachOutageIsReportedOnceAfterIt(t *testing.T) {
	var n atomic.Int32
	bubble(t, reconnects(&n), func(t *testing.T, s *server, h *pubsub.Hub) {
		var subs []*pubsub.Subscription
		for _, name := range strings.Fields("a b c d") {
			subs = append(subs, h.Subscribe(name))
		}
		time.Sleep(time.Minute)
		expect(t, "calls after the first connection", n.Load(), 0)
		for i := range int32(3) {
			s.set(func() { s.refuse = errCut })
			s.cutAll()
			time.Sleep(time.Minute)
			expect(t, "calls during an outage", n.Load(), i)
			s.set(func() { s.refuse = nil })
			time.Sleep(time.Minute)
			expect(t, "calls after it", n.Load(), i+1)
		}
		h.Subscribe("late")
		synctest.Wait()
		expect(t, "calls after a new channel", n.Load(), 3)

		for _, sub := range subs {
			expect(t, "a channel", heard(t, sub), "resubscribed")
		}
	})
}

func TestAConnectionThatWasSilentOrMisledIsReportedToo(t *testing.T) {
	var n atomic.Int32
	bubble(t, reconnects(&n), func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		heard(t, a)
		s.freeze()
		time.Sleep(2 * interval)
		synctest.Wait() // until the hub has noticed the silence
		s.set(func() { s.frozen = false })
		time.Sleep(time.Second)
		expect(t, "calls after silence", n.Load(), 1)
		time.Sleep(time.Second)
		a.Unheard(time.Now())
		time.Sleep(time.Second)
		expect(t, "calls after a connection to another server", n.Load(), 2)
	})
}

func TestAConnectionThatPanicsIsReportedOnceItIsReplaced(t *testing.T) {
	for _, in := range []string{"Ping", "Receive"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				s := &server{t: t}
				o := reconnects(&n)
				o.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
				h := pubsub.NewHub(func(ctx context.Context) pubsub.Conn {
					if s.dials() == 0 {
						return fragile{s.dial(ctx), in}
					}
					return s.dial(ctx)
				}, o)
				defer h.Close()
				h.Subscribe("a")
				time.Sleep(time.Minute)
				// If Receive panics, the connection has never confirmed a channel, so OnReconnect is not
				// called.
				expect(t, "calls", n.Load(), map[string]int32{"Ping": 1, "Receive": 0}[in])
			})
		})
	}
}

func TestAConnectionThatEndsWithItsLastChannelIsNoOutage(t *testing.T) {
	var n atomic.Int32
	bubble(t, reconnects(&n), func(t *testing.T, s *server, h *pubsub.Hub) {
		for range 3 {
			a := h.Subscribe("a")
			expect(t, "a", heard(t, a), "resubscribed")
			a.Close()
			time.Sleep(time.Minute)
		}
		expect(t, "connections", s.dials(), 3)
	})
	expect(t, "calls", n.Load(), 0)
}

func TestAConnectionThatNeverConfirmedAChannelIsNoOutage(t *testing.T) {
	var n atomic.Int32
	bubble(t, reconnects(&n), func(t *testing.T, s *server, h *pubsub.Hub) {
		s.set(func() { s.refuse = errCut })
		a := h.Subscribe("a")
		time.Sleep(time.Minute)
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		expect(t, "a", heard(t, a), "resubscribed")
	})
	expect(t, "calls", n.Load(), 0)
}

func TestAMasterOfShardedChannelsThatWasAwayIsReported(t *testing.T) {
	var n atomic.Int32
	sharded(t, 2, reconnects(&n), func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.place(1, "x", "y")
		for _, name := range strings.Fields("a b x y") {
			heard(t, h.Subscribe(name))
		}
		c.nodes[0].cutAll()
		time.Sleep(time.Second)
		expect(t, "calls after one master", n.Load(), 1)
		for _, node := range c.nodes {
			node.cutAll()
		}
		time.Sleep(time.Second)
		expect(t, "calls after both", n.Load(), 3)
		c.move("a", 1)
		time.Sleep(time.Second)
		expect(t, "calls after a slot moved", n.Load(), 3)
	})
}

func TestAMasterWhoseChannelsAreAtAnotherOneAfterItDiedIsReported(t *testing.T) {
	var n atomic.Int32
	sharded(t, 2, reconnects(&n), func(t *testing.T, c *cluster, h *pubsub.Hub) {
		c.place(1, "x")
		a, b, x := h.Subscribe("a"), h.Subscribe("b"), h.Subscribe("x")
		heard(t, x)
		c.nodes[0].set(func() { c.nodes[0].refuse = errCut })
		c.nodes[0].cutAll()
		time.Sleep(10 * time.Second)
		expect(t, "calls during the outage", n.Load(), 0)
		c.move("a", 1)
		c.move("b", 1)
		time.Sleep(2 * time.Second)
		heard(t, a)
		heard(t, b)
		expect(t, "calls after it", n.Load(), 1)
	})
}

func TestOnReconnectMayUseTheHubAndPanic(t *testing.T) {
	var h *pubsub.Hub
	calls := 0
	o := pubsub.Options{OnReconnect: func() {
		calls++
		h.Subscribe("another").Close()
		panic("on purpose")
	}}
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t}
		h = pubsub.NewHub(s.dial, o)
		defer h.Close()
		a := h.Subscribe("a")
		heard(t, a)
		for range 3 {
			s.cutAll()
			time.Sleep(time.Second)
			expect(t, "a", heard(t, a), "resubscribed")
		}
		s.publish("a", "1")
		expect(t, "a", heard(t, a), "1")
		expect(t, "calls", calls, 3)
	})
}

// If the connections of a client lead to two servers, listeners may call Unheard as soon as a connection has
// confirmed their channels. Each confirmation makes all listeners send a request. So the hub must pause
// between new connections.
func TestConnectionsThatAreAllMisledAreReplacedWithPauses(t *testing.T) {
	bubble(t, pubsub.Options{}, func(t *testing.T, s *server, h *pubsub.Hub) {
		a := h.Subscribe("a")
		for end := time.Now().Add(time.Minute); time.Now().Before(end); {
			<-a.C()
			a.Take()
			time.Sleep(time.Millisecond)
			a.Unheard(time.Now())
		}
		if n := s.dials(); n < 55 || n > 135 {
			t.Errorf("%d connections in a minute", n)
		}
		time.Sleep(10 * time.Second)
		s.cutAll()
		time.Sleep(20 * time.Millisecond) // the pause after a loss
		expect(t, "after a loss", heard(t, a), "resubscribed")
	})
}
