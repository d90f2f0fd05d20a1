// Package redisson has the locks that programs share with a JVM that uses Redisson: its RLock and
// RFencedLock.
//
// A lock of this package has the hash, the channel and the token counter of the one that the JVM has by the
// same name. Go and JVM exclude each other and wake each other. New returns an *rlock.Mutex, so everything
// said there of Lock, TryLock, Do, re-entry, leases and tokens holds here, too. Only [rlock.HoldAtLeast] is
// an error.
//
//	session, err := rlock.NewSession(rdb)
//	...
//	m := redisson.New(session, "orders:42") // redisson.getLock("orders:42") in the JVM
//	err = m.Do(ctx, func(ctx context.Context) error { ... })
//
// The session's prefix is not used: the name of the lock is its key. So every method refuses names that could
// be keys of other locks. These begin with "redisson_lock_token:" or "lockline_lock_memory:", or contain
// a lower-case letter between ":" and ":{", as ":r:{". Names whose braces are no hash tag are refused, too.
//
// # Waiting
//
// There is no queue, since Redisson's RLock has none. An unlock publishes a message. One goroutine of each
// session that waits then asks again, and so do the JVM's. A session that has just had its turn lets others
// that wait go first. Only chance bounds a wait. Locks that no JVM takes are better off in package rlock.
// Should a message be lost, those that wait ask again when the holder's lease is over, and every 6 s
// ([rlock.WithWaiterTimeout]).
//
// On a Cluster, a release wakes only those that listen as it is published. The default is for Redisson's
// default ShardedSubscriptionMode.AUTO, and [rlock.WithClassicPubSub] for OFF. The reply to a lock request
// says which it is.
package redisson

import (
	"github.com/lockline/lockline/internal/engine"
	"github.com/lockline/lockline/internal/inner"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/wire"
	"github.com/lockline/lockline/rlock"
)

// scripts keep the hash, the channel and the token counter as the JVM does.
var scripts = engine.Scripts{
	Acquire: wire.Named("redisson/acquire"),
	Renew:   wire.Named("lock/keep"),
	Release: wire.Named("redisson/release"),
	Inspect: wire.Named("lock/inspect"),
	Force:   wire.Named("lock/force"),
}

var plain, fenced = kind(""), kind("0")

// kind is that of New or NewFenced. counter is what Redisson's token counter begins at; "": it is not made.
func kind(counter string) *engine.Kind {
	k := engine.NewLock(protocol.Redisson, false)
	k.Scripts = scripts
	k.Keys = func(s *session.Session, name string) (*protocol.Keys, error) {
		how := "classic" // scripts publish a release, in the words of shared.lua
		if s.ShardedHub != nil {
			how = "auto"
		}
		return protocol.RedissonKeys(name, how, counter)
	}
	return k
}

// New names a lock that the JVM takes by getLock. It does no I/O and is cheap. What is wrong with a name or
// session, Lock returns.
//
// Where the JVM takes the name by getFencedLock, use [NewFenced]. With New, the JVM's tokens begin at 1
// whatever Go had before. A counter that the JVM has made is raised all the same.
//
// It does not exclude locks of this library's other kinds that have its name: both are inside at the same
// time, without an error.
func New(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	return inner.New(s, plain, name, options)
}

// NewFenced names a lock that the JVM takes by getFencedLock: the tokens of both sides rise together from the
// first hold on, whichever side has it. For that it makes Redisson's token counter,
// redisson_lock_token:{name}. As Redisson's own, that key has no expiry. Take a name by New or by NewFenced,
// not by both. It excludes no locks of other kinds that have its name, see [New].
func NewFenced(s *rlock.Session, name string, options ...rlock.Option) *rlock.Mutex {
	return inner.New(s, fenced, name, options)
}
