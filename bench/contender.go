package main

import (
	"cmp"
	"context"
	"runtime/debug"
	"strings"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/rlock"
	"github.com/redis/go-redis/v9"
)

// contender is a library that locks, set up as its own documentation recommends
// for speed, and for many that want one lock.
type contender struct {
	name   string
	module string // path of the module that brings it
	config string // what was chosen, for the reader

	// unfit says why it takes no part in a scenario, if it does not. May be nil.
	unfit func(scenario) string

	// dial makes one client, with connections of its own.
	dial func(url string) (client, error)
}

// client is what one process of a user would have.
type client interface {
	// mutex names a lock, for one goroutine.
	mutex(name string) mutex
	close() error
}

// mutex is used by one goroutine, and remembers what its Unlock needs.
type mutex interface {
	lock(ctx context.Context) error
	unlock(ctx context.Context) error
}

// contenders are all, for a server of this version.
func contenders(redisVersion string) []contender {
	return []contender{
		raw(),
		lockline("rlock", rlock.New),
		lockline("fairlock", fairlock.New),
		rueidisLock(redisVersion),
		redislockEager(),
		redislockExponential(),
		redsyncEager(),
		redsyncDefault(),
	}
}

func (c contender) called() string { return c.name }

// absence says why c takes no part in s; "" if it does.
func (c contender) absence(s scenario) string {
	if c.unfit == nil {
		return ""
	}
	return c.unfit(s)
}

func withWaiting(reason string) func(scenario) string {
	return func(s scenario) string {
		if s.contended() {
			return reason
		}
		return ""
	}
}

func withoutWaiting(reason string) func(scenario) string {
	return func(s scenario) string {
		if !s.contended() {
			return reason
		}
		return ""
	}
}

// dialRedis is what all contenders over go-redis begin with: its defaults.
func dialRedis(url string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opt), nil
}

// version is that of the module that was built in.
func (c contender) version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range info.Deps {
		if m.Path != c.module {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if v := strings.Trim(m.Version, "()"); v != "" && v != "devel" {
			return v
		}
		return "this tree"
	}
	return cmp.Or(info.Main.Version, "unknown")
}
