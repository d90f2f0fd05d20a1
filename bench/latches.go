package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// lookEach is the interval at which waiters of counterPoll poll.
const lookEach = 10 * time.Millisecond

// counterPoll returns a contender whose latch is a counter that waiters poll. Many users write such a latch
// themselves.
func counterPoll() contender {
	return contender{
		name:   "counter-poll",
		module: "github.com/redis/go-redis/v9",
		config: fmt.Sprintf("SET and DECR change a counter, and each waiter sends a GET every %v",
			lookEach),
		unscripted: []string{"set", "get", "decr"},
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.redis[0])
			return &counterClient{rdb: rdb}, err
		},
	}
}

// counterPubSub returns the same contender as counterPoll, but its waiters get a message instead of polling.
func counterPubSub() contender {
	c := counterPoll()
	c.name = "counter-pubsub"
	c.config = "SET and DECR change a counter, and PUBLISH sends a message when it is 0. " +
		"Each waiter opens a connection to subscribe, calls GET once, and waits for the message. A broken " +
		"connection loses this message"
	c.unscripted = append(c.unscripted, "publish")
	c.dial = func(to setup) (client, error) {
		rdb, err := dialRedis(to.redis[0])
		return &counterClient{rdb: rdb, publish: true}, err
	}
	return c
}

type counterClient struct {
	rdb     *redis.Client
	publish bool
}

func (c *counterClient) mutex(string) mutex        { return nil } // unused, because latches need no mutex
func (c *counterClient) close() error              { return c.rdb.Close() }
func (c *counterClient) latch(name string) latched { return &counterLatch{c, name} }

type counterLatch struct {
	*counterClient
	name string
}

func (l *counterLatch) set(ctx context.Context, n int) error {
	return l.rdb.Set(ctx, l.name, n, time.Hour).Err()
}

func (l *counterLatch) countDown(ctx context.Context) error {
	n, err := l.rdb.Decr(ctx, l.name).Result()
	if err == nil && n == 0 && l.publish {
		err = l.rdb.Publish(ctx, l.name, "").Err()
	}
	return err
}

func (l *counterLatch) over(ctx context.Context) (bool, error) {
	n, err := l.rdb.Get(ctx, l.name).Int()
	return n <= 0, err
}

func (l *counterLatch) wait(ctx context.Context) (err error) {
	if l.publish {
		sub := l.rdb.Subscribe(ctx, l.name)
		defer func() { err = errors.Join(err, sub.Close()) }()
		if _, err := sub.Receive(ctx); err != nil {
			return err
		}
		if over, err := l.over(ctx); over || err != nil {
			return err
		}
		_, err = sub.ReceiveMessage(ctx)
		return err
	}
	for {
		if over, err := l.over(ctx); over || err != nil {
			return err
		}
		if err := pause(ctx, lookEach); err != nil {
			return err
		}
	}
}
