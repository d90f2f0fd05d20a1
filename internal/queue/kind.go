// Package queue is waiting in a queue that Redis keeps: a mutex.Waiting whose release hands the lock to the first that
// waits, and the kinds of locks that wait so.
//
// A session stands in the queue with a cohort of goroutines, which is asking, queued, or over (cohortState). Begin with
// the protocol from end to end, in queue.go; the scripts are in the folder lua.
//
// Lock.Mu guards what is of one lock. Only Redis decides who is next, and only by a grant that it has made; a message
// about one counts only with the nonce that Redis alone was told.
package queue

import (
	_ "embed"
	"errors"

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
	//go:embed heartbeat.lua
	heartbeatText string
	//go:embed force.lua
	forceText string
	//go:embed inspect.lua
	inspectText string

	lockScript      = wire.NewScript(lockText)
	releaseScript   = wire.NewScript(releaseText)
	heartbeatScript = wire.NewScript(heartbeatText)
	forceScript     = wire.NewScript(forceText)
	inspectScript   = wire.NewScript(inspectText)
)

// NewKind is a kind of lock whose waiters stand in a queue, with its letter.
func NewKind(letter string) *mutex.Kind {
	return &mutex.Kind{
		Letter:  letter,
		Lock:    lockScript,
		Release: releaseScript,
		Force:   forceScript,
		Inspect: inspectScript,
		Further: map[string]*wire.Script{"heartbeat": heartbeatScript},
		Ordered: true,
		Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
			if s.Redisson {
				return nil, errors.New("lockline: RedissonKeys: there are no fair locks with it: Redisson's queue is another")
			}
			k, err := protocol.NewKeys(s.Prefix, letter, name, ":q", ":a", ":d")
			if err == nil {
				k.Channel = s.Args.Channels
			}
			return k, err
		},
		Store:   single.Store,
		NewLock: newLock,
		Alarm:   alarm,
	}
}

// alarm wakes nobody: those who wait look by themselves, with each heartbeat.
func alarm(*protocol.Keys, *protocol.Grant) (channel, message any) { return "", "0" }
