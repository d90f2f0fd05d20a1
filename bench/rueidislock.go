package main

import (
	"context"
	"fmt"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidisLock is set up as in the README of rueidislock, also in the benchmark there.
func rueidisLock(redisVersion string) contender {
	noLoop := atLeast(redisVersion, 7, 0, 5)
	return contender{
		name:   "rueidislock",
		module: "github.com/redis/rueidis",
		config: fmt.Sprintf("a Locker for each client; KeyMajority 1, NoLoopTracking %v, as its README recommends for speed; else defaults (validity 5 s, extended at half of it)", noLoop),
		dial: func(url string) (client, error) {
			opt, err := rueidis.ParseURL(url)
			if err != nil {
				return nil, err
			}
			locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
				ClientOption:   opt,
				KeyMajority:    1,
				NoLoopTracking: noLoop,
			})
			if err != nil {
				return nil, err
			}
			return rueidisClient{locker}, nil
		},
	}
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
	release context.CancelFunc
}

func (m *rueidisMutex) lock(ctx context.Context) (err error) {
	_, m.release, err = m.locker.WithContext(ctx, m.name)
	return err
}

func (m *rueidisMutex) unlock(context.Context) error {
	m.release() // returns when Redis has answered
	return nil
}
