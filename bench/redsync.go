package main

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func redsyncLock(name, strategy string, options ...redsync.Option) contender {
	options = append(options, redsync.WithTries(math.MaxInt32))
	return contender{
		name:   name,
		module: "github.com/go-redsync/redsync/v4",
		config: "one pool (goredis/v9), expiry 8 s, without renewal; WithTries without limit; " + strategy + "; go-redis defaults",
		dial: func(url string) (client, error) {
			rdb, err := dialRedis(url)
			if err != nil {
				return nil, err
			}
			return &redsyncClient{rdb, redsync.New(goredis.NewPool(rdb)), options}, nil
		},
	}
}

func redsyncEager() contender {
	return redsyncLock("redsync", "WithRetryDelay(4 ms), as for redislock", redsync.WithRetryDelay(4*time.Millisecond))
}

func redsyncDefault() contender {
	c := redsyncLock("redsync-default", "retry delay 50 to 250 ms at random, its default")
	c.unfit = withoutWaiting("as redsync where nobody waits")
	return c
}

type redsyncClient struct {
	rdb     *redis.Client
	rs      *redsync.Redsync
	options []redsync.Option
}

func (c *redsyncClient) mutex(name string) mutex {
	return redsyncMutex{c.rs.NewMutex(name, c.options...)}
}
func (c *redsyncClient) close() error { return c.rdb.Close() }

type redsyncMutex struct{ *redsync.Mutex }

func (m redsyncMutex) lock(ctx context.Context) error { return m.LockContext(ctx) }

func (m redsyncMutex) unlock(ctx context.Context) error {
	ok, err := m.UnlockContext(ctx)
	if err == nil && !ok {
		return errors.New("redsync: the unlock failed")
	}
	return err
}
