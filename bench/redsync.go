package main

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncLock returns a contender with these options. strategy describes how its waiters poll. The contender
// does not use WithFailFast. With that option, a failed try does not wait for its releases, so a late release
// can free a lock that the next try has taken.
func redsyncLock(name, strategy string, options ...redsync.Option) contender {
	options = append(options, redsync.WithTries(math.MaxInt32))
	return contender{
		name:   name,
		module: "github.com/go-redsync/redsync/v4",
		config: "an expiry of 8 s without renewal, no WithFailFast, WithTries without limit, and " + strategy,
		// The scripts of redsync call SET only with WithSetNXOnExtend, which is not used here.
		unscripted: []string{"set"},
		dial: func(to setup) (client, error) {
			c := &redsyncClient{options: slices.Clone(options)}
			var pools []redsyncredis.Pool
			for _, url := range to.redis {
				rdb, err := dialRedis(url)
				if err != nil {
					return nil, errors.Join(err, c.close())
				}
				c.rdbs = append(c.rdbs, rdb)
				pools = append(pools, goredis.NewPool(rdb))
			}
			c.rs = redsync.New(pools...)
			if to.lease > 0 {
				c.options = append(c.options, redsync.WithExpiry(to.lease))
			}
			return c, nil
		},
	}
}

func redsyncEager() contender {
	return redsyncLock("redsync", "WithRetryDelay(4 ms), as for redislock", redsync.WithRetryDelay(pollEach))
}

func redsyncDefault() contender {
	return redsyncLock("redsync-default", "the default retry delay, 50 to 250 ms at random")
}

type redsyncClient struct {
	rdbs    []*redis.Client
	rs      *redsync.Redsync
	options []redsync.Option
}

func (c *redsyncClient) mutex(name string) mutex {
	return redsyncMutex{c.rs.NewMutex(name, c.options...)}
}

func (c *redsyncClient) close() (err error) {
	for _, rdb := range c.rdbs {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

type redsyncMutex struct{ *redsync.Mutex }

func (m redsyncMutex) lock(ctx context.Context) error {
	return m.LockContext(ctx)
}

func (m redsyncMutex) unlock(ctx context.Context) error {
	ok, err := m.UnlockContext(ctx)
	if err == nil && !ok {
		return errors.New("redsync: the unlock failed")
	}
	if ok {
		return nil // err can only be the error of a minority of the servers
	}
	return err
}

func (m redsyncMutex) renew(ctx context.Context) error {
	ok, err := m.ExtendContext(ctx)
	if err == nil && !ok {
		return errors.New("redsync: the extension failed")
	}
	return err
}
