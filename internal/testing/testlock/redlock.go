package testlock

import (
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// RedLock returns a RedLock on the servers of the sessions, which are one for each server. It panics if the
// sessions do not fit together.
func RedLock(name string, sessions ...*rlock.Session) *multilock.RedLock {
	q, err := multilock.NewQuorum(sessions)
	if err != nil {
		panic(err)
	}
	return q.New(name)
}
