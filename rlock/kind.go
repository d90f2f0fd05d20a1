package rlock

import (
	_ "embed"

	"github.com/lockline/lockline/internal/broadcast"
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/single"
	"github.com/lockline/lockline/internal/wire"
)

var (
	//go:embed lock.lua
	lockText string
	//go:embed release.lua
	releaseText string
	//go:embed force.lua
	forceText string
	//go:embed inspect.lua
	inspectText string
	//go:embed lock_several.lua
	lockSeveralText string
	//go:embed release_several.lua
	releaseSeveralText string
	//go:embed redisson_lock.lua
	redissonLockText string
	//go:embed redisson_release.lua
	redissonReleaseText string

	reentrant = &mutex.Kind{
		Letter:         protocol.Reentrant,
		Lock:           wire.NewScript(lockText),
		Release:        wire.NewScript(releaseText),
		Force:          wire.NewScript(forceText),
		Inspect:        wire.NewScript(inspectText),
		LockSeveral:    wire.NewScript(lockSeveralText),
		ReleaseSeveral: wire.NewScript(releaseSeveralText),
		Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
			return protocol.NewKeys(s.Prefix, protocol.Reentrant, name)
		},
		Store:   single.Store,
		NewLock: broadcast.NewLock,
		Alarm:   broadcast.Alarm,
	}

	// The kinds of RedissonKeys, and of RedissonFencedKeys, which makes the token counter where there is none.
	redisson, redissonFenced = sharedWithRedisson(""), sharedWithRedisson("0")
)

// sharedWithRedisson makes a kind with Redisson's keys and channel. counter is what the token counter begins at; "":
// it is not made.
func sharedWithRedisson(counter string) *mutex.Kind {
	k := *reentrant
	k.Lock, k.Release = wire.NewScript(redissonLockText), wire.NewScript(redissonReleaseText)
	k.LockArgs = []any{counter}
	k.LockSeveral, k.ReleaseSeveral = nil, nil
	k.Keys = func(_ *session.Session, name string) (*protocol.Keys, error) { return protocol.RedissonKeys(name) }
	return &k
}

// kindOf is the kind of a session's locks.
func kindOf(s *session.Session) *mutex.Kind {
	switch {
	case s == nil || !s.Redisson:
		return reentrant
	case s.Fenced:
		return redissonFenced
	}
	return redisson
}
