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

// A contender is a library with one set of options. The documentation of the library recommends these options
// for speed, or for many clients that want one lock.
type contender struct {
	name   string
	module string // path of the library's module
	config string // description of the options on the page

	// unscripted has commands that the contender's clients send, but its scripts do not call. The commands of
	// neverScripted are not repeated here.
	unscripted []string

	// dial makes one client, with connections of its own.
	dial func(setup) (client, error)

	// cycle locks, calls inside and unlocks. If cycle is nil, lockAndUnlock takes its place.
	cycle func(ctx context.Context, m mutex, inside func()) error
}

// A setup has the settings of a client that depend on the scenario.
type setup struct {
	redis []string      // URLs of the servers; several for locks on a majority of servers
	lease time.Duration // lease of the locks; 0: the default of the contender
}

// A client has the connections and sessions that one process of a user would have.
type client interface {
	// mutex returns a lock with this name, for one goroutine.
	mutex(name string) mutex
	close() error
}

// A mutex is a lock for one goroutine. It remembers its hold between lock and unlock.
type mutex interface {
	lock(ctx context.Context) error
	unlock(ctx context.Context) error
}

// defaultLease is the lease for contenders that have no default of their own.
const defaultLease = 30 * time.Second

var contenders = slices.Concat(
	[]contender{raw()},
	idioms,
	locklines(),
	[]contender{rueidisLock(), redislockEager(), redislockExponential(), redsyncEager(), redsyncDefault()},
	[]contender{redislockKeys(), zsetPoll(), counterPoll(), counterPubSub()},
)

const ownModule = "github.com/lockline/lockline"

// ours reports whether c is a lock of this module.
func (c contender) ours() bool { return c.module == ownModule }

// dialRedis returns a client of go-redis for the server at url, with default options.
func dialRedis(url string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opt), nil
}

// version returns the version of the contender's module that this program contains.
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
