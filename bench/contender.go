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

// A contender is a library with locks. It is set up as its own documentation recommends for speed, and for
// many clients that want one lock.
type contender struct {
	name   string
	module string // path of its module
	config string // description of the chosen options, for the reader

	// unscripted has the commands that clients send directly, and that the contender's scripts do not call.
	unscripted []string

	// dial makes one client, with connections of its own.
	dial func(setup) (client, error)

	// cycle locks, calls inside and unlocks. If it is nil, the lock and unlock of the mutex are used.
	cycle func(ctx context.Context, m mutex, inside func()) error
}

// setup has the settings of a client that depend on the run.
type setup struct {
	redis []string      // URLs of the servers; several if locks are held on a majority
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

// dialRedis returns a client of go-redis with its default options.
func dialRedis(url string) (*redis.Client, error) {
	opt, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opt), nil
}

// version returns the version of the contender's module in this program.
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
