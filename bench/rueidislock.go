package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisLock returns a contender with the options of the README and of the benchmark of rueidislock.
func rueidisLock() contender {
	return contender{
		name:   "rueidislock",
		module: "github.com/redis/rueidis",
		config: "a Locker for each client, with KeyMajority 1 and NoLoopTracking, as its README recommends " +
			"for speed. The default validity is 5 s, and it is extended after half of this time",
		dial: func(to setup) (client, error) {
			opt, err := rueidis.ParseURL(to.redis[0])
			if err != nil {
				return nil, err
			}
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption:   opt,
				KeyMajority:    1,
				NoLoopTracking: true,
				KeyValidity:    to.lease, // 0 selects the default of rueidislock
			})
			if err != nil {
				return nil, err
			}
			return rueidisClient{locker}, nil
		},
	}
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

func (m *rueidisMutex) lock(ctx context.Context) (err error) {
	m.held, m.release, err = m.locker.WithContext(ctx, m.name)
	return err
}

func (m *rueidisMutex) unlock(context.Context) error {
	err := context.Cause(m.held) // not nil if the lock was lost
	m.release()                  // returns after Redis has replied
	if err != nil {
		return fmt.Errorf("rueidislock: the lock was lost: %w", err)
	}
	return nil
}
