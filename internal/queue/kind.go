// Package queue is waiting in a queue that Redis keeps: a mutex.Waiting whose release hands the lock to the first
// waiter, and the kinds of locks that wait in this way.
//
// A session stands in the queue with a cohort of goroutines, which is asking, queued, or over (cohortState). Begin with
// the protocol from end to end, in queue.go; the scripts are in package script.
//
// Lock.Mu guards the state of one lock. Only Redis decides which attempt is next, and only by a grant that it has made; a
// message about a grant counts only with the nonce, which was given to Redis alone.
package queue

import (
	"github.com/lockline/lockline/internal/mutex"
	"github.com/lockline/lockline/internal/protocol"
	"github.com/lockline/lockline/internal/session"
	"github.com/lockline/lockline/internal/single"
	"github.com/lockline/lockline/internal/wire"
)

var (
	lockScript      = wire.Named("lock/lock")
	releaseScript   = wire.Named("lock/release")
	heartbeatScript = wire.Named("lock/heartbeat")
	remainScript    = wire.Named("lock/remain")
	forceScript     = wire.Named("lock/force")
	inspectScript   = wire.Named("lock/inspect")
)

// NewFair is a kind of lock, with its letter, that is served first come, first served.
func NewFair(letter string) *mutex.Kind {
	k := newKind(letter)
	k.Ordered, k.NewLock = true, newFair
	return k
}

// NewReentrant is a kind of lock, with its letter, whose holder's session goes before the queue for a while.
func NewReentrant(letter string) *mutex.Kind { return newKind(letter) }

func newKind(letter string) *mutex.Kind {
	return &mutex.Kind{
		Letter:  letter,
		Lock:    lockScript,
		Release: releaseScript,
		Remain:  remainScript,
		Force:   forceScript,
		Inspect: inspectScript,
		Keys: func(s *session.Session, name string) (*protocol.Keys, error) {
			k, err := protocol.NewKeys(s.Prefix, letter, name, ":q", ":a", ":d")
			if err == nil {
				k.Channel, k.Queued = s.Args.Channels, true
			}
			return k, err
		},
		Store:   single.Store,
		NewLock: newReentrant,
		Alarm:   alarm,
	}
}

// alarm wakes no waiter: waiters look by themselves, with each heartbeat.
func alarm(*protocol.Keys, *protocol.Grant) (channel, message any) { return "", "0" }
