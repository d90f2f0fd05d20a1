package pubsub_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/lockline/lockline/pubsub"
	"github.com/redis/go-redis/v9"
)

func ExampleNewHub() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	hub := pubsub.NewHub(func(ctx context.Context) pubsub.Conn { return rdb.Subscribe(ctx) },
		pubsub.Options{})
	defer hub.Close()

	s := hub.Subscribe("orders")
	defer s.Close()
	for range s.C() { // a real waiter would also watch its context here
		messages, resubscribed := s.Take()
		if resubscribed {
			fmt.Println("subscribed: read the state, because earlier messages are not known")
			rdb.Publish(context.Background(), "orders", "ready")
		}
		if len(messages) > 0 {
			fmt.Println("woken:", messages)
			return
		}
	}
	// Output:
	// subscribed: read the state, because earlier messages are not known
	// woken: [ready]
}
