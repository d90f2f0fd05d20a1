package main

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/lockline/lockline/fairlock"
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
	"github.com/redis/go-redis/v9"
)

// contender is a library that locks, set up as its own documentation recommends
// for speed, and for many that want one lock.
type contender struct {
	name   string
	module string // path of the module that brings it
	config string // what was chosen, for the reader
	lacks  lacks

	// renewals is how many times in a lease it renews; the loop that renews for it, if it has none.
	renewals int
	// locks is how many one mutex takes, if that is not one.
	locks int
	// floor marks what is no library that a user would pick: no ratio is formed to it.
	floor bool
	// foreign marks what does not speak RESP, so that its requests can't be counted.
	foreign bool

	// unscripted are the commands that clients send as such, and no script of theirs calls.
	unscripted []string

	// dial makes one client, with connections of its own.
	dial func(setup) (client, error)
}

// setup is what a client is told.
type setup struct {
	Redis []string // URLs: one, or those of a majority
	Etcd  string   // address
	// Lease is 0 for what the contender's config says.
	Lease time.Duration
	// Rivals says that several goroutines of the client want the same lock.
	Rivals bool
}

// client is what one process of a user would have.
type client interface {
	// mutex names a lock, for one goroutine.
	mutex(name string) mutex
	close() error
}

// mutex is used by one goroutine, and remembers what its unlock needs.
type mutex interface {
	// lock returns the context to nest in.
	lock(ctx context.Context) (context.Context, error)
	unlock(ctx context.Context) error
}

// renewer is a mutex whose library leaves renewing to the user.
type renewer interface {
	renew(ctx context.Context) error
}

// contenders are all, on that site.
func contenders(at site) []contender {
	all := locks([]contender{
		raw(),
		message(),
		relay(),
		lockline("rlock", func(s []*rlock.Session, name string) rlock.Locker { return rlock.New(s[0], name) }),
		lockline("fairlock", func(s []*rlock.Session, name string) rlock.Locker { return fairlock.New(s[0], name) }),
		lockline("multilock", func(s []*rlock.Session, name string) rlock.Locker {
			return multilock.New(rlock.New(s[0], name+":a"), rlock.New(s[0], name+":b"))
		}).taking(2).configured("a MultiLock of two reentrant locks on the one server"),
		lockline("redlock", func(s []*rlock.Session, name string) rlock.Locker { return multilock.NewRedLock(name, s...) }).
			onlyFor(lacks{oneServer: "it is a lock of several servers"}),
		rueidisLock(at),
		redislockEager(),
		redislockExponential(),
		redsyncEager(),
		redsyncDefault(),
		redsyncExponential(),
		etcdMutex(),
		watch(),
	})
	return slices.Concat(all, rwLocks(), semaphores(), latches())
}

const ownModule = "github.com/lockline/lockline"

func (c contender) called() string { return c.name }

// lacking adds to what it lacks.
func (c contender) lacking(n need, reason string) contender {
	c.lacks = c.lacks.with(n, reason)
	return c
}

// taking says that each of its mutexes is several locks.
func (c contender) taking(locks int) contender {
	c.locks = locks
	return c
}

// onlyFor replaces what it lacks.
func (c contender) onlyFor(l lacks) contender {
	c.lacks = l
	return c
}

// configured adds to the configuration.
func (c contender) configured(how string) contender {
	c.config = how + "; " + c.config
	return c
}

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
