package testlock

import (
	"github.com/lockline/lockline/multilock"
	"github.com/lockline/lockline/rlock"
)

// RedLock returns a RedLock on the servers of the sessions. Each session must be for another server. RedLock
// panics if NewQuorum returns an error.
func RedLock(name string, sessions ...*rlock.Session) *multilock.RedLock {
	q, err := multilock.NewQuorum(sessions)
	if err != nil {
		panic(err)
	}
	return q.New(name)
}
