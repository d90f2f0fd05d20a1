package main

import (
	"context"
	"errors"

	"github.com/lockline/lockline/rlock"
	"github.com/redis/go-redis/v9"
)

// lockline is a kind of lock of this module.
func lockline(kind string, newMutex newMutex) contender {
	return contender{
		name:   kind,
		module: "github.com/lockline/lockline",
		config: "a session for each client, all defaults; go-redis defaults",
		dial: func(url string) (client, error) {
			rdb, err := dialRedis(url)
			if err != nil {
				return nil, err
			}
			session, err := rlock.NewSession(rdb)
			if err != nil {
				return nil, errors.Join(err, rdb.Close())
			}
			return &locklineClient{rdb, session, newMutex}, nil
		},
	}
}

type newMutex func(*rlock.Session, string, ...rlock.Option) *rlock.Mutex

type locklineClient struct {
	rdb      *redis.Client
	session  *rlock.Session
	newMutex newMutex
}

func (c *locklineClient) mutex(name string) mutex {
	return &locklineMutex{Mutex: c.newMutex(c.session, name)}
}

func (c *locklineClient) close() error { return errors.Join(c.session.Close(), c.rdb.Close()) }

type locklineMutex struct {
	*rlock.Mutex
	hold *rlock.Hold
}

func (m *locklineMutex) lock(ctx context.Context) (err error) {
	_, m.hold, err = m.Lock(ctx)
	return err
}

func (m *locklineMutex) unlock(ctx context.Context) error { return m.hold.Unlock(ctx) }
