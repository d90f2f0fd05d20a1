package main

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// contender is a library that locks, set up as its own documentation recommends
// for speed, and for many that want one lock.
type contender struct {
	name   string
	module string // path of the module that brings it
	config string // what was chosen, for the reader

	// unscripted are the commands that clients send as such, and no script of theirs calls.
	unscripted []string

	// dial makes one client, with connections of its own.
	dial func(setup) (client, error)

	// cycle is how it locks, runs inside and unlocks, if not by the mutex's lock and unlock.
	cycle func(ctx context.Context, m mutex, inside func()) error
}

// setup is what a client is told.
type setup struct {
	redis []string      // URLs: one, or those of a majority
	lease time.Duration // 0: as the contender's config says
}

// client is what one process of a user would have.
type client interface {
	// mutex names a lock, for one goroutine.
	mutex(name string) mutex
	close() error
}

// mutex is used by one goroutine, and remembers what its unlock needs.
type mutex interface {
	lock(ctx context.Context) error
	unlock(ctx context.Context) error
}

// defaultLease is that of the contenders that leave it to the user.
const defaultLease = 30 * time.Second

var contenders = slices.Concat(
	[]contender{raw()},
	idioms,
	locklines(),
	[]contender{rueidisLock(), redislockEager(), redislockExponential(), redsyncEager(), redsyncDefault()},
	[]contender{redislockKeys(), zsetPoll(), counterPoll(), counterPubSub()},
)

const ownModule = "github.com/lockline/lockline"

// ours says that it is of this module.
func (c contender) ours() bool { return c.module == ownModule }

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
