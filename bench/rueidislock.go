package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisLock is set up as in the README of rueidislock, also in the benchmark there.
func rueidisLock(at site) contender {
	noLoop := atLeast(at.version, 7, 0, 5)
	c := contender{
		name:   "rueidislock",
		module: "github.com/redis/rueidis",
		config: fmt.Sprintf("a Locker for each client; KeyMajority 1, NoLoopTracking %v, as its README recommends for speed, else defaults (validity 5 s, extended at half of it)", noLoop),
		lacks: lacks{
			reentrancy: notReentrant,
			majority:   "a Locker has one server or Cluster; its majority is of keys there",
		},
		renewals: 2,
		dial: func(to setup) (client, error) {
			opt, err := rueidis.ParseURL(to.Redis[0])
			if err != nil {
				return nil, err
			}
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption:   opt,
				KeyMajority:    1,
				NoLoopTracking: noLoop,
				KeyValidity:    to.Lease, // 0: the default
			})
			if err != nil {
				return nil, err
			}
			return rueidisClient{locker}, nil
		},
	}
	if at.embedded {
		c.lacks = c.lacks.with(oneServer, "the embedded server has no CLIENT TRACKING")
	}
	return c
}

// atLeast reports whether version is not before major.minor.patch.
func atLeast(version string, major, minor, patch int) bool {
	var a, b, c int
	_, _ = fmt.Sscanf(version, "%d.%d.%d", &a, &b, &c) // what is missing is 0
	switch {
	case a != major:
		return a > major
	case b != minor:
		return b > minor
	}
	return c >= patch
}

type rueidisClient struct{ rueidislock.Locker }

func (c rueidisClient) mutex(name string) mutex { return &rueidisMutex{locker: c.Locker, name: name} }

func (c rueidisClient) close() error {
	c.Close()
	return nil
}

type rueidisMutex struct {
	locker  rueidislock.Locker
	name    string
	held    context.Context
	release context.CancelFunc
}

func (m *rueidisMutex) lock(ctx context.Context) (_ context.Context, err error) {
	m.held, m.release, err = m.locker.WithContext(ctx, m.name)
	return ctx, err
}

func (m *rueidisMutex) unlock(context.Context) error {
	err := context.Cause(m.held) // it ends when the lock is lost
	m.release()                  // returns when Redis has answered
	if err != nil {
		return fmt.Errorf("rueidislock: the lock was lost: %w", err)
	}
	return nil
}
