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

// listening runs a test in fake time with a Listener to the channel "x" of a server.
func listening(t *testing.T, test func(t *testing.T, l *Listener, s *server)) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{in: make(chan any, 10), closed: make(chan struct{})}
		h := pubsub.NewHub(func(context.Context) pubsub.Conn { return s }, pubsub.Options{})
		defer h.Close()
		l := Listen("x", h)
		defer l.Close()
		synctest.Wait() // for the confirmation
		test(t, l, s)
	})
}

func TestAConfirmedSubscriptionIsNews(t *testing.T) {
	listening(t, func(t *testing.T, l *Listener, _ *server) {
		if len(l.Ready) == 0 {
			t.Error("what happened before is not asked for")
		}
		if messages, gap := l.Take(); len(messages) > 0 || !gap {
			t.Errorf("%q, gap %v", messages, gap)
		}
	})
}

func TestTakeHasWhatHasArrived(t *testing.T) {
	listening(t, func(t *testing.T, l *Listener, s *server) {
		l.Take()
		if len(l.Ready) > 0 {
			t.Error("there is news after all was taken")
		}
		s.publish("x", "b", "c")
		s.publish("another", "e", "f")
		if len(l.Ready) == 0 {
			t.Error("no news")
		}
		if got, _ := l.Take(); !slices.Equal(got, []string{"b", "c"}) {
			t.Errorf("%q", got)
		}
		if got, _ := l.Take(); got != nil {
			t.Errorf("again: %q", got)
		}
	})
}

func TestAClosedListenerHearsNothing(t *testing.T) {
	listening(t, func(t *testing.T, l *Listener, s *server) {
		l.Take()
		l.Close()
		s.publish("x", "a")
		if got, _ := l.Take(); got != nil {
			t.Errorf("%q", got)
		}
	})
}
