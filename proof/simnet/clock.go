package simnet

import (
	"sync"
	"time"
)

// Clock gives every event of a simulation an instant of its own.
type Clock struct {
	mu    sync.Mutex // guards taken
	taken map[int64]struct{}
}

func NewClock() *Clock { return &Clock{taken: map[int64]struct{}{}} }

// Until returns the duration from now to an instant that no other event has. The duration is at least d.
func (c *Clock) Until(d time.Duration) time.Duration {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	at := (now.Add(max(d, 2)).UnixNano() + 1) &^ 1 // even, because Net.After is called at an odd one
	for {
		if _, ok := c.taken[at]; !ok {
			break
		}
		at += 2
	}
	c.taken[at] = struct{}{}
	return time.Unix(0, at).Sub(now)
}
