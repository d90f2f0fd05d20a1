package main

import (
	"cmp"
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// bsmRedislock waits as the strategy says. Its polls leave the lock to the client that has
// just released it: the longer the strategy's intervals, the more cycles, and the
// fewer goroutines that have any.
func bsmRedislock(name, strategy string, retry func() redislock.RetryStrategy) contender {
	return contender{
		name:   name,
		module: "github.com/bsm/redislock",
		config: "TTL 30 s, without renewal; " + strategy + "; go-redis defaults",
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.redis[0])
			if err != nil {
				return nil, err
			}
			return &redislockClient{rdb, redislock.New(rdb), cmp.Or(to.lease, defaultLease), retry}, nil
		},
	}
}

// redislockEager polls so often that no client starves; longer and shorter intervals
// gave fewer cycles or smaller least shares.
func redislockEager() contender {
	return bsmRedislock("redislock",
		"LinearBackoff(4 ms), the interval with the most cycles of those at which no client starves",
		func() redislock.RetryStrategy { return redislock.LinearBackoff(pollEach) })
}

func redislockExponential() contender {
	return bsmRedislock("redislock-exp",
		"ExponentialBackoff(16 ms, 64 ms), 16 ms being the least that its documentation recommends",
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
