package rlock

import (
	"context"
	"time"

	"github.com/lockline/lockline/internal/engine"
)

// State is what Redis knows of a lock at one instant.
type State struct {
	Name      string
	Held      bool
	Owner     string        // session id and number of the acquisition, or another library's owner field
	Session   string        // id of the holder's session
	Host      string        // where the holder's session runs
	PID       int           // its process id
	Label     string        // what WithLabel says of it
	Count     int           // hold count
	Remaining time.Duration // of the lease, if it is not renewed
	Token     int64         // of the holder; of the last one, if the lock is free and was held a minute ago
}

// Inspect asks Redis who holds the lock. It changes nothing, and blocks for one
// request, not longer than ctx.
func (m *Mutex) Inspect(ctx context.Context) (State, error) {
	s, err := (*engine.Mutex)(m).Inspect(ctx)
	return State(s), err
}

// ForceUnlock frees the lock whoever holds it, and reports whether anybody did. It
// is for operators: the holder goes on for a moment without the lock, until its
// next request or renewal, at most a third of its lease, tells it that it is lost.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	return (*engine.Mutex)(m).ForceUnlock(ctx)
}
