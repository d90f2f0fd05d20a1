package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockline/lockline/latch"
	"github.com/redis/go-redis/v9"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

// latches are the contenders that have latches.
func latches() []contender {
	return []contender{locklineLatch(), counterPoll(), counterPubSub(), etcdBarrier()}
}

func locklineLatch() contender {
	c := lockline("latch", nil)
	dial := c.dial
	c.dial = func(to setup) (client, error) {
		inner, err := dial(to)
		if err != nil {
			return nil, err
		}
		return locklineLatches{inner.(*locklineClient)}, nil
	}
	return c.onlyFor(besides(aLatch))
}

type locklineLatches struct{ *locklineClient }

func (c locklineLatches) latch(name string) latched {
	return locklineLatched{latch.New(c.sessions[0], name)}
}

type locklineLatched struct{ *latch.Latch }

func (l locklineLatched) set(ctx context.Context, n int) error {
	set, err := l.TrySet(ctx, n)
	if err == nil && !set {
		err = errors.New("it is set already")
	}
	return err
}

func (l locklineLatched) countDown(ctx context.Context) error { return l.CountDown(ctx) }
func (l locklineLatched) wait(ctx context.Context) error      { return l.Wait(ctx) }

const lookEach = 10 * time.Millisecond

// counterPoll is a latch as users write it themselves.
func counterPoll() contender {
	return contender{
		name:       "counter-poll",
		module:     "github.com/redis/go-redis/v9",
		config:     fmt.Sprintf("a counter: SET, DECR, and a GET of each waiter each %v; go-redis defaults", lookEach),
		lacks:      besides(aLatch),
		unscripted: []string{"set", "get", "decr"},
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.Redis[0])
			return &counterClient{rdb: rdb}, err
		},
	}
}

// counterPubSub is that with a message in place of the polls.
func counterPubSub() contender {
	c := counterPoll()
	c.name = "counter-pubsub"
	c.config = "a counter: SET, DECR, and PUBLISH at 0; each waiter subscribes, which opens a connection, looks once by GET, and waits for the message, which a broken connection loses. go-redis defaults. What opens connections does not count as requests"
	c.unscripted = append(c.unscripted, "publish")
	c.dial = func(to setup) (client, error) {
		rdb, err := dialRedis(to.Redis[0])
		return &counterClient{rdb: rdb, publish: true}, err
	}
	return c
}

type counterClient struct {
	noClient
	rdb     *redis.Client
	publish bool
}

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

// etcdBarrier is of etcd's experimental recipes, and the nearest to a latch that they have.
func etcdBarrier() contender {
	c := etcdMutex()
	c.name, c.lacks = "etcd-barrier", besides(aLatch)
	c.config = "recipe.Barrier of etcd's experimental recipes: it has no count, so only the last count-down is a request; clients and server as of etcd"
	dial := c.dial
	c.dial = func(to setup) (client, error) {
		inner, err := dial(to)
		if err != nil {
			return nil, err
		}
		return etcdBarriers{inner.(*etcdClient)}, nil
	}
	return c
}

type etcdBarriers struct{ *etcdClient }

func (c etcdBarriers) latch(name string) latched {
	return &etcdLatch{client: c.etcdClient, Barrier: recipe.NewBarrier(c.Client, name)}
}

type etcdLatch struct {
	client *etcdClient
	count  atomic.Int64 // kept by who counts, since the barrier has none
	*recipe.Barrier
}

func (l *etcdLatch) set(_ context.Context, n int) error {
	l.count.Store(int64(n))
	return l.Hold()
}

func (l *etcdLatch) countDown(context.Context) error {
	if l.count.Add(-1) > 0 {
		return nil
	}
	return l.Release()
}

// wait closes the client if ctx ends, because the recipes know no context.
func (l *etcdLatch) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = l.client.Client.Close() })()
	return errors.Join(l.Wait(), context.Cause(ctx))
}
