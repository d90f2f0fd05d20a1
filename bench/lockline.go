package main

import (
	"context"
	"errors"
	"slices"

	"github.com/lockline/lockline/rlock"
	"github.com/redis/go-redis/v9"
)

// lockline is a kind of lock of this module, over one session for each server.
func lockline(kind string, newLocker newLocker, chosen ...rlock.SessionOption) contender {
	return contender{
		name:     kind,
		module:   ownModule,
		config:   "a session for each client, all defaults (lease 30 s, renewed at a third of it); go-redis defaults",
		lacks:    lacks{majority: "it is a lock of one server; RedLock is for several"},
		renewals: 3,
		dial: func(to setup) (client, error) {
			c := &locklineClient{newLocker: newLocker}
			options := slices.Clone(chosen)
			if to.Lease > 0 {
				options = append(options, rlock.WithWatchdogTimeout(to.Lease))
			}
			for _, url := range to.Redis {
				rdb, err := dialRedis(url)
				if err != nil {
					return nil, errors.Join(err, c.close())
				}
				c.rdbs = append(c.rdbs, rdb)
				session, err := rlock.NewSession(rdb, options...)
				if err != nil {
					return nil, errors.Join(err, c.close())
				}
				c.sessions = append(c.sessions, session)
			}
			return c, nil
		},
	}
}

type newLocker func(sessions []*rlock.Session, name string) rlock.Locker

type locklineClient struct {
	rdbs      []*redis.Client
	sessions  []*rlock.Session
	newLocker newLocker
}

func (c *locklineClient) mutex(name string) mutex {
	return &locklineMutex{Locker: c.newLocker(c.sessions, name)}
}

func (c *locklineClient) close() (err error) {
	for _, s := range c.sessions {
		err = errors.Join(err, s.Close())
	}
	for _, rdb := range c.rdbs {
		err = errors.Join(err, rdb.Close())
	}
	return err
}

type locklineMutex struct {
	rlock.Locker
	holds []*rlock.Hold
}

func (m *locklineMutex) lock(ctx context.Context) (context.Context, error) {
	ctx, hold, err := m.Lock(ctx)
	if err == nil {
		m.holds = append(m.holds, hold)
	}
	return ctx, err
}

func (m *locklineMutex) unlock(ctx context.Context) error {
	last := len(m.holds) - 1
	hold := m.holds[last]
	m.holds = m.holds[:last]
	return hold.Unlock(ctx)
}
