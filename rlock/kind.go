package rlock

import (
	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/queue"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/single"
	"github.com/lockline/lockline/internal/wire"
)

var (
	redissonLock    = wire.Named("redisson/lock")
	redissonRelease = wire.Named("redisson/release")
	redissonForce   = wire.Named("redisson/force")
	redissonInspect = wire.Named("redisson/inspect")

	reentrant = queue.NewReentrant(protocol.Reentrant)

	// The kinds of RedissonKeys, and of RedissonFencedKeys, which makes the token counter where there is none.
	redisson, redissonFenced = sharedWithRedisson(""), sharedWithRedisson("0")
)

// sharedWithRedisson makes kinds with Redisson's keys and channel, one for each way to publish. counter is what the token
// counter begins at; "": it is not made.
func sharedWithRedisson(counter string) map[session.PubSub]*mutex.Kind {
	return map[session.PubSub]*mutex.Kind{
		session.PubSubClassic: newRedisson(counter, "classic"),
		session.PubSubAuto:    newRedisson(counter, "auto"),
		session.PubSubSharded: newRedisson(counter, "sharded"),
	}
}

func newRedisson(counter, publish string) *mutex.Kind {
	return &mutex.Kind{
		Letter:   protocol.Reentrant,
		Lock:     redissonLock,
		LockArgs: []any{counter},
		Publish:  publish,
		Release:  redissonRelease,
		Force:    redissonForce,
		Inspect:  redissonInspect,
		Keys:     func(_ *session.Session, name string) (*protocol.Keys, error) { return protocol.RedissonKeys(name) },
		Store:    single.Store,
		NewLock:  broadcast.NewLock,
		Alarm:    broadcast.Alarm,
	}
}

// kindOf is the kind of a session's locks.
func kindOf(s *session.Session) *mutex.Kind {
	if s == nil || !s.Redisson {
		return reentrant
	}
	mode := s.PubSub
	if s.ShardedHub == nil {
		mode = session.PubSubClassic
	}
	if s.Fenced {
		return redissonFenced[mode]
	}
	return redisson[mode]
}
