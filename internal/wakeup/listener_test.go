package wakeup

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/lockline/lockline/pubsub"
)

// server is one server as its hub sees it: a connection that confirms each command.
type server struct {
	in     chan any
	closed chan struct{}
}

func (s *server) Subscribe(_ context.Context, channels ...string) error {
	for _, c := range channels {
		s.in <- &redis.Subscription{Kind: "subscribe", Channel: c}
	}
	return nil
}

func (s *server) Unsubscribe(context.Context, ...string) error { return nil }

func (s *server) Ping(context.Context, ...string) error {
	s.in <- &redis.Pong{}
	return nil
}

func (s *server) Receive(context.Context) (any, error) {
	select {
	case m := <-s.in:
		return m, nil
	case <-s.closed:
		return nil, redis.ErrClosed
	}
}

func (s *server) Close() error {
	close(s.closed)
	return nil
}

// publish sends messages on a channel, and waits until they have arrived.
func (s *server) publish(channel string, messages ...string) {
	for _, m := range messages {
		s.in <- &redis.Message{Channel: channel, Payload: m}
	}
	synctest.Wait()
}

// listening runs a test in fake time with a Listener to the channel "x" of so many servers.
func listening(t *testing.T, n int, test func(t *testing.T, l *Listener, servers []*server)) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*server
		var hubs []*pubsub.Hub
		for range n {
			s := &server{in: make(chan any, 10), closed: make(chan struct{})}
			h := pubsub.NewHub(func(context.Context) pubsub.Conn { return s }, pubsub.Options{})
			defer h.Close()
			servers, hubs = append(servers, s), append(hubs, h)
		}
		l := Listen("x", hubs...)
		defer l.Close()
		synctest.Wait() // for the confirmations
		test(t, l, servers)
	})
}

func TestAConfirmedSubscriptionIsNews(t *testing.T) {
	listening(t, 1, func(t *testing.T, l *Listener, _ []*server) {
		if len(l.Ready) == 0 {
			t.Error("what happened before is not asked for")
		}
	})
}

func TestTakeHasTheMessagesOfTheServerThatHadTheMost(t *testing.T) {
	listening(t, 3, func(t *testing.T, l *Listener, servers []*server) {
		l.Take()
		if len(l.Ready) > 0 {
			t.Error("there is news after all was taken")
		}
		servers[0].publish("x", "a")
		servers[1].publish("x", "b", "c")
		servers[2].publish("x", "d")
		servers[2].publish("another", "e", "f")
		if len(l.Ready) == 0 {
			t.Error("no news")
		}
		if got := l.Take(); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("%q", got)
		}
		if got := l.Take(); got != nil {
			t.Errorf("again: %q", got)
		}
	})
}

func TestAClosedListenerHearsNothing(t *testing.T) {
	listening(t, 2, func(t *testing.T, l *Listener, servers []*server) {
		l.Take()
		l.Close()
		for _, s := range servers {
			s.publish("x", "a")
		}
		if got := l.Take(); got != nil {
			t.Errorf("%q", got)
		}
	})
}

func TestWhatArrivesWhileOthersAreLookedAtIsNews(t *testing.T) {
	listening(t, 3, func(t *testing.T, l *Listener, servers []*server) {
		l.Take()
		servers[2].publish("x", "a")
		l.Each(func(i int, _ []string, _ bool) {
			if i == 0 { // whose own mailbox is not looked at again
				servers[0].publish("x", "b")
			}
		})
		if len(l.Ready) == 0 {
			t.Error("it is slept through")
		}
		if got := l.Take(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("%q", got)
		}
	})
}
