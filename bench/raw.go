package main

import (
	"context"
	_ "embed"
	"fmt"

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

// raw is the floor: two scripts over go-redis, and nothing around them.
func raw() contender {
	return contender{
		name:   "raw",
		module: "github.com/redis/go-redis/v9",
		config: "the floor: two scripts of a hash lock, and nothing around them; go-redis defaults",
		unfit:  withWaiting("it does not wait, and its polls would only show how often it polls"),
		dial: func(url string) (client, error) {
			rdb, err := dialRedis(url)
			if err != nil {
				return nil, err
			}
			return rawClient{rdb}, nil
		},
	}
}

type rawClient struct{ rdb *redis.Client }

func (c rawClient) mutex(name string) mutex {
	return &rawMutex{c.rdb, []string{name}, uuid.NewString(), name + ":channel"}
}

func (c rawClient) close() error { return c.rdb.Close() }

type rawMutex struct {
	rdb     *redis.Client
	keys    []string
	owner   string
	channel string
}

func (m *rawMutex) lock(ctx context.Context) error {
	left, err := rawLock.Run(ctx, m.rdb, m.keys, m.owner, 30000).Int64()
	if err == nil && left != -3 {
		return fmt.Errorf("held by another for %d ms", left)
	}
	return err
}

func (m *rawMutex) unlock(ctx context.Context) error {
	return rawUnlock.Run(ctx, m.rdb, m.keys, m.owner, m.channel).Err()
}
