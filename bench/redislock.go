package main

import (
	"cmp"
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// bsmRedislock returns a contender whose waiters poll with this retry strategy. The client that has just
// released the lock usually gets it again, because others poll later. So with longer intervals between polls
// there are more cycles, but fewer goroutines ever get the lock.
func bsmRedislock(name, strategy string, retry func() redislock.RetryStrategy) contender {
	return contender{
		name:   name,
		module: "github.com/bsm/redislock",
		config: "a TTL of 30 s without renewal, and " + strategy,
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.redis[0])
			if err != nil {
				return nil, err
			}
			return &redislockClient{rdb, redislock.New(rdb), cmp.Or(to.lease, defaultLease), retry}, nil
		},
	}
}

// redislockEager returns a contender whose waiters poll so often that no client starves. In trials with
// longer intervals, the least share was smaller, and with shorter intervals there were fewer cycles.
func redislockEager() contender {
	return bsmRedislock("redislock",
		"LinearBackoff(4 ms). Of all intervals at which no client starves, 4 ms has the most cycles",
		func() redislock.RetryStrategy { return redislock.LinearBackoff(pollEach) })
}

func redislockExponential() contender {
	return bsmRedislock("redislock-exp",
		"ExponentialBackoff(16 ms, 64 ms). The documentation of redislock recommends at least 16 ms",
		func() redislock.RetryStrategy {
			return redislock.ExponentialBackoff(16*time.Millisecond, 64*time.Millisecond)
		})
}

type redislockClient struct {
	rdb    *redis.Client
	locker *redislock.Client
	ttl    time.Duration
	retry  func() redislock.RetryStrategy
}

func (c *redislockClient) mutex(name string) mutex {
	return &redislockMutex{redislockClient: c, name: name}
}
func (c *redislockClient) close() error { return c.rdb.Close() }

type redislockMutex struct {
	*redislockClient
	name string
	held *redislock.Lock
}

func (m *redislockMutex) lock(ctx context.Context) (err error) {
	m.held, err = m.locker.Obtain(ctx, m.name, m.ttl, &redislock.Options{RetryStrategy: m.retry()})
	return err
}

func (m *redislockMutex) unlock(ctx context.Context) error { return m.held.Release(ctx) }

func (m *redislockMutex) renew(ctx context.Context) error { return m.held.Refresh(ctx, m.ttl, nil) }
