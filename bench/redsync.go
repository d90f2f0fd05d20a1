package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func redsyncLock(name, strategy string, options ...redsync.Option) contender {
	options = append(options, redsync.WithTries(math.MaxInt32))
	return contender{
		name:   name,
		module: "github.com/go-redsync/redsync/v4",
		config: "a pool (goredis/v9) for each server, expiry 8 s, without renewal, WithTries without limit, " + strategy +
			". Over several servers without WithFailFast, which does not wait for the releases of a failed try, so that they can meet what the next one takes. go-redis defaults. Held: a goroutine for each lock calls Extend at a third of the expiry",
		lacks:    lacks{reentrancy: notReentrant},
		renewals: 3,
		// The scripts are without SET unless WithSetNXOnExtend asks for it.
		unscripted: []string{"set"},
		dial: func(to setup) (client, error) {
			c := &redsyncClient{options: slices.Clone(options)}
			var pools []redsyncredis.Pool
			for _, url := range to.Redis {
				rdb, err := dialRedis(url)
				if err != nil {
					return nil, errors.Join(err, c.close())
				}
				c.rdbs = append(c.rdbs, rdb)
				pools = append(pools, goredis.NewPool(rdb))
			}
			c.rs = redsync.New(pools...)
			if to.Lease > 0 {
				c.options = append(c.options, redsync.WithExpiry(to.Lease))
			}
			return c, nil
		},
	}
}

func redsyncEager() contender {
	return redsyncLock("redsync", "WithRetryDelay(4 ms), as for redislock", redsync.WithRetryDelay(4*time.Millisecond)).lacking(crowding, fewOnly)
}

func redsyncDefault() contender {
	return redsyncLock("redsync-default", "retry delay 50 to 250 ms at random, its default").lacking(noWaiting, "as redsync where none waits")
}

// redsyncExponential waits as redislockExponential does.
func redsyncExponential() contender {
	const crowdsOnly = "it takes part in the crowds; redsync and redsync-default are for fewer clients"
	return redsyncLock("redsync-exp", "WithRetryDelayFunc, 16 ms that double to 64 ms, as for redislock-exp",
		redsync.WithRetryDelayFunc(func(tries int) time.Duration { return min(8*time.Millisecond<<min(tries, 3), 64*time.Millisecond) })).
		lacking(noWaiting, crowdsOnly).lacking(waiting, crowdsOnly).lacking(aTurn, crowdsOnly)
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

func (m redsyncMutex) lock(ctx context.Context) (context.Context, error) {
	return ctx, m.LockContext(ctx)
}

func (m redsyncMutex) unlock(ctx context.Context) error {
	ok, err := m.UnlockContext(ctx)
	if err == nil && !ok {
		return errors.New("redsync: the unlock failed")
	}
	if ok {
		return nil // an error is then of a minority of the servers
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
