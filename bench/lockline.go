package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/latch"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/lockline/lockline/rwlock"
	"github.com/lockline/lockline/semaphore"
	"github.com/redis/go-redis/v9"
)

// lockline returns a contender whose locks are of one kind of this module. newLocker makes these locks. Each
// client has one session for each server.
func lockline(name, config string, newLocker newLocker, options ...rlock.SessionOption) contender {
	return contender{
		name:   name,
		module: ownModule,
		config: config,
		dial: func(to setup) (client, error) {
			c := &locklineClient{newLocker: newLocker}
			options := slices.Clone(options)
			if to.lease > 0 {
				options = append(options, rlock.WithWatchdogTimeout(to.lease))
			}
			for _, url := range to.redis {
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

func locklines() []contender {
	return []contender{
		lockline("rlock-linger", "as rlock, but with rlock.WithLinger(time.Second)",
			func(s []*rlock.Session, name string) rlock.Locker { return rlock.New(s[0], name) },
			rlock.WithLinger(time.Second)),
		lockline("fairlock", "fairlock.New", func(s []*rlock.Session, name string) rlock.Locker {
			return fairlock.New(s[0], name)
		}),
		lockline("multilock", "a MultiLock of two locks on one server",
			func(s []*rlock.Session, name string) rlock.Locker {
				return multilock.New(rlock.New(s[0], name+":a"), rlock.New(s[0], name+":b"))
			}),
		lockline("redlock", "multilock.NewQuorum and Quorum.New",
			func(s []*rlock.Session, name string) rlock.Locker {
				q, err := multilock.NewQuorum(s)
				if err != nil {
					panic(err)
				}
				return q.New(name)
			}),
		lockline("rwlock", "rwlock.New", func(s []*rlock.Session, name string) rlock.Locker {
			return rwlock.New(s[0], name)
		}),
		lockline("semaphore", "semaphore.New", func(s []*rlock.Session, name string) rlock.Locker {
			return semaphore.New(s[0], name, permits).Locker(1)
		}),
		lockline("latch", "latch.New", nil),
	}
}

// idioms are the ways in which users write a cycle of an rlock. The first idiom takes part in all scenarios
// with an rlock.
var idioms = []contender{
	idiom("rlock", "ctx, hold, err := m.Lock(ctx), then hold.Unlock(ctx)", nil),
	idiom("rlock-outer", "held, hold, err := m.Lock(ctx), then hold.Unlock(ctx) with the outer context",
		func(ctx context.Context, m *rlock.Mutex, inside func()) error {
			_, hold, err := m.Lock(ctx)
			if err != nil {
				return err
			}
			inside()
			return hold.Unlock(ctx)
		}),
	idiom("rlock-do", "m.Do(ctx, f)",
		func(ctx context.Context, m *rlock.Mutex, inside func()) error {
			return m.Do(ctx, func(context.Context) error {
				inside()
				return nil
			})
		}),
	idiom("rlock-deadline", "as rlock, but with a context.WithTimeout for each call",
		func(ctx context.Context, m *rlock.Mutex, inside func()) error {
			waiting, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, hold, err := m.Lock(waiting)
			if err != nil {
				return err
			}
			inside()
			unlocking, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return hold.Unlock(unlocking)
		}),
	idiom("rlock-at-most", "as rlock, but with m.Lock(ctx, rlock.WaitAtMost(time.Minute))",
		func(ctx context.Context, m *rlock.Mutex, inside func()) error {
			ctx, hold, err := m.Lock(ctx, rlock.WaitAtMost(time.Minute))
			if err != nil {
				return err
			}
			inside()
			return hold.Unlock(ctx)
		}),
	idiom("rlock-try", "as rlock, but with m.TryLock(ctx)",
		func(ctx context.Context, m *rlock.Mutex, inside func()) error {
			ctx, hold, err := m.TryLock(ctx)
			if err != nil {
				return err
			}
			inside()
			return hold.Unlock(ctx)
		}),
}

func idiom(
	name, config string, cycle func(ctx context.Context, m *rlock.Mutex, inside func()) error,
) contender {
	c := lockline(name, config, func(s []*rlock.Session, name string) rlock.Locker {
		return rlock.New(s[0], name)
	})
	if cycle != nil {
		c.cycle = func(ctx context.Context, m mutex, inside func()) error {
			return cycle(ctx, m.(*locklineMutex).Locker.(*rlock.Mutex), inside)
		}
	}
	return c
}

func idiomNames() (all []string) {
	for _, c := range idioms[1:] {
		all = append(all, c.name)
	}
	return all
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

func (c *locklineClient) latch(name string) latched {
	return locklineLatch{latch.New(c.sessions[0], name)}
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
	held context.Context
	hold *rlock.Hold
}

func (m *locklineMutex) lock(ctx context.Context) (err error) {
	m.held, m.hold, err = m.Lock(ctx)
	return err
}

func (m *locklineMutex) unlock(context.Context) error { return m.hold.Unlock(m.held) }

// reader returns a mutex that takes the read lock, for the same goroutine. It returns nil if the kind of lock
// has no readers.
func (m *locklineMutex) reader() mutex {
	if l, ok := m.Locker.(interface{ RLocker() rlock.Locker }); ok {
		return &locklineMutex{Locker: l.RLocker()}
	}
	return nil
}

type locklineLatch struct{ *latch.Latch }

func (l locklineLatch) set(ctx context.Context, n int) error {
	set, err := l.TrySet(ctx, n)
	if err == nil && !set {
		err = errors.New("it is set already")
	}
	return err
}

func (l locklineLatch) countDown(ctx context.Context) error { return l.CountDown(ctx) }
func (l locklineLatch) wait(ctx context.Context) error      { return l.Wait(ctx) }
