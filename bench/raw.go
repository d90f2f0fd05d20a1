package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

var (
	//go:embed raw_lock.lua
	rawLockBody string
	//go:embed raw_unlock.lua
	rawUnlockBody string

	rawLock   = redis.NewScript(rawLockBody)
	rawUnlock = redis.NewScript(rawUnlockBody)
)

// raw returns a contender that only runs two scripts with go-redis. Its cost is a lower bound for the cost of
// a lock.
func raw() contender {
	return contender{
		name:   "raw",
		module: "github.com/redis/go-redis/v9",
		config: "two scripts that only take and release a lock in a hash, with a lease of 30 s, as a " +
			"lower bound",
		dial: func(to setup) (client, error) {
			rdb, err := dialRedis(to.redis[0])
			if err != nil {
				return nil, err
			}
			return rawClient{rdb, cmp.Or(to.lease, defaultLease)}, nil
		},
	}
}

type rawClient struct {
	rdb   *redis.Client
	lease time.Duration
}

func (c rawClient) mutex(name string) mutex {
	return &rawMutex{c.rdb, c.lease, []string{name}, uuid.NewString(), name + ":channel"}
}

func (c rawClient) close() error { return c.rdb.Close() }

type rawMutex struct {
	rdb     *redis.Client
	lease   time.Duration
	keys    []string
	owner   string
	channel string
}

func (m *rawMutex) lock(ctx context.Context) error {
	left, err := rawLock.Run(ctx, m.rdb, m.keys, m.owner, m.lease.Milliseconds()).Int64()
	if err == nil && left != -3 {
		return fmt.Errorf("held by another for %d ms", left)
	}
	return err
}

func (m *rawMutex) unlock(ctx context.Context) error {
	return rawUnlock.Run(ctx, m.rdb, m.keys, m.owner, m.channel).Err()
}

func (m *rawMutex) renew(ctx context.Context) error {
	ok, err := m.rdb.PExpire(ctx, m.keys[0], m.lease).Result()
	if err == nil && !ok {
		return errors.New("the lock is gone")
	}
	return err
}
